"""Jobs that are run again: what has not changed keeps its output, the rest runs, and the plan says so before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from engine_scene import WAITING, MakeClient, until

import weft
from weft.orchestration import Task
from weft.worker.registry import Registry


class Ledger:
    """Handlers that note what they were given; some fail until they are mended."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.given: list[Any] = []
        self.broken: list[Any] = []
        self.registry.task(name="say", retry=0)(self.say)
        self.registry.task(name="square", retry=0)(self.square)

    async def say(self, value: Any = None) -> Any:
        self.given.append(value)
        if value in self.broken:
            raise ValueError(f"{value} is broken")
        return value

    async def square(self, value: int) -> int:
        self.given.append(value)
        if value in self.broken:
            raise ValueError(f"{value} is broken")
        return value * value

    def taken(self) -> list[Any]:
        given, self.given = self.given, []
        return given


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@asynccontextmanager
async def at_work(client: weft.Client, ledger: Ledger) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=ledger.registry), weft.Orchestrator(client=client):
        yield


async def ended(client: weft.Client, job_id: int) -> weft.Job:
    return await client.jobs.wait(job_id, timeout=30)


def say(value: Any, following: str) -> dict[str, Any]:
    return {"handler": "say", "params": {"value": value}, "next": following}


def chain(**inputs: Any) -> dict[str, Any]:
    return {
        "workflow_id": "chain",
        "inputs": {"name": {"type": "string", "default": "ann"}, "last": {"type": "string", "default": "end"}},
        "nodes": {
            "START": {"type": "start", "next": "a"},
            "a": say("a", "b"),
            "b": say("{{ inputs.name }} after {{ nodes.a.output }}", "c"),
            "c": say("{{ inputs.last }}: {{ nodes.b.output }}", "END"),
            "END": {"type": "end", "output": "{{ nodes.c.output }}"},
        },
    }


TREE = {
    "workflow_id": "tree",
    "inputs": {"count": {"type": "integer", "default": 4}},
    "on_failure": "finish_independent",
    "nodes": {
        "START": {"type": "start", "next": "first"},
        "first": say("{{ inputs.count }}", "route"),
        "route": {
            "type": "conditional", "condition_field": "{{ nodes.first.output }}",
            "branches": [{"condition": "> 100", "next": "never"}, {"default": True, "next": "each"}],
        },
        "never": say("never", "END"),
        "each": {
            "type": "fan_out", "items": "{{ range(inputs.count) | list }}",
            "task": {"handler": "square", "params": {"value": "{{ item }}"}}, "next": "all",
        },
        "all": {"type": "fan_in", "next": "last"},
        "last": say("{{ nodes.all.output.results }}", "END"),
        "END": {"type": "end", "output": "{{ nodes.last.output }}"},
    },
}  # fmt: skip


async def test_what_failed_runs_again_and_the_rest_keeps_its_output(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ledger.broken = ["ann after a"]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain())).id)
        assert (job.state, ledger.taken()) == ("failed", ["a", "ann after a"])
        ledger.broken = []
        plan = await client.jobs.plan_rerun(job.id, failed=True)
        again = await client.jobs.rerun(job.id, failed=True)
        done = await ended(client, again.id)
    assert (done.state, done.result, done.rerun_of) == ("completed", "end: ann after a", job.id)
    assert ledger.taken() == ["ann after a", "end: ann after a"]
    assert again.plan == plan
    assert [(step.node, step.action, step.why) for step in plan.steps] == [
        ("a", "keep", "nothing about it has changed"),
        ("b", "run", "it was dead (error)"),
        ("c", "run", "it comes after b, which runs"),
        ("END", "run", "it is the end of the job"),
    ]
    nodes = {node.node: node for node in await client.jobs.nodes(again.id)}
    assert (nodes["a"].state, nodes["a"].reason, nodes["a"].attempt) == ("completed", "kept", 0)
    assert nodes["a"].kept_id == plan.steps[0].task_id
    assert nodes["a"].code_version == ledger.registry.code_versions()["say"]
    assert (await client.jobs.show(job.id)).state == "failed"
    assert await conn.fetchval("select count(*) from weft.task") == 0


