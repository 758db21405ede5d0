"""Large values through a server: piece by piece, and never a part for the whole."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

import weft
from weft.db.blobs import digest_of
from weft.remote.asking import Asking
from weft.remote.worker_answers import RemoteBlobs

_SIZE = 60 * 1024**2
# What a server may grow by that has such a value pass through: several pieces, of everybody who is in between.
_ROOM = 24 * 1024**2


@pytest.fixture
async def apart(url: str, home: Path) -> AsyncIterator[tuple[str, int]]:
    """A server in a process of its own, and which that is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PG"))}
    environment = {**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft", "server", "--port", "0", env=environment, stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout is not None
    try:
        line = b""
        while (found := re.search(rb"http://[0-9.:]+", line)) is None:
            line = await process.stdout.readline()
            assert line, "it has ended"
        yield found[0].decode(), process.pid
    finally:
        process.kill()
        await process.communicate()


def _peak(pid: int) -> int:
    """Return the most memory that a process has had at once."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert told is not None
    return 1024 * int(told[1])


async def test_a_large_value_passes_through_a_server_without_being_held_there(
    client: weft.Client, apart: tuple[str, int]
) -> None:
    made = await client.enqueue("h")
    secret = (await client.tokens.create("w", role="worker")).secret
    address, pid = apart
    # JSON, and no two megabytes of it alike.
    data = orjson.dumps([hashlib.sha256(b"%d" % n).hexdigest() * 1000 for n in range(_SIZE // 64_000)])
    async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {secret}"}, timeout=60) as http:
        told = (await http.post("/v1/worker/register", json={"queues": ["default"], "handlers": ["h"]})).json()
        claimed = await http.post("/v1/task/claim", json={"worker_id": told["worker_id"]})
        held: dict[str, Any] = {name: claimed.json()["tasks"][0][name] for name in ("task_id", "lease_token")}
        before = _peak(pid)
        put = (await http.put("/v1/task/blob", params=held, content=data)).json()
        assert put == {"digest": digest_of(data), "size": len(data)}
        found = await http.get(f"/v1/task/blob/{put['digest']}")
        assert found.content == data
        assert int(found.headers["content-length"]) == len(data)
        assert _peak(pid) - before < _ROOM
        done = await http.post("/v1/task/complete", json={**held, "blob": put})
        assert done.status_code == 200
    assert orjson.dumps(await client.wait(made.id)) == data


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (b"content-length: 9\r\n\r\nshort", weft.ServerUnavailable, "cannot reach the server at http://127"),
        (b"transfer-encoding: chunked\r\n\r\n5\r\nshort\r\n", weft.ServerUnavailable, "cannot reach"),
        (b"content-length: 5\r\n\r\nother", weft.BlobUnavailable, "is damaged"),
    ],
    ids=["length", "chunks", "others"],
)
async def test_a_value_that_was_cut_off_or_is_another_is_an_error(
    body: bytes, error: type[weft.WeftError], said: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        asking = Asking(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", None)
        with pytest.raises(error, match=said):
            await RemoteBlobs(asking, {}).get(digest_of(b"whole"))
        await asking.close()
