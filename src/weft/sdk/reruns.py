"""The part of the client that runs jobs again: what has not changed keeps its output, the rest runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from weft.core.checks import check_id, check_key, check_moment, check_names, check_number, check_span
from weft.core.errors import InvalidInput, StateConflict
from weft.core.ids import CONTROL_QUEUE
from weft.core.json import Json, plain
from weft.flow.document import Document
from weft.flow.identity import node_hashes
from weft.flow.inputs import check_inputs, told_of
from weft.flow.patches import same
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.jobs import adding, grown
from weft.jobs import rerun_reading as reading
from weft.jobs.adhoc import slug
from weft.jobs.items import Item
from weft.jobs.labels import check_labels
from weft.jobs.library import Library, Pins, Planned
from weft.jobs.plan import Plan
from weft.jobs.rerun import RerunPlan, RerunStep, Wanted, check_nodes, plan_steps
from weft.jobs.rerun_reading import EndedJob
from weft.jobs.submit import Kept, NewJob, OutputGone, submit, waits_of
from weft.sdk.graph_calls import GraphCalls

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.history.reading import Materials
    from weft.worker.registry import Registry

# So often what is gone between the plan and the job is planned anew.
_TRIES = 3
_PAGE = 100
_ENDED = ("completed", "failed", "cancelled")


class Rerun(NamedTuple):
    """What `Jobs.rerun` returns: the new job's id, whether this call created it, and what it keeps and runs."""

    id: int
    created: bool
    plan: RerunPlan


@dataclass(frozen=True, slots=True)
class _Wish:
    """How a job is to be run again."""

    nodes: tuple[str, ...]
    failed: bool
    on: Any
    inputs: Mapping[str, Json]
    codes: Mapping[str, str]
    uses: Sequence[Any]


class _Grown(NamedTuple):
    """What was added to a job from outside, what is done about it, its nodes by their tasks, and its priority."""

    added: list[grown.Added]
    decided: list[RerunStep]
    names: dict[int, str]
    priority: int


@dataclass(frozen=True, slots=True)
class _Ready:
    """A job to be made of another."""

    new: NewJob
    known: Planned
    kept: Kept
    plan: RerunPlan
    grown: _Grown

    def added_again(self, ids: Sequence[int]) -> list[Item]:
        """Return the tasks that are added to the new job, of which ``ids`` are the tasks."""
        actions = {step.node: step.action for step in self.plan.steps}
        new = {step.node: id for step, id in zip(self.known.plan.steps, ids, strict=True)}
        places = {old: (new[name], actions[name]) for old, name in self.grown.names.items() if name in new}
        return grown.items_again(self.grown.added, self.grown.decided, places, self.grown.priority)