async def test_a_job_about_which_nothing_has_changed_runs_nothing(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(TREE)).id)
        ledger.taken()
        done = await ended(client, (await client.jobs.rerun(job.id)).id)
        more = await ended(client, (await client.jobs.rerun(done.id)).id)
    assert (ledger.taken(), done.result, more.result) == ([], [0, 1, 4, 9], [0, 1, 4, 9])
    states = {node.node: (node.state, node.reason) for node in await client.jobs.nodes(more.id)}
    assert states["never"] == ("skipped", "branch_not_taken")
    assert states["each"] == states["all"] == states["route"] == ("completed", "kept")


async def test_a_node_that_is_asked_for_runs_with_all_that_comes_after_it(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(TREE)).id)
        ledger.taken()
        again = await client.jobs.rerun(job.id, from_node="all")
        assert (await ended(client, again.id)).result == [0, 1, 4, 9]
        assert (ledger.taken(), again.plan.nodes("run")) == ([[0, 1, 4, 9]], ["all", "last", "END"])
        again = await client.jobs.rerun(again.id, from_node=["each"])
        assert (await ended(client, again.id)).result == [0, 1, 4, 9]
        assert sorted(ledger.taken()[:4]) == [0, 1, 2, 3]
    with pytest.raises(weft.InvalidInput, match=r"no node 'eech' that runs. Did you mean 'each'"):
        await client.jobs.rerun(job.id, from_node="eech")


async def test_only_those_items_of_a_fan_out_run_that_did_not_complete(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ledger.broken = [1, 2]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(TREE)).id)
        ledger.taken()
        ledger.broken = [2]
        first = await client.jobs.rerun(job.id, failed=True)
        assert (await ended(client, first.id)).state == "failed"
        assert sorted(ledger.taken()) == [1, 2]
        ledger.broken = []
        second = await client.jobs.rerun(first.id)
        done = await ended(client, second.id)
        assert sorted(map(str, ledger.taken())) == ["2", "[0, 1, 4, 9]"]
        third = await client.jobs.rerun(second.id, from_node="last")
        assert (await ended(client, third.id)).result == done.result == [0, 1, 4, 9]
        assert ledger.taken() == [[0, 1, 4, 9]]
    steps = {step.node: step for step in first.plan.steps}
    assert steps["each"].why == "2 of its items did not complete; the 2 that did keep their outputs"
    assert {step.node: step.items_kept for step in third.plan.steps}["each"] == 4
    # By reference: the outputs are where they were made, once.
    assert await conn.fetchval("select count(*) from weft.task_done where parent_id is not null") == 4 + 2 + 1


async def test_changed_inputs_run_what_takes_them(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain())).id)
        ledger.taken()
        again = await client.jobs.rerun(job.id, inputs={"last": "fin"})
        done = await ended(client, again.id)
        assert (done.result, ledger.taken()) == ("fin: ann after a", ["fin: ann after a"])
        assert done.inputs == {"name": "ann", "last": "fin"}
        with pytest.raises(weft.InvalidInput, match="lost"):
            await client.jobs.rerun(job.id, inputs={"lost": 1})
    assert {step.node: step.why for step in again.plan.steps}["c"] == "it takes the input last, which has changed"


async def test_another_version_runs_what_has_changed(client: weft.Client, ledger: Ledger) -> None:
    await client.workflows.push(chain())
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit("chain")).id)
        ledger.taken()
        await client.workflows.patch("chain", set={"nodes.c.params.value": "new", "nodes.a.timeout_seconds": 60})
        same = await client.jobs.plan_rerun(job.id)
        assert same.nodes("run") == ["END"]
        again = await client.jobs.rerun(job.id, on="chain")
        done = await ended(client, again.id)
    assert (done.result, ledger.taken(), again.plan.nodes("keep")) == ("new", ["new"], ["a", "b"])
    assert (done.base_ref, done.version_hash == job.version_hash) == ("chain/main", False)
    assert {step.node: step.why for step in again.plan.steps}["c"] == "its definition has changed, or what leads to it"
    assert (job.tag_positions["chain/main"]["version"], done.tag_positions["chain/main"]["version"]) == (1, 2)


