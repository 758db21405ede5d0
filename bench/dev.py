"""``weft dev``: from the start of the process until it answers, and until a first job that came by HTTP has run."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

import weft
from bench.jobs import SMALL
from bench.place import ROOT
from bench.report import Figure

_WEFT = str(Path(sys.executable).parent / "weft")


async def measure_dev(repeat: int) -> list[Figure]:
    """Start it again and again in a home that it knows; beside that, what Python and PostgreSQL take alone."""
    home = tempfile.mkdtemp(prefix="weft-bench-", dir="/tmp")
    os.chmod(home, 0o755)
    environment = {**os.environ, "WEFT_HOME": home}
    ready, done, processor, interpreters, servers = [], [], [], [], []
    try:
        made = _said([_WEFT, "tokens", "create", "bench", "--role", "writer", "--json"], environment)
        token = json.loads(made)["secret"]
        for _ in range(repeat):
            interpreters.append(_took([sys.executable, "-c", "pass"], environment))
            _took([_WEFT, "db", "stop"], environment)
            servers.append(_took([_WEFT, "db", "start"], environment))
            _took([_WEFT, "db", "stop"], environment)
            used = _used()
            async with _dev(environment) as (url, began):
                await _until_ready(url)
                ready.append(time.perf_counter() - began)
                async with weft.RemoteClient(url, token) as client:
                    await client.jobs.wait((await client.jobs.submit(SMALL)).id, timeout=60)
                done.append(time.perf_counter() - began)
            processor.append(_used() - used)
    finally:
        _said([_WEFT, "db", "stop"], environment)
        shutil.rmtree(home, ignore_errors=True)
    median = statistics.median
    beside = f"`python -c pass` {median(interpreters):.2f} s, `weft db start` {median(servers):.2f} s"
    all_of_it = f"processor time of all parts until they have stopped {median(processor):.1f} s"
    return [
        Figure("weft dev: from its start to the first answer of /readyz", median(ready), "s", "<= 3 s",
               median(ready) <= 3, beside, ready),
        Figure("weft dev: from its start to the end of a first job by HTTP", median(done), "s", "<= 3 s",
               median(done) <= 3, all_of_it, done),
    ]  # fmt: skip


@asynccontextmanager
async def _dev(environment: dict[str, str]) -> AsyncIterator[tuple[str, float]]:
    """Start it at a free port; yields its address and the moment of the start. It is stopped as by an init system."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        _WEFT, "dev", "--port", str(port), "--app", "bench.app", "--no-reload",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}", began
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def _until_ready(url: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        while True:
            try:
                if (await http.get(f"{url}/readyz")).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.01)


def _took(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    _said(command, environment)
    return time.perf_counter() - began


def _said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(
        command, check=True, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=60
    ).stdout


def _used() -> float:
    """Return the processor time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
