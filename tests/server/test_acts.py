"""Whoever changes something is kept in the audit, whatever it is: with who it was, from where, and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acts import ENDS
from matrix import FIRST_TURN, FLOW, OTHERS, WORKERS, dag, make_things, routes, send
from server_scene import MakeHttp, MakeRemote

import weft
from engine.job_scene import Handlers, at_work, flow
from weft.contract.table import OPERATIONS
from weft.server.serving import Server
from writing import written

# Made in masses, by machines: who did it is kept with the task or the effect itself, which is never changed.
WITH_THE_THING = {"enqueue", "enqueue_many", "add_effect"}
REVIEW = flow(review={"type": "wait", "for": "approval"}) | {"workflow_id": "review"}
Acts = dict[str, Callable[[weft.RemoteClient], Awaitable[Any]]]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with what others have written."""
    place = tmp_path / "theirs"
    place.mkdir()
    pq.write_table(pa.table({"id": [1]}), place / "1.parquet")
    return place


@pytest.fixture
def settings(settings: weft.Settings, outside: Path) -> weft.Settings:
    """Settings with which that may be registered."""
    return replace(settings, data_outside=(str(outside),))


@pytest.fixture
async def acts(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], outside: Path) -> Acts:
    """A call of each kind that changes something, on things that let it: one that is missing fails the test."""
    handlers = Handlers()

    @handlers.registry.task(name="kept", cache=timedelta(hours=1))
    async def kept() -> int:
        return 1

    fails = flow(a={"type": "task", "handler": "fail", "retry": {"max_attempts": 1}})
    async with at_work(client, handlers):
        failed = [await client.jobs.submit(fails) for _ in range(2)]
        dead = [await client.enqueue("fail", max_attempts=1) for _ in range(3)]
        waits = await client.jobs.submit(REVIEW)
        for job in failed:
            await client.jobs.wait(job.id)
        for task in dead:
            with pytest.raises(weft.TaskFailed):
                await client.wait(task.id)
        await client.wait((await client.enqueue("kept")).id)
        async for event in client.jobs.follow(waits.id):
            if event.node == "review":
                break
    await client.workflows.push(FLOW)
    for tag in ("etl/other", "etl/old", "etl/gone"):
        await client.workflows.branch(tag, "etl")
    change = await client.workflows.patch("etl/other", set={"nodes.fetch.params.size": 7})
    await client.workflows.patch("etl/other", set={"nodes.fetch.params.more": 1})
    await client.workflows.delete("etl/gone")
    await client.workflows.snapshot("etl", set={"nodes.fetch.params.size": 8})
    await client.schedules.add("etl", name="nightly", every=3600)
    backfill = await client.schedules.backfill("nightly", since=datetime.now(UTC) - timedelta(days=1))
    await written(client, "orders", 1, 2)
    await written(client, "rest", 1)
    await client.live.deploy(dag("acme", "orders"))
    await client.jobs.send_event("acme.quote", {})
    await client.jobs.send_event("acme.quote", {})
    units = await client.live.units("acme/market", "quotes")
    await conn.execute("update weft.live_unit set state = 'held' where id = $1", units[0].id)
    await conn.execute(FIRST_TURN, "acme/copied")
    anew = await client.live.backfill("acme/market", "candles")
    await client.create_queue("mail")
    open_ = await client.jobs.submit("etl")
    tasks = [await client.enqueue("nobody:knows") for _ in range(2)]
    effects = [await client.add_effect("enqueue_task", {"handler": "a"}) for _ in range(2)]
    await conn.execute("update weft.outbox set state = 'failed' where id = any ($1)", effects)
    await client.orgs.create("acme")
    for user in ("ada", "eve"):
        await client.users.add(user)
    await client.users.deactivate("eve")
    for role in ("finance", "old"):
        await client.roles.create(role)
    await client.roles.grant("finance", "eve")
    token = (await client.tokens.create("nightly")).token.id
    return {
        "jobs.submit": lambda by: by.jobs.submit("etl"),
        "jobs.pause": lambda by: by.jobs.pause(open_.id),
        "jobs.resume": lambda by: by.jobs.resume(open_.id),
        "jobs.cancel": lambda by: by.jobs.cancel(open_.id),
        "jobs.rerun": lambda by: by.jobs.rerun(failed[0].id),
        "jobs.rerun_all": lambda by: by.jobs.rerun_all(),
        "jobs.approve": lambda by: by.jobs.approve(waits.id),
        "jobs.send_event": lambda by: by.jobs.send_event("file.arrived"),
        "jobs.send_events": lambda by: by.jobs.send_events([weft.NewEvent("file.arrived")] * 2),
        "datasets.create": lambda by: by.datasets.create("new"),
        "datasets.describe": lambda by: by.datasets.describe("orders", "What was ordered."),
        "datasets.grant": lambda by: by.datasets.grant("orders", []),
        "datasets.rollback": lambda by: by.datasets.rollback("orders@1.1"),
        "datasets.register": lambda by: by.datasets.register("theirs", str(outside)),
        "datasets.hand_over": lambda by: by.datasets.hand_over("rest", "etl", "fetch"),
        "datasets.delete": lambda by: by.datasets.delete("rest"),
        "datasets.undelete": lambda by: by.datasets.undelete("rest"),
        "datasets.gc": lambda by: by.datasets.gc(0.001),
        "live.deploy": lambda by: by.live.deploy(dag("acme", "orders") | {"description": "again"}),
        "live.rollback": lambda by: by.live.rollback("acme/market"),
        "live.pause": lambda by: by.live.pause("acme/market"),
        "live.resume": lambda by: by.live.resume("acme/market"),
        "live.retry": lambda by: by.live.retry("acme/market", "quotes"),
        "live.skip": lambda by: by.live.skip("acme/market", "quotes", units[1].id),
        "live.rematerialize": lambda by: by.live.rematerialize("acme/market", "candles", partitions=[""]),
        "live.backfill": lambda by: by.live.backfill("acme/market", "candles"),
        "live.cancel_backfill": lambda by: by.live.cancel_backfill(anew.id),
        "live.rebuild": lambda by: by.live.rebuild("acme/market", "candles"),
        "live.abandon": lambda by: by.live.abandon("acme/market"),
        "live.drain": lambda by: by.live.drain("acme/market"),
        "schedules.add": lambda by: by.schedules.add("etl", name="new", every=3600),
        "schedules.change": lambda by: by.schedules.change("nightly", every=7200),
        "schedules.pause": lambda by: by.schedules.pause("nightly"),
        "schedules.resume": lambda by: by.schedules.resume("nightly"),
        "schedules.trigger": lambda by: by.schedules.trigger("nightly"),
        "schedules.backfill": lambda by: by.schedules.backfill("nightly", since=datetime.now(UTC) - timedelta(days=1)),
        "schedules.cancel_backfill": lambda by: by.schedules.cancel_backfill(backfill.id),
        "schedules.delete": lambda by: by.schedules.delete("nightly"),
        "workflows.push": lambda by: by.workflows.push({**FLOW, "workflow_id": "new"}),
        "workflows.snapshot": lambda by: by.workflows.snapshot("etl", set={"nodes.fetch.params.size": 9}),
        "workflows.patch": lambda by: by.workflows.patch("etl", set={"nodes.fetch.params.size": 3}),
        "workflows.move": lambda by: by.workflows.move("etl/old", "etl/main"),
        "workflows.undo": lambda by: by.workflows.undo("etl"),
        "workflows.redo": lambda by: by.workflows.redo("etl"),
        "workflows.branch": lambda by: by.workflows.branch("etl/branch", "etl/main"),
        "workflows.merge": lambda by: by.workflows.merge("etl/other", "etl/main", prefer="ours"),
        "workflows.revert": lambda by: by.workflows.revert("etl/other", change.artifact_id, prefer="theirs"),
        "workflows.delete": lambda by: by.workflows.delete("etl/old"),
        "workflows.undelete": lambda by: by.workflows.undelete("etl/gone"),
        "workflows.protect": lambda by: by.workflows.protect("etl"),
        "workflows.compact": lambda by: by.workflows.compact("etl"),
        "workflows.fsck": lambda by: _mend(by, conn),
        "enqueue": lambda by: by.enqueue("nobody:knows"),
        "enqueue_many": lambda by: by.enqueue_many([weft.NewTask("nobody:knows")]),
        "add_effect": lambda by: by.add_effect("enqueue_task", {"handler": "a"}),
        "cancel": lambda by: by.cancel(tasks[0].id),
        "cancel_all": lambda by: by.cancel_all(ids=[tasks[1].id]),
        "replay": lambda by: by.replay(dead[0].id),
        "replay_all": lambda by: by.replay_all(ids=[tasks[1].id]),
        "purge": lambda by: by.purge(ids=[dead[1].id]),
        "replay_dead": lambda by: by.replay_dead(),
        "create_queue": lambda by: by.create_queue("letters"),
        "pause_queue": lambda by: by.pause_queue("mail"),
        "resume_queue": lambda by: by.resume_queue("mail"),
        "limit_queue": lambda by: by.limit_queue("mail", 3),
        "replay_outbox": lambda by: by.replay_outbox([effects[0]]),
        "purge_outbox": lambda by: by.purge_outbox(),
        "clear_cache": lambda by: by.clear_cache(),
        "orgs.create": lambda by: by.orgs.create("globex"),
        "orgs.create_token": lambda by: by.orgs.create_token("acme"),
        "orgs.rename": lambda by: by.orgs.rename("acme", "Acme Ltd"),
        "users.add": lambda by: by.users.add("bob"),
        "users.change": lambda by: by.users.change("ada", role="writer"),
        "users.deactivate": lambda by: by.users.deactivate("ada"),
        "users.activate": lambda by: by.users.activate("eve"),
        "roles.create": lambda by: by.roles.create("new"),
        "roles.grant": lambda by: by.roles.grant("old", "eve"),
        "roles.revoke": lambda by: by.roles.revoke("finance", "eve"),
        "roles.delete": lambda by: by.roles.delete("old"),
        "tokens.create": lambda by: by.tokens.create("weekly"),
        "tokens.create_sign_in": lambda by: by.tokens.create_sign_in("eve"),
        "tokens.revoke": lambda by: by.tokens.revoke(token),
        "workflows.gc": lambda by: _collect(by, conn),
    }