async def test_code_that_has_changed_runs_unless_only_what_failed_is_asked_for(
    client: weft.Client, ledger: Ledger
) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(TREE)).id)
    registry, given = Registry(), []

    @registry.task(name="square")
    async def square(value: int) -> int:
        given.append(value)
        return value * value * value

    registry.task(name="say")(ledger.say)
    plan = await client.jobs.plan_rerun(job.id, registry=registry)
    assert {step.node: step.why for step in plan.steps}["each"] == "the code of square has changed"
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        assert (await client.jobs.plan_rerun(job.id, failed=True)).nodes("run") == ["END"]
        assert await client.jobs.plan_rerun(job.id) == plan
        done = await ended(client, (await client.jobs.rerun(job.id)).id)
    assert (done.result, sorted(given)) == ([0, 1, 8, 27], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("org", "state", "lease", "counts"),
    [
        (1, "active", "1 hour", True),
        (1, "stopped", "1 hour", False),
        (1, "active", "-1 hour", False),
        (2, "active", "1 hour", False),
        (2, "stopped", "-1 hour", False),
    ],
)
async def test_the_code_that_counts_is_that_of_live_workers_of_the_org(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record], org: int, state: str, lease: str,
    counts: bool,
) -> None:  # fmt: skip
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain())).id)
        if org == 2:
            await conn.execute("update weft.worker set state = 'stopped'")
        worker_id = await conn.fetchval(
            """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers, state)
               values ($1, weft.now() + $2::text::interval, 1, 1, 'there', '0', '{}', '{say}', $3) returning id""",
            *(org, lease, state),
        )
        await conn.execute(
            "insert into weft.worker_code (worker_id, org_id, handler, code) values ($1, $2, 'say', '\\x00')",
            *(worker_id, org),
        )
        plan = await client.jobs.plan_rerun(job.id)
    assert ("a" in plan.nodes("run")) == counts


async def test_a_workflow_as_a_node_is_kept_as_a_whole_or_runs(client: weft.Client, ledger: Ledger) -> None:
    await client.workflows.push(chain())
    outer = {
        "workflow_id": "outer",
        "nodes": {
            "START": {"type": "start", "next": "call"},
            "call": {"type": "workflow", "workflow": "chain", "inputs": {"name": "bob"}, "next": "after"},
            "after": say("{{ nodes.call.output }}", "END"),
            "END": {"type": "end", "output": "{{ nodes.after.output }}"},
        },
    }
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(outer)).id)
        ledger.taken()
        kept = await ended(client, (await client.jobs.rerun(job.id, from_node="after")).id)
        assert (kept.result, ledger.taken()) == ("end: bob after a", ["end: bob after a"])
        await client.workflows.patch("chain", set={"nodes.c.params.value": "new"})
        assert (await client.jobs.plan_rerun(kept.id)).nodes("keep") == ["call", "after"]
        again = await client.jobs.rerun(kept.id, on=outer)
        done = await ended(client, again.id)
    assert {step.node: step.why for step in again.plan.steps}["call"] == "the workflow chain is at another version"
    assert (done.result, ledger.taken()) == ("new", ["a", "bob after a", "new", "new"])


async def test_a_job_that_goes_on_is_not_run_again(client: weft.Client) -> None:
    handle = await client.jobs.submit(chain())
    with pytest.raises(weft.StateConflict, match="rerun"):
        await client.jobs.rerun(handle.id)
    with pytest.raises(weft.NotFound):
        await client.jobs.plan_rerun(1)


