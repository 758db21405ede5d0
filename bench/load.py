"""Requests by a process of its own, which must not be what is slow: ``python -m bench.load``, what to ask on stdin.

HTTP is spoken by hand on plain connections; every client that does more costs more than the server that it asks.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import uvloop

from bench.place import ROOT


@dataclass(frozen=True)
class Load:
    """What is asked: the same request ``count`` times, so many a second or as fast as it is answered."""

    port: int
    token: str
    path: str
    count: int
    connections: int = 1
    rate: float | None = None
    method: str = "GET"
    body: str = ""
    status: int = 200


@dataclass(frozen=True)
class Answered:
    """How long each answer took, in milliseconds, and all of them together, in seconds."""

    times: list[float]
    seconds: float

    @property
    def median(self) -> float:
        """The time that half of them took at most."""
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        """The time that all but a hundredth took at most."""
        return sorted(self.times)[int(len(self.times) * 0.99)]


async def put(load: Load) -> Answered:
    """Put a load on a server, by another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    told, _ = await process.communicate(json.dumps(asdict(load)).encode())
    if process.returncode:
        raise RuntimeError(f"the load of {load.path} was not answered as it should be")
    return Answered(**json.loads(told))


async def _ask(load: Load) -> Answered:
    body = load.body.encode()
    head = f"{load.method} {load.path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {load.token}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    request, expected = head.encode() + body, f"HTTP/1.1 {load.status} ".encode()
    times: list[float] = []
    turns = iter(range(load.count))
    began = time.perf_counter()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", load.port)
        for turn in turns:
            due = time.perf_counter()
            if load.rate is not None:
                # What comes late because the one before was slow has waited too.
                due = began + turn / load.rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(expected):
                raise RuntimeError(answer.decode())
            await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
            times.append(1000 * (time.perf_counter() - due))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(load.connections)))
    return Answered(times, time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(_ask(Load(**json.load(sys.stdin)))))))
