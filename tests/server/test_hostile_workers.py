"""Whatever a worker sends, it is told what is wrong with it, and nothing of it is written."""

from __future__ import annotations

import itertools
import json
from typing import Any

import asyncpg
import httpx
import pytest
from acts import ENDS, bodies, hold, places, put
from described import described
from server_scene import MakeHttp

import weft

_FAR, _NUL, _HALF = 10**30, "a\x00b", "\ud800"
# What breaks most, in every field and at every time; the long campaign sends the others too.
_WORST: tuple[Any, ...] = ("9" * 19, _FAR, _NUL, _HALF, {"a": _NUL}, ["a", "a"])
_OTHERS: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**63, "", "x", "x" * 30_000, "9" * 25, "٣", [], {}, [None], [_NUL], {"a": _FAR},
    {_NUL: 1}, {"a": _HALF}, {"$blob": "x"}, {"digest": "0" * 64, "size": 2**53},
)  # fmt: skip
_WRONG_WHOLE: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 422),
    "no end": (b'{"a": 1', 400),
    "no object": (b"[]", 422),
    "null": (b"null", 422),
    "no UTF-8": (b'{"a": "\xff\xfe"}', 400),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), 400),
    "nested": (b'{"output": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "no number": (b'{"output": NaN}', 400),
    "many digits": (b'{"output": ' + b"9" * 10_000 + b"}", 400),
    "no field": (b'{"nobody_has_this": 1}', 422),
}
_EVERYTHING = (
    "select (select count(*) from weft.task), (select count(*) from weft.worker), (select count(*) from weft.attempt),"
    " (select count(*) from weft.step), (select count(*) from weft.queue), (select count(*) from weft.task_blob),"
    " (select jsonb_agg(t order by id) from weft.task t)"
)


class Scene:
    """A worker that holds a task of a job, and every act of the protocol with a body that would be taken."""

    def __init__(self, http: httpx.AsyncClient, bodies: dict[str, dict[str, Any]]) -> None:
        self.http = http
        self.bodies = bodies

    async def send(self, path: str, body: bytes, kind: str = "application/json") -> httpx.Response:
        return await self.http.post(path, content=body, headers={"content-type": kind})


@pytest.fixture
async def scene(make_http: MakeHttp, client: weft.Client) -> Scene:
    http = await make_http(role="worker", queues=["default", "mail"])
    flow = {"START": {"type": "start", "next": "a"}, "a": {"type": "task", "handler": "h", "next": "END"}}
    await client.jobs.submit({"workflow_id": "w", "nodes": {**flow, "END": {"type": "end"}}})
    holding = await hold(http, "default", "h")
    taken = {path: holding.fill(body) for path, body in bodies(described()).items()}
    return Scene(http, taken)


async def test_a_body_that_is_wrong_as_a_whole_is_refused_and_changes_nothing(
    scene: Scene, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    before = await conn.fetchrow(_EVERYTHING)
    wrongs = itertools.cycle(_WRONG_WHOLE.items())
    assert len(scene.bodies) >= 2 * len(_WRONG_WHOLE)
    for path, body in scene.bodies.items():
        good = json.dumps(body).encode()
        twice = b'{"' + next(iter(body)).encode() + b'": 1, ' + good[1:]
        for name, (wrong, status) in (next(wrongs), ("twice", (twice, 400))):
            answer = await scene.send(path, wrong)
            assert answer.status_code == status, (path, name, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        for kind in ("text/plain", "application/json; charset=utf-16"):
            assert (await scene.send(path, good, kind)).status_code == 415, path
    assert await conn.fetchrow(_EVERYTHING) == before


async def test_no_value_of_any_field_is_a_surprise_to_the_server(scene: Scene, campaign: str) -> None:
    # What ends the attempt, or the worker, comes last.
    seen: set[str | int] = set()
    for path in sorted(scene.bodies, key=lambda path: path.endswith(ENDS)):
        body = scene.bodies[path]
        for place in places(body):
            values = _WORST if place[-1] not in seen else _WORST[:1]
            seen.add(place[-1])
            for value in (*_WORST, *_OTHERS) if campaign == "long" else values:
                answer = await scene.send(path, json.dumps(put(body, place, value)).encode())
                assert answer.status_code in (200, 404, 409, 422), (path, place, value, answer.text)
                assert answer.status_code != 422 or answer.json()["field"], (path, place, value, answer.text)
    assert {"worker_id", "task_id", "output", "outputs", "key", "text", "call", "concurrency_key", "data"} <= seen