async def test_whoever_is_told_of_a_job_is_told_of_the_one_that_runs_it_again(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain(), priority=7)).id)
    await conn.execute("update weft.job_done set callback_url = 'https://example.com/' where id = $1", job.id)
    again = await client.jobs.rerun(job.id)
    row = await conn.fetchrow("select callback_url, rank, rerun_of from weft.job where id = $1", again.id)
    assert row is not None
    assert tuple(row) == ("https://example.com/", -7, job.id)


async def test_a_known_key_runs_nothing_again(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain())).id)
        first = await client.jobs.rerun(job.id, idempotency_key="once")
        again = await client.jobs.rerun(job.id, idempotency_key="once")
    assert (again.id, again.created, first.created) == (first.id, False, True)


async def test_many_are_run_again_once_each(client: weft.Client, ledger: Ledger) -> None:
    ledger.broken = ["ann after a"]
    async with at_work(client, ledger):
        for _ in range(3):
            await ended(client, (await client.jobs.submit(chain(), labels={"team": "data"})).id)
        await ended(client, (await client.jobs.submit(chain(), {"name": "bob"})).id)
        assert await client.jobs.rerun_all(workflow_id="chain", dry_run=True) == 3
        assert await client.jobs.rerun_all(labels={"team": "web"}, dry_run=True) == 0
        assert await client.jobs.rerun_all(limit=1) == 1
        counts = await asyncio.gather(*(client.jobs.rerun_all(labels={"team": "data"}, limit=2) for _ in range(2)))
        assert sum(counts) >= 2
    jobs = await client.jobs.list(labels={"team": "data"})
    assert len(jobs) >= 6
    reruns = [(await client.jobs.show(job.id)).rerun_of for job in jobs]
    assert len([each for each in reruns if each]) == len({each for each in reruns if each})
    with pytest.raises(weft.InvalidInput, match="only what has ended"):
        await client.jobs.rerun_all(state="running")


async def test_by_a_known_key_no_job_is_run_again_that_the_first_call_has_made(
    client: weft.Client, ledger: Ledger
) -> None:
    ledger.broken = ["ann after a"]
    async with at_work(client, ledger):
        await ended(client, (await client.jobs.submit(chain())).id)
        counts = []
        for key in ("k", "k", "l"):
            counts.append(await client.jobs.rerun_all(idempotency_key=key))
            for job in await client.jobs.list():
                await ended(client, job.id)
    assert counts == [1, 0, 1]


async def test_who_comes_second_waits_and_finds_that_it_was_done(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ledger.broken = ["a"]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain())).id)
    async with conn.transaction():
        await conn.execute("select pg_advisory_xact_lock(hashtextextended('weft.rerun', $1))", job.id)
        await conn.execute(
            """insert into weft.job (id, org_id, end_id, workflow_id, base_kind, inputs, rerun_of)
               values (weft.next_id(), 1, 1, 'chain', 'version', '{}', $1)""",
            job.id,
        )
        second = asyncio.create_task(client.jobs.rerun_all())
        await until(lambda: client.database.read(lambda other: other.fetchval(WAITING, "%weft.rerun%")))
    assert await second == 0


async def test_parts_of_other_jobs_and_what_a_call_makes_itself_are_not_run_again(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ledger.broken = ["ann after a"]
    await client.workflows.push(chain())
    outer = {
        "workflow_id": "outer",
        "nodes": {
            "START": {"type": "start", "next": "call"},
            "call": {"type": "workflow", "workflow": "chain", "next": "END"},
            "END": {"type": "end"},
        },
    }
    async with at_work(client, ledger):
        await ended(client, (await client.jobs.submit(outer)).id)
        assert await client.jobs.rerun_all() == 1
        (again,) = [job.id for job in await client.jobs.list() if job.workflow_id == "outer"][:1]
        await ended(client, again)
    assert await conn.fetchval("select count(*) from weft.jobs where workflow_id = 'outer'") == 2
    assert await client.jobs.rerun_all(dry_run=True) == 1
    await conn.execute(
        """insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent,
             workflow_id, base_kind, inputs, snapshot_id)
           select weft.first_id_at(weft.now() + interval '1 hour'), 1, 1, weft.now(), weft.now(), 'failed', 0, false,
             'later', 'version', '{}', max(d.snapshot_id) from weft.job_done d"""
    )
    assert await client.jobs.rerun_all(since=timedelta(hours=1), dry_run=True) == 1
    assert await client.jobs.rerun_all(since=datetime.now(UTC) + timedelta(hours=1), dry_run=True) == 0


async def test_jobs_of_another_org_are_not_run_again(
    client: weft.Client, ledger: Ledger, make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    other = await make_client(org="acme")
    ledger.broken = ["a"]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain(), labels={"a": "b"})).id)
    with pytest.raises(weft.NotFound):
        await other.jobs.rerun(job.id)
    with pytest.raises(weft.NotFound):
        await other.jobs.plan_rerun(job.id)
    assert (await other.jobs.rerun_all(dry_run=True), await other.jobs.list(labels={"a": "b"})) == (0, [])


