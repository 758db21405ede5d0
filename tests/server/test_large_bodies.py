"""Large values through a server: piece by piece, and never a part for the whole."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
import orjson
import pytest
from server_scene import peak

import weft
from engine.job_scene import Handlers, at_work, flow
from weft.db.blobs import digest_of
from weft.remote.asking import Asking
from weft.remote.worker_answers import RemoteBlobs

_SIZE = 60 * 1024**2
# What a server may grow by that has such a value pass through: several pieces, of everybody who is in between.
_ROOM = 24 * 1024**2
_MANY = 1_000_000


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
        before = peak(pid)
        put = (await http.put("/v1/task/blob", params=held, content=data)).json()
        assert put == {"digest": digest_of(data), "size": len(data)}
        found = await http.get(f"/v1/task/blob/{put['digest']}")
        assert found.content == data
        assert int(found.headers["content-length"]) == len(data)
        assert peak(pid) - before < _ROOM
        done = await http.post("/v1/task/complete", json={**held, "blob": put})
        assert done.status_code == 200
    assert orjson.dumps(await client.wait(made.id)) == data


async def test_a_large_value_is_passed_on_by_a_server_without_being_taken_apart(
    client: weft.Client, apart: tuple[str, int]
) -> None:
    address, pid = apart
    # Taken apart it would need many times as much, and all others would wait meanwhile.
    value = [[n % 10] for n in range(_MANY)]
    handlers = Handlers()
    handlers.registry.task(name="make")(lambda: value)
    end = {"type": "end", "output": "{{ nodes.first.output }}"}
    async with at_work(client, handlers):
        job = await client.jobs.submit(flow(first={"handler": "make", "next": "END"}, END=end))
        await client.jobs.wait(job.id, timeout=60)
        (task,) = [each for each in await client.jobs.nodes(job.id) if each.node == "first"]
    headers = {"authorization": f"Bearer {(await client.tokens.create('r', role='reader')).secret}"}
    async with httpx.AsyncClient(base_url=f"{address}/api/v1", headers=headers, timeout=60) as http:
        assert (await http.get("/jobs")).status_code == 200
        before, kept = peak(pid), orjson.dumps(value)
        found = await http.get(f"/tasks/{task.id}/output")
        assert (found.content, found.headers["content-length"]) == (kept, str(len(kept)))
        for path, name in (
            (f"/tasks/{task.id}", "output"),
            (f"/tasks/{task.id}/wait", "output"),
            (f"/jobs/{job.id}", "result"),
            (f"/jobs/{job.id}/wait", "result"),
        ):
            found = await http.get(path)
            assert found.json()[name] == value
        assert peak(pid) - before < 8 * len(kept)


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
