"""Ids and names of another org in bodies and queries, beside paths of one's own: answered as if nobody had them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from acts import ENDS, hold, places, put
from matrix import FLOW, WORKERS, Asked, Things, all_rows, make_things, nobodys, routes, unnamed

import weft
from weft.contract.table import OPERATIONS
from weft.jobs.rerun_reading import SQL as RERUN
from weft.server.serving import Server

_WHICH = ("tag", "artifact_id", "version_hash", "point")
# By what a call takes, in its body or query, the things of another org that may stand there.
_NAMING: Mapping[str, tuple[str, ...]] = {
    "after": ("job_id",), "before": ("task_id",), "change": _WHICH, "expect": ("version_hash",),
    "from_node": ("task_id",), "head": ("digest",), "ids": ("task_id", "held_id", "outbox_id"), "job_id": ("job_id",),
    "job": ("job_id",),
    "new": _WHICH, "node": ("task_id",), "old": _WHICH, "on": _WHICH, "queue": ("queues.name",),
    "rerun_of": ("job_id",), "source": _WHICH, "task": ("task_id",), "to": _WHICH,
    "user": ("user", "user_id"), "uses": _WHICH, "workflow": _WHICH, "workflow_id": ("orgs.slug",),
    "actor": ("user",), "tag": ("tag",), "handler": ("handler",), "name": ("queues.name",), "slug": ("slug",),
    "external_id": ("user",), "unit_id": ("unit_id",), "other": ("datasets.name",),
    "dataset": ("datasets.name",),
}  # fmt: skip
# What names nothing that an org has; the keys of requests are tried where two orgs are side by side.
_NAMELESS = frozenset(
    """address admin as_of at at_once attempt breaking cache callback_url catch_up concurrency_key count cron
    definition delay depth description direction dry_run email events every expand expires_in failed first force
    glob grace heartbeat_timeout idempotency_key inputs is_protected key kind labels last latest limit materialize
    max_attempts max_running message offset older_than ops ordering_key overlap params partition_by partitions patch
    payload per_key prefer priority queues quick range_end range_start reason registry reject repair replace
    replaces retry role roles run_at seen set since sort state steps storage tasks timeout timezone until values
    verb version with_deactivated with_deleted with_ended""".split()
)
# What it makes has a name of the caller's own, though another org may have the like; and moves have numbers.
_MADE_BY_NAME = {
    ("create_queue", "name"), ("roles.create", "slug"), ("roles.create", "name"), ("users.add", "external_id"),
    ("tokens.create", "name"), ("tokens.create_sign_in", "name"), ("enqueue", "handler"), ("workflows.push", "tag"),
    ("schedules.add", "name"), ("datasets.create", "name"), ("jobs.send_event", "name"),
    ("workflows.moves", "before"), ("datasets.versions", "before"),
    ("datasets.writes", "before"), ("datasets.register", "name"), ("datasets.hand_over", "workflow"),
    ("datasets.hand_over", "node"),
    ("live.history", "before"),
}  # fmt: skip
# These only choose among what the caller's org has.
_FILTERS = frozenset(
    "actor after before from_node handler head ids job job_id node queue rerun_of task workflow_id expect".split()
)
_CHOOSES = {("schedules.list", "tag"), ("live.rematerialize", "dataset"), ("live.backfill", "dataset")}
# A change is named by its id alone.
_BY_ID_ALONE = ("workflows.revert",)
_ALIVE = re.compile(r'"again_in":[0-9.]+')


@dataclass(frozen=True)
class Scene:
    """Two orgs with one of each thing, and who asks in the name of the first."""

    http: httpx.AsyncClient
    worker: httpx.AsyncClient
    ours: Things
    theirs: Things
    their_id: int
    conn: asyncpg.Connection[asyncpg.Record]

    async def of_theirs(self) -> dict[str, str]:
        return await all_rows(self.conn, self.their_id)


@pytest.fixture
def settings(settings: weft.Settings) -> weft.Settings:
    """Workers are not lost while a test goes on."""
    return replace(settings, worker_timeout=timedelta(minutes=5))


async def _things(client: weft.Client, slug: str, server: Server) -> tuple[weft.Client, Things]:
    await client.orgs.create(slug)
    own = client.of_org((await client.orgs.show(slug)).id, slug)
    made = await make_things(own, slug, server.url)
    # One that has ended, to be run again.
    async with weft.Orchestrator(client=own):
        job = await own.jobs.submit({"workflow_id": slug, "nodes": _AT_ONCE})
        await own.jobs.wait(job.id, 60)
    shown = await own.workflows.show(made.names["tag"])
    more = {
        "version_hash": shown.version_hash, "point": f"{slug}/main@1", "job_id": str(job.id),
        "handler": f"{slug}:send",
        "outbox_id": str(await own.add_effect("enqueue_task", {"handler": f"{slug}:send", "queue": f"{slug}-mail"})),
    }  # fmt: skip
    return own, Things({**made.names, **more}, made.secret)


_NODES: Any = FLOW["nodes"]
_AT_ONCE = {"START": {"type": "start", "next": "END"}, "END": _NODES["END"]}


@pytest.fixture
async def scene(server: Server, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> AsyncIterator[Scene]:
    acme, ours = await _things(client, "acme", server)
    rival, theirs = await _things(client, "rival", server)
    admin = (await acme.tokens.create("admin", role="admin")).secret

    def opened(secret: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {secret}"}, timeout=60)

    async with opened(admin) as http, opened(ours.secret) as worker:
        yield Scene(http, worker, ours, theirs, await rival.org_id(), conn)


def test_it_is_said_of_all_that_calls_take_whether_it_names_something() -> None:
    taken = {each.name for operation in OPERATIONS for each in operation.parameters if each.place != "path"}
    assert taken == _NAMING.keys() | _NAMELESS
    assert not _NAMING.keys() & _NAMELESS


def _cases() -> Iterator[tuple[str, str, str]]:
    for operation in OPERATIONS:
        if operation.access == "operator":
            continue
        for each in operation.parameters:
            if each.place != "path" and (operation.call, each.name) not in _MADE_BY_NAME:
                for thing in _NAMING.get(each.name, ()):
                    yield operation.call, each.name, thing


async def test_what_another_org_has_is_nobodys_in_every_field_of_every_call(scene: Scene) -> None:
    by_call = {asked.call: asked for asked in routes() if asked.call}
    before = await scene.of_theirs()
    wrong, refused = [], 0
    for call, name, thing in _cases():
        asked, answers = by_call[call], []
        for things in (scene.theirs, nobodys(scene.theirs, "rival", "rivel")):
            answer = await _ask(scene, asked, name, things.names[thing])
            answers.append((answer.status_code, unnamed(answer, things)))
        refused += answers[0][0] == 404
        is_filter = name in _FILTERS or (call, name) in _CHOOSES
        is_refused = is_filter or answers[0][0] == 404 or (call in _BY_ID_ALONE and answers[0][0] == 422)
        if answers[0] != answers[1] or not is_refused:
            wrong.append((call, name, thing, *answers))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused > 40
    assert await scene.of_theirs() == before


async def _ask(scene: Scene, asked: Asked, name: str, value: str) -> httpx.Response:
    operation = next(each for each in OPERATIONS if each.call == asked.call)
    (field,) = [each for each in operation.parameters if each.name == name]
    told: Any = [value] if name in ("uses", "ids", "from_node") else value
    body, query = scene.ours.body(asked), scene.ours.query(asked)
    if "ids" in body or name == "ids":
        # Nothing else says which are meant.
        body = {}
    if field.place == "query":
        query[name] = told
    else:
        body[name] = told
    if name in ("from_node", "on", "uses"):
        # What is run again is all of a job that has completed.
        body = {key: told for key, told in body.items() if key not in ("failed", "inputs", "workflow_id")}
        body |= {"state": ["completed"]} if "state" in body else {}
        body |= {"on": scene.ours.names["tag"]} if name == "uses" and "workflow" not in body else {}
    sent = None if asked.method in ("GET", "DELETE") else body
    return await scene.http.request(asked.method, scene.ours.path(asked), params=query, json=sent)


async def test_a_workflow_that_calls_another_orgs_calls_what_nobody_has(scene: Scene) -> None:
    before = await scene.of_theirs()
    told = []
    for things in (scene.theirs, nobodys(scene.theirs, "rival", "rivel")):
        for thing in _WHICH:
            call = {"type": "workflow", "workflow": things.names[thing], "next": "END"}
            nodes = {**_NODES, "START": {"type": "start", "next": "call"}, "call": call}
            del nodes["fetch"]
            definition = {"workflow_id": "caller", "nodes": nodes}
            for path, body in (
                ("workflows", {"definition": definition, "dry_run": True}),
                ("jobs", {"workflow": definition}),
            ):
                answer = await scene.http.post(f"/api/v1/{path}", json=body)
                # What would be pushed has a hash of its own.
                text = unnamed(answer, things) if path == "jobs" else ""
                told.append((path, thing, answer.status_code, text))
    half = len(told) // 2
    assert told[:half] == told[half:]
    assert {each[2] for each in told if each[0] == "jobs"} <= {404, 422}
    assert await scene.of_theirs() == before


# The fields of the worker protocol that name something, and of which kind.
_OF_WORKERS = {
    "worker_id": "worker_id", "task_id": "held_id", "lease_token": "lease_token", "ids": "held_id", "known": "held_id",
    "digest": "digest",
}  # fmt: skip


async def test_what_another_orgs_worker_holds_is_nobodys_in_every_field_of_every_act(scene: Scene) -> None:
    acts = [asked for asked in routes() if asked.roles == WORKERS and asked.body]
    before = await scene.of_theirs()
    wrong, tried = [], set()
    # What ends the attempt comes last: with a foreign id in it nothing of it is done.
    for asked in sorted(acts, key=lambda each: each.path.endswith(ENDS)):
        own = _with_blob(scene.ours.body(asked), asked)
        for place in places(own):
            named = [str(part) for part in place if isinstance(part, str)]
            if not named or named[-1] not in _OF_WORKERS or not isinstance(_at(own, place), str):
                continue
            tried.add(named[-1])
            told = []
            for things in (scene.theirs, nobodys(scene.theirs, "rival", "rivel")):
                body = put(own, place, things.names[_OF_WORKERS[named[-1]]])
                answer = await scene.worker.post(asked.path, json=body)
                told.append((answer.status_code, _ALIVE.sub("", unnamed(answer, things))))
            is_refused = told[0][0] in (404, 409, 422) or any(
                word in told[0][1] for word in ("refused", "lost", "lent")
            )
            # Who is not there has left.
            is_refused = is_refused or (asked.path == "/v1/worker/deregister" and told[0] == (200, "{}"))
            if told[0] != told[1] or not is_refused:
                wrong.append((asked.path, place, *told))
    assert not wrong, "\n".join(map(str, wrong))
    assert tried == _OF_WORKERS.keys()
    assert await scene.of_theirs() == before


def _with_blob(body: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Return a body with the blob that it may have, and in which what is known comes before what is added."""
    if "known" in body:
        return {**body, "pairs": [[len(body["items"]), 0]]}
    blob = {"digest": "0" * 64, "size": 6}
    if "blob" in asked.body and asked.path != "/v1/task/complete":
        return {**body, "blob": blob}
    if asked.path == "/v1/task/complete":
        return {**{name: value for name, value in body.items() if name != "tasks"}, "blob": blob}
    return body