async def test_outputs_of_items_that_are_gone_are_made_again(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(TREE)).id)
        kept = await ended(client, (await client.jobs.rerun(job.id)).id)
        ledger.taken()
        await conn.execute("delete from weft.task_done where job_id = $1", job.id)
        again = await client.jobs.rerun(kept.id)
        assert (await ended(client, again.id)).result == [0, 1, 4, 9]
    assert {step.node: step.why for step in again.plan.steps}["each"] == "outputs of its items are not there any more"
    assert sorted(ledger.taken()[:4]) == [0, 1, 2, 3]


async def test_what_a_fan_in_gathered_is_there_when_the_job_is_gone_that_made_it(
    client: weft.Client, ledger: Ledger, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    definition = {
        "workflow_id": "join",
        "nodes": {
            "START": {"type": "start", "next": ["a", "b"]},
            "a": say("a", "both"),
            "b": say("b", "both"),
            "both": {"type": "fan_in", "next": "last"},
            "last": say("{{ nodes.both.output.results }}", "END"),
            "END": {"type": "end", "output": "{{ nodes.last.output }}"},
        },
    }
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(definition)).id)
        kept = await ended(client, (await client.jobs.rerun(job.id)).id)
        await conn.execute("delete from weft.task_done where job_id = $1", job.id)
        ledger.taken()
        again = await client.jobs.rerun(kept.id, from_node="last")
        assert (await ended(client, again.id)).result == ["a", "b"]
    assert ledger.taken() == [["a", "b"]]


async def test_large_outputs_are_kept_and_not_collected_with_the_job_that_made_them(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    registry = Registry()

    @registry.task(name="large")
    async def large() -> str:
        return "x" * 300_000

    @registry.task(name="length")
    async def length(text: str) -> int:
        return len(text)

    definition = {
        "workflow_id": "large",
        "nodes": {
            "START": {"type": "start", "next": "one"},
            "one": {"handler": "large", "next": "two"},
            "two": {"handler": "length", "params": {"text": "{{ nodes.one.output }}"}, "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.two.output }}"},
        },
    }
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        job = await ended(client, (await client.jobs.submit(definition)).id)
        again = await client.jobs.rerun(job.id, from_node="two")
        assert (await ended(client, again.id)).result == 300_000
    held = await conn.fetch("select task_id, digest from weft.task_blob b join weft.task_done d on d.id = b.task_id")
    assert len({row["task_id"] for row in held}) == 2
    assert len({row["digest"] for row in held}) == 1


async def test_what_is_asked_for_must_make_sense(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(chain())).id)
    with pytest.raises(weft.InvalidInput, match="on: is tree, and the job is one of chain"):
        await client.jobs.rerun(job.id, on=TREE)
    with pytest.raises(weft.InvalidInput, match="uses: are workflows that another version calls"):
        await client.jobs.rerun(job.id, uses=[TREE])
    for labels in ({"a b": "c"}, {"a": ""}, {"a": 1}, {str(n): "x" for n in range(51)}, "a=b"):
        with pytest.raises(weft.InvalidInput, match="labels"):
            await client.jobs.submit(chain(), labels=labels)  # type: ignore[arg-type]
    with pytest.raises(weft.InvalidInput, match=r"ops\[0\]"):
        await client.jobs.submit(chain(), patch=[{"op": "remove", "path": "/nodes/lost"}])
    with pytest.raises(weft.InvalidDefinition):
        await client.jobs.submit(chain(), patch=[{"op": "remove", "path": "/nodes/END"}])
    assert len(await client.jobs.list()) == 1