class Reruns(GraphCalls):
    """What runs jobs again."""

    if TYPE_CHECKING:

        async def _materials(self, library: Library, workflow: Any) -> Materials:
            """Return what a workflow is made of."""

        async def _own(self, library: Library, workflow: Any, uses: Any = ()) -> dict[str, tuple[Materials, Planned]]:
            """Return the workflows that a Python workflow calls."""

    async def _plans(self) -> Library:
        if self._library is None:
            self._library = Library(await self._reader(), lambda: self._session.actor)
        return self._library

    async def plan_rerun(
        self, job_id: int, *, from_node: str | Sequence[str] | None = None, failed: bool = False,
        on: Any = None, uses: Sequence[Any] = (), inputs: Mapping[str, Any] | None = None,
        registry: Registry | None = None,
    ) -> RerunPlan:  # fmt: skip
        """Return what `rerun` would do, node by node: keep its output or run, and why; nothing is written.

        ``registry`` holds the handlers by which it is to run, where no worker has registered them yet. Example::

            for step in (await client.jobs.plan_rerun(job.id, failed=True)).steps:
                print(step.node, step.action, step.why)
        """
        return (
            await self._ready(
                check_id(job_id, "job_id", shown_by="weft jobs list"),
                _wish(from_node, failed, on, uses, inputs, registry),
                None,
            )
        ).plan

    async def rerun(
        self, job_id: int, *, from_node: str | Sequence[str] | None = None, failed: bool = False, on: Any = None,
        uses: Sequence[Any] = (), inputs: Mapping[str, Any] | None = None, registry: Registry | None = None,
        idempotency_key: str | None = None,
    ) -> Rerun:  # fmt: skip
        """Run a job that has ended again, as a new job; nodes about which nothing has changed keep their outputs.

        What counts is a node's definition and those before it, the inputs that it takes, and the code of its handler;
        with ``failed`` not the code. ``from_node`` and all that comes after it runs in any case; ``on`` is another
        version of the workflow, and ``uses`` are workflows that it calls, as in `submit`; ``inputs`` are those that
        are to be others. Example::

            again = await client.jobs.rerun(job.id, failed=True)
            print((await client.jobs.wait(again.id)).state, again.plan.nodes("keep"))
        """
        key = None if idempotency_key is None else check_key(idempotency_key, "idempotency_key")
        wish = _wish(from_node, failed, on, uses, inputs, registry)
        found = await self._rerun(check_id(job_id, "job_id", shown_by="weft jobs list"), wish, key, once=False)
        assert found is not None
        return found

    async def _rerun(self, job_id: int, wish: _Wish, key: str | None, *, once: bool) -> Rerun | None:
        """Run a job again; with ``once`` unless somebody has done so: then it is None."""
        library = await self._plans()

        async def rerun_now() -> Rerun | None:
            return await self._put(await self._ready(job_id, wish, key), once=once)

        for _ in range(_TRIES):
            try:
                return await library.anew_if_gone(rerun_now)
            except OutputGone:
                continue
        raise StateConflict("rerun", job_id, "about to be pruned", _ENDED, "job")

    async def _put(self, ready: _Ready, *, once: bool) -> Rerun | None:
        """Make the job, all of it or nothing; None when there is one ``once`` is enough of."""
        session, org_id, plan = self._session, await self._session.org_id(), ready.known.plan
        lanes = await session._queue_ids(await (await self._plans()).queues(ready.known, ready.new.pins))
        ids = await session.ids.take(1 + len(plan.steps))
        patience = session.settings.job_default_timeout
        addition = await self._addition(ready.added_again(ids[1:]), 0)

        async def write(conn: type_Connection) -> int | None:
            if once:
                await conn.execute(reading.SQL.lock, ready.plan.job_id)
                if await conn.fetchval(reading.SQL.of, org_id, ready.plan.job_id) is not None:
                    return None
            made = await submit(conn, org_id, ready.new, plan, ids, lanes, patience, ready.kept)
            if made == ids[0] and addition.items:
                await adding.add(conn, org_id, made, addition)
            return made

        found = await session.database.run(write)
        if found is None:
            return None
        if found != ids[0]:
            return Rerun(found, False, ready.plan)
        session._hints.send_ids(_first_queues(plan, ready.kept, lanes) | addition.woken)
        return Rerun(ids[0], True, ready.plan)

    async def _ready(self, job_id: int, wish: _Wish, key: str | None) -> _Ready:
        org_id, library = await self._session.org_id(), await self._plans()
        old = await self._read(lambda conn: reading.ended_job(conn, org_id, job_id))
        new, known, artifact_id = await self._onto(old, wish, key)
        first = await library.by_snapshot(old.row["snapshot_id"])
        names = {step.node for step in first.plan.steps}
        before, others = await self._read(lambda conn: reading.nodes_before(conn, org_id, job_id, names))
        added = await self._read(lambda conn: grown.added_tasks(conn, job_id, others))
        check_nodes(wish.nodes, known.plan, [each.node for each in added])
        handlers = {handler for each in (*before.values(), *others.values()) for handler in each.codes}
        codes = await self._read(lambda conn: reading.current_codes(conn, org_id, handlers))
        is_same = old.row["snapshot_id"] == known.snapshot_id
        hashes = [{} if is_same else await self._hashes(id) for id in (old.row["snapshot_id"], artifact_id)]
        wanted = Wanted(
            nodes=wish.nodes, failed_only=wish.failed, changed_inputs=_changed(old.inputs, new.inputs),
            changed_workflows=await _changed_workflows(library, known, old.positions, new.pins),
            old=hashes[0], new=hashes[1], codes={**codes, **wish.codes},
        )  # fmt: skip
        ids = {was.id: name for name, was in before.items()}
        while True:
            steps, kept = plan_steps(known.plan, before, wanted)
            told = [step for step in steps if step is not None]
            decided = grown.decide(added, ids, told, wanted)
            after = grown.followers(added, decided, ids)
            if after.keys() <= wanted.after.keys():
                break
            wanted = replace(wanted, after={**after, **wanted.after})
        plan = RerunPlan(job_id, known.workflow_id, known.version_hash, (*told, *decided))
        return _Ready(new, known, kept, plan, _Grown(added, decided, ids, old.row["priority"]))

    async def _onto(self, old: EndedJob, wish: _Wish, key: str | None) -> tuple[NewJob, Planned, int]:
        """Return the new job, of the same version or of the one that is wished for, and what that was found as."""
        library, row = await self._plans(), old.row
        pins: Pins = old.positions
        base_kind, base_ref, patch = row["base_kind"], row["base_ref"], old.patch
        if row["snapshot_id"] is None:
            raise InvalidInput("job_id", f"job {row['id']} is a graph of which no definition was kept: submit it again")
        if wish.on is None:
            known, artifact_id = await library.by_snapshot(row["snapshot_id"]), row["snapshot_id"]
        else:
            found = await self._materials(library, wish.on)
            known, artifact_id = await library.planned(found), found.row["id"]
            if known.workflow_id not in (row["workflow_id"], slug(row["workflow_id"])):
                raise InvalidInput("on", f"is {known.workflow_id}, and the job is one of {row['workflow_id']}")
            pins, patch = await library.pins(known, found, await self._own(library, wish.on, wish.uses)), None
            base_kind, base_ref = (
                ("tag", found.row["tag"]) if found.row["tag"] else (found.row["kind"], str(found.row["id"]))
            )
        given = {name: value for name, value in old.inputs.items() if name in known.inputs} | dict(wish.inputs)
        values, problems = check_inputs(known.inputs, given)
        if problems:
            raise InvalidInput("inputs", told_of(problems))
        new = NewJob(
            # A graph may be called what no workflow can be.
            row["workflow_id"], values, row["priority"], key, base_kind, base_ref, known.snapshot_id,
            known.version_hash, old.labels, self._session.actor, pins, patch=patch, rerun_of=row["id"],
            callback_url=row["callback_url"], fresh=wish.nodes, is_act=True,
        )  # fmt: skip
        return new, known, artifact_id

    async def _document(self, artifact_id: int) -> dict[str, Any]:
        """Return the whole document of a version."""
        reader = await self._reader()
        return await reader.document(await reader.of(artifact_id))

    async def _hashes(self, artifact_id: int) -> dict[str, str]:
        return node_hashes(sound(check_document(Document(await self._document(artifact_id)))))

    async def rerun_all(
        self, *, state: str | Sequence[str] = "failed", workflow_id: str | None = None,
        since: datetime | timedelta | None = None,
        labels: Mapping[str, str] | None = None, from_node: str | Sequence[str] | None = None, failed: bool = False,
        on: Any = None, uses: Sequence[Any] = (), inputs: Mapping[str, Any] | None = None, limit: int | None = None,
        dry_run: bool = False, idempotency_key: str | None = None, on_progress: Callable[[int], None] | None = None,
    ) -> int:  # fmt: skip
        """Run again all jobs in a state that nobody has run again yet, oldest first; return how many there were.

        ``since`` is when they ended, or how long ago at most. Each is a job of its own, or not at all: after an
        interruption the same call goes on with the rest; with the same ``idempotency_key`` it takes none that was
        submitted after the first such call, such as those that this has made. With ``dry_run`` they are only counted.
        Example::

            print(await client.jobs.rerun_all(workflow_id="etl", failed=True, dry_run=True))
        """
        states = _states([state] if isinstance(state, str) else state)
        span = check_span(since, "since") if isinstance(since, timedelta) else None
        moment = None if since is None or span is not None else check_moment(since, "since")
        most = None if limit is None else check_number(limit, "limit", 1, 1_000_000)
        wanted = orjson.dumps(check_labels(labels)).decode() if labels else None
        wish, org_id = _wish(from_node, failed, on, uses, inputs, None), await self._session.org_id()
        # What this call makes may fail while it goes on, and is not its own affair.
        count, after, last = 0, 0, (await self._session.ids.take(1))[0]
        if idempotency_key is not None and not dry_run:
            key, now = check_key(idempotency_key, "idempotency_key"), last
            last = await self._session.database.run(lambda conn: conn.fetchval(reading.SQL.up_to, org_id, key, now))
        while most is None or count < most:
            room = _PAGE if most is None else min(_PAGE, most - count)
            rows = await self._read(
                lambda conn, after=after, room=room: conn.fetch(  # type: ignore[misc]
                    reading.SQL.candidates, org_id, after, states, workflow_id, moment, span, wanted, last, room
                )
            )
            if not rows:
                break
            for row in rows:
                after = row["id"]
                if dry_run or await self._rerun(after, wish, None, once=True) is not None:
                    count += 1
                    if on_progress is not None:
                        on_progress(count)
        return count