def _at(body: Any, place: tuple[str | int, ...]) -> Any:
    for part in place:
        body = body[part]
    return body


async def test_a_task_of_another_org_and_its_value_are_nobodys_together(scene: Scene) -> None:
    lease = scene.ours.names["lease_token"]
    for verb, more in {"complete": {}, "step": {"name": "a"}, "checkpoint": {"phase": "a"}}.items():
        told = []
        for things in (scene.theirs, nobodys(scene.theirs, "rival", "rivel")):
            blob = {"digest": things.names["digest"], "size": 7}
            body = {"task_id": things.names["held_id"], "lease_token": lease, "blob": blob, **more}
            answer = await scene.worker.post(f"/v1/task/{verb}", json=body)
            told.append((answer.status_code, unnamed(answer, things)))
        assert told[0] == told[1], verb
        assert told[0][0] == 404, verb


async def test_an_output_that_is_said_to_be_another_orgs_leads_nowhere(scene: Scene, server: Server) -> None:
    ours, theirs = scene.ours.names, scene.theirs.names

    def done(names: Mapping[str, str], **more: Any) -> dict[str, Any]:
        return {"task_id": names["held_id"], "lease_token": names["lease_token"], "output": 1, **more}

    headers = {"authorization": f"Bearer {scene.theirs.secret}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as rival:
        assert (await rival.post("/v1/task/complete", json={"tasks": [done(theirs)]})).status_code == 200
    answer = await scene.worker.post(
        "/v1/task/complete", json={"tasks": [done(ours, reuse={"root": theirs["held_id"]})]}
    )
    assert answer.json()["tasks"] == [ours["held_id"]]
    kept = "select org_id, reason, kept_id from weft.task_done where id = $1"
    org_id, *refers = await scene.conn.fetchrow(kept, int(ours["held_id"]))
    assert refers == ["cached", None]
    # Should one come to be there all the same.
    refer = "update weft.task_done set kept_id = $2 where id = $1"
    await scene.conn.execute(refer, int(ours["held_id"]), int(theirs["held_id"]))
    rows = await scene.conn.fetch(RERUN.tasks, org_id, int(ours["held_job_id"]))
    assert [(row["node"], row["root_job_id"]) for row in rows if row["node"] == "fetch"] == [("fetch", None)]


async def test_what_is_ones_own_is_done_beside_ids_of_another_org_and_they_are_refused(scene: Scene) -> None:
    theirs, queue = scene.theirs.names["held_id"], scene.ours.names["queues.name"]
    before = await scene.of_theirs()
    verbs: dict[str, dict[str, Any]] = {"heartbeat": {}, "fail": {"state": "dead"}, "complete": {}, "release": {}}
    for verb, more in verbs.items():
        made = await scene.http.post("/api/v1/tasks", json={"handler": "beside", "queue": queue})
        assert made.status_code == 201, made.text
        own = await hold(scene.worker, queue, "beside")
        # With the lease of one's own worker: that of another is refused before anybody looks at the task.
        tasks = [{"task_id": id, "lease_token": own.lease_token, **more} for id in (theirs, own.task_id)]
        told = (await scene.worker.post(f"/v1/task/{verb}", json={"tasks": tasks})).json()
        assert told == {"tasks": [own.task_id], "refused": [theirs]}, verb
    assert await scene.of_theirs() == before
    effects = [things.names["outbox_id"] for things in (scene.ours, scene.theirs)]
    await scene.conn.execute("update weft.outbox set state = 'failed' where id = any ($1)", list(map(int, effects)))
    before = await scene.of_theirs()
    for verb in ("replay", "purge"):
        await scene.conn.execute("update weft.outbox set state = 'failed' where id = $1", int(effects[0]))
        assert (await scene.http.post(f"/api/v1/outbox/{verb}", json={"ids": effects})).json() == {"count": 1}, verb
        assert await scene.of_theirs() == before