async def test_a_patch_changes_one_job_and_no_tag(client: weft.Client, ledger: Ledger) -> None:
    await client.workflows.push(chain())
    ops = [{"op": "replace", "path": "/nodes/c/params/value", "value": "patched"}]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit("chain", patch=ops)).id)
        twin = await ended(client, (await client.jobs.submit("chain", patch=ops)).id)
        plain = await ended(client, (await client.jobs.submit("chain")).id)
        again = await client.jobs.rerun(plain.id, on="chain")
    assert (job.result, job.patch, plain.result) == ("patched", ops, "end: ann after a")
    assert (job.base_kind, job.base_ref, job.snapshot_id) == ("tag", "chain/main", twin.snapshot_id)
    assert (await client.workflows.tag("chain")).version == 1
    assert again.plan.nodes("run") == ["END"]
    assert await client.workflows.fsck() == []


async def test_a_graph_put_together_in_python_is_run_again(client: weft.Client, ledger: Ledger) -> None:
    one, other = Task("say", {"value": "one"}, name="one"), Task("say", {"value": "other"}, name="other")
    last = Task("say", {"value": "last"}, name="last").depends_on([one, other])
    ledger.broken = ["other"]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit_graph("drawn", last, on_failure="finish_independent")).id)
        assert (job.state, sorted(ledger.taken())) == ("failed", ["one", "other"])
        ledger.broken = []
        again = await client.jobs.rerun(job.id, failed=True)
        assert (await ended(client, again.id)).state == "completed"
    assert sorted(ledger.taken()) == ["last", "other"]


async def test_a_task_runs_again_of_which_something_that_it_made_failed(client: weft.Client, ledger: Ledger) -> None:
    @ledger.registry.task(name="make")
    async def make(ctx: weft.Context) -> int:
        await ctx.spawn("say", {"value": "made"}, max_attempts=1)
        return 1

    definition = {
        "workflow_id": "making",
        "nodes": {
            "START": {"type": "start", "next": "make"},
            "make": {"handler": "make", "next": "after"},
            "after": say("after", "END"),
            "END": {"type": "end"},
        },
    }
    ledger.broken = ["made"]
    async with at_work(client, ledger):
        job = await ended(client, (await client.jobs.submit(definition)).id)
        assert (job.state, ledger.taken()) == ("failed", ["made"])
        ledger.broken = []
        again = await client.jobs.rerun(job.id, failed=True)
        assert (await ended(client, again.id)).state == "completed"
        assert ledger.taken() == ["made", "after"]
        more = await client.jobs.rerun(again.id, from_node="after")
        assert (await ended(client, more.id)).state == "completed"
    assert ledger.taken() == ["after"]
    assert {step.node: step.why for step in again.plan.steps}["make"] == "a task that it made did not complete"


async def test_a_graph_without_a_definition_is_not_run_again_and_holds_up_no_other(
    client: weft.Client, ledger: Ledger
) -> None:
    ledger.broken = ["one"]
    async with at_work(client, ledger):
        # A node of that name is what no definition can have.
        jobs = [
            await ended(client, (await client.jobs.submit_graph("one", Task("say", {"value": "one"}, name=name))).id)
            for name in ("START", "one")
        ]
        with pytest.raises(weft.InvalidInput, match="a graph of which no definition was kept"):
            await client.jobs.rerun(jobs[0].id)
        assert await client.jobs.rerun_all() == 1
        newest, *_ = await client.jobs.list()
        assert (await client.jobs.show(newest.id)).rerun_of == jobs[1].id