async def _mend(by: weft.RemoteClient, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    await conn.execute(
        "set session_replication_role = replica; update weft.artifact set version_hash = sha256('x') "
        "where id = (select max(id) from weft.artifact where kind = 'patch'); reset session_replication_role"
    )
    assert [each.mended for each in await by.workflows.fsck(repair=True) if each.mended]


async def _collect(by: weft.RemoteClient, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
        "return clock_timestamp() + interval '2 hours'"
    )
    assert (await by.workflows.gc(3600)).snapshots


async def test_every_act_is_kept_with_who_did_it_from_where_and_why(
    acts: Acts, make_remote: MakeRemote, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    assert acts.keys() == {each.call for each in OPERATIONS if each.changes}
    by = await make_remote()
    for call, act in acts.items():
        before, reason = await conn.fetchval("select max(id) from weft.audit"), f"100 % nötig: {call}"
        with by.because(reason):
            await act(by)
        rows = await conn.fetch("select actor, origin, reason from weft.audit where id > $1", before)
        kept = {(row["actor"], str(row["origin"]).partition(" ")[0], row["reason"]) for row in rows}
        assert kept == (set() if call in WITH_THE_THING else {("token:tester", "127.0.0.1", reason)}), call


async def test_what_is_no_call_is_kept_as_well(
    make_http: MakeHttp, client: weft.Client, server: Server, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    kept = {"/api/v1/jobs/graph": ("submit", "job"), "/api/v1/jobs/{job_id}/add": ("add", "job")}
    things, http = await make_things(client, "mine", server.url), await make_http("admin")
    others = [each for each in routes() if (each.method, each.path) in OTHERS and not each.is_safe]
    assert {each.path for each in others} == kept.keys() | {"/sign-out", "/api/v1/workflows/validate", "/api/v1/query"}
    before = await conn.fetchval("select max(id) from weft.audit")
    for asked in others:
        answer = await send(http, asked, things, {"weft-reason": "why"})
        assert answer.is_success, answer.text
        rows = await conn.fetch("select * from weft.audit where id > $1", before)
        found = {(row["verb"], row["subject_kind"], row["actor"], row["reason"]) for row in rows}
        assert found == ({(*kept[asked.path], "token:tester", "why")} if asked.path in kept else set()), asked.path
        before = max((row["id"] for row in rows), default=before)
    [added] = (await client.list_tasks(handler="echo")).tasks[:1]
    assert (await client.get_task(added.id)).actor == "token:tester"
    assert [each.detail["added"] for each in await client.audit(job=int(things.names["job_id"]), verb="add")] == [1]


async def test_what_workers_do_is_kept_under_the_name_of_their_token(
    make_http: MakeHttp, client: weft.Client, server: Server, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    things, http = await make_things(client, "mine", server.url), await make_http("worker")
    before = await conn.fetchval("select max(id) from weft.audit")
    answer = await http.post("/v1/worker/register", json={"queues": ["letters"], "handlers": ["a"]})
    assert answer.status_code == 200
    headers = {"authorization": f"Bearer {things.secret}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as worker:
        for asked in sorted(routes(), key=lambda each: each.path.endswith(ENDS)):
            if asked.roles == WORKERS and asked.method == "POST" and asked.path != "/v1/worker/listen":
                await send(worker, asked, things, {})
    rows = await conn.fetch("select verb, subject_name, actor, origin from weft.audit where id > $1", before)
    assert [(*row,)[:3] for row in rows] == [("create", "letters", "token:tester")]
    assert str(rows[0]["origin"]).startswith("127.0.0.1")


async def test_a_known_key_keeps_no_second_act(client: weft.Client) -> None:
    for _ in range(2):
        await client.jobs.submit(FLOW, idempotency_key="k")
        await client.jobs.send_event("file.arrived", idempotency_key="k")
        await client.workflows.push(FLOW)
        await client.workflows.push({**FLOW, "workflow_id": "other"}, dry_run=True)
        await client.workflows.snapshot("etl")
        await client.jobs.submit(
            "etl", patch=[{"op": "add", "path": "/nodes/fetch/params/size", "value": 5}], idempotency_key="l"
        )
        with pytest.raises(weft.StateConflict):
            await client.workflows.undelete("etl")
    assert sorted(each.verb for each in await client.audit()) == ["push", "send", "submit", "submit"]


async def test_what_a_job_asks_for_is_no_act_of_anybody(client: weft.Client) -> None:
    handlers = Handlers()
    await client.workflows.push(flow(a={"type": "task", "handler": "say"}) | {"workflow_id": "one"})
    async with at_work(client, handlers):
        outer = await client.jobs.submit(flow(call={"type": "workflow", "workflow": "one"}))
        await client.jobs.wait(outer.id)
    assert [each.subject_ids for each in await client.audit(verb="submit")] == [(outer.id,)]


async def test_the_message_of_a_change_is_its_reason_unless_another_is_given(client: weft.Client) -> None:
    await client.workflows.push(FLOW, message="first")
    with client.because("ticket 4711"):
        await client.workflows.patch("etl", set={"nodes.fetch.params.size": 2}, message="larger")
    await client.cancel((await client.enqueue("a")).id, reason="ordered twice")
    assert [each.reason for each in await client.audit()] == ["ordered twice", "ticket 4711", "first"]


async def test_a_reason_has_as_many_signs_as_its_characters_take_and_no_more(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    longest = "%F0%9F%8C%BB" * 500
    for name, reason, status in (("mail", longest, 200), ("post", longest + "x", 422), ("post", "x" * 6001, 422)):
        answer = await http.post("/api/v1/queues", json={"name": name}, headers={"weft-reason": reason})
        assert (answer.status_code, answer.json().get("field")) == (status, "weft-reason" if status == 422 else None)
    assert (await client.audit())[0].reason == "\N{SUNFLOWER}" * 500
    assert [each.name for each in await client.queues()] == ["default", "mail"]


async def test_a_reason_that_cannot_be_kept_is_refused_and_nothing_is_done(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    for reason, field in (("%FF", "weft-reason"), ("%00", "reason"), ("x" * 501, "reason")):
        answer = await http.post("/api/v1/queues", json={"name": "mail"}, headers={"weft-reason": reason})
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    with pytest.raises(weft.InvalidInput, match="reason"), client.because(""):
        pass
    assert [each.name for each in await client.queues()] == ["default"]