def _wish(
    from_node: str | Sequence[str] | None, failed: bool, on: Any, uses: Sequence[Any],
    inputs: Mapping[str, Any] | None, registry: Registry | None,
) -> _Wish:  # fmt: skip
    if uses and on is None:
        raise InvalidInput("uses", "are workflows that another version calls: name that by `on`, or leave them out")
    nodes = [from_node] if isinstance(from_node, str) else [] if from_node is None else list(from_node)
    codes = {} if registry is None else registry.code_versions()
    given = plain(dict(inputs or {}), "inputs")
    return _Wish(tuple(check_names(nodes, "from_node")), failed, on, given, codes, tuple(uses))


def _changed(old: Mapping[str, Json], new: Mapping[str, Json]) -> set[str]:
    return {
        name
        for name in {*old, *new}
        if (name in old) != (name in new) or not same(old.get(name), new.get(name))
    }  # fmt: skip


async def _changed_workflows(library: Library, known: Planned, old: Pins, new: Pins) -> set[str]:
    """Return the workflows that a version has as nodes and that are at another version, or use one that is."""
    if old is new:
        return set()
    uses: dict[str, frozenset[str]] = {}
    open_ = sorted(known.uses)
    while open_:
        name = open_.pop()
        if name not in uses:
            uses[name] = (await library.pinned(new[name])).uses
            open_ += sorted(uses[name])
    changed = {name for name in uses if name not in old or old[name]["version_hash"] != new[name]["version_hash"]}
    while more := {name for name, used in uses.items() if used & changed} - changed:
        changed |= more
    return changed


def _first_queues(plan: Plan, kept: Kept, lanes: Mapping[str, int]) -> set[int]:
    """Return the queues in which something is ready at once."""
    waits = waits_of(plan, kept)
    firsts = [step for place, step in enumerate(plan.steps) if waits[place] == 0 and place not in kept.froms]
    return {CONTROL_QUEUE if step.is_control else lanes[step.queue or "default"] for step in firsts}


def _states(names: Sequence[str]) -> list[str]:
    found = [name.lower() for name in names]
    for name in found:
        if name not in _ENDED:
            raise InvalidInput("state", f"{name!r} is not one of {', '.join(_ENDED)}: only what has ended is run again")
    return found
