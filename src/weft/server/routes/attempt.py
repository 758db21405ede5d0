"""The routes by which a running task saves its steps, makes further tasks and writes its log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
from fastapi import APIRouter

from weft.contract.logs import Logs, LogsTold
from weft.contract.protocol import (
    Await,
    Checkpoint,
    DropStep,
    FindOutput,
    FindStep,
    GoOn,
    Held,
    Log,
    Metrics,
    Spawn,
    Step,
)
from weft.contract.protocol_answers import Awaited, FoundOutput, FoundStep, Lent, LogTold, MayGoOn, Spawned, Taken, Told
from weft.core.checks import RESERVED, check_handler, check_name, check_queue
from weft.core.errors import InvalidInput, LeaseLost, NotFound, UnknownQueue
from weft.queue import blobs, loans, look, remote_workers
from weft.queue.cache import Keys
from weft.queue.retry import Retry
from weft.queue.steps import Fence
from weft.server.acting import Caller, act
from weft.server.cached import key_for
from weft.server.values import value_of
from weft.worker.answers import AWAIT_TASKS, SPAWN
from weft.worker.caching import Caching
from weft.worker.logs import heading_of, local_log, part_of
from weft.worker.output_cache import OutputCache

router = APIRouter()
_HELD = {"task_id": "7340085817581570", "lease_token": "7340085817581568.1"}


async def _answer(caller: Caller, fence: Fence, verb: str, arguments: dict[str, Any]) -> Any:
    return await caller.answers.answer(fence, verb, arguments, lambda: False)


def _checked(name: str, field: str) -> str:
    if check_name(name, field).startswith("@"):
        raise InvalidInput(field, RESERVED)
    return name


@act(router, "/v1/task/step", Step, Told, {**_HELD, "name": "charge", "data": {"order": 7}, "took": 1.5})
async def save_step(caller: Caller, asked: Step) -> dict[str, Any]:
    """Keep what a step returned: a later attempt finds it, and need not do it again."""
    data = await value_of(caller, asked.task_id, asked.blob, asked.data)
    said = {"name": _checked(asked.name, "name"), "data": data, "took": asked.took or 0.0}
    await _answer(caller, await caller.fence(asked), "save_step", said)
    return {}


@act(router, "/v1/task/checkpoint", Checkpoint, Told, {**_HELD, "phase": "copy", "data": {"blocks": 300}})
async def save_checkpoint(caller: Caller, asked: Checkpoint) -> dict[str, Any]:
    """Keep what is needed to go on after a phase, over what was kept for it before."""
    data = await value_of(caller, asked.task_id, asked.blob, asked.data)
    said = {"name": _checked(asked.phase, "phase"), "data": data, "took": None}
    await _answer(caller, await caller.fence(asked), "save_step", said)
    return {}


@act(router, "/v1/task/step/load", FindStep, FoundStep, {**_HELD, "name": "charge"})
async def load_step(caller: Caller, asked: FindStep) -> dict[str, Any]:
    """Return a step or checkpoint that an attempt of the task has kept, by its name, or the last of all."""
    await caller.holds(asked)
    name = None if asked.name is None else _checked(asked.name, "name")
    found = await _answer(caller, await caller.fence(asked), "load_step", {"name": name})
    return {"step": None if found is None else {**found, "data": orjson.Fragment(found["data"])}}


@act(router, "/v1/task/step/drop", DropStep, Told, {**_HELD, "name": "copy"})
async def drop_step(caller: Caller, asked: DropStep) -> dict[str, Any]:
    """Drop a step or checkpoint, so that it is done again."""
    await _answer(caller, await caller.fence(asked), "drop_step", {"name": _checked(asked.name, "name")})
    return {}


@act(router, "/v1/task/metrics", Metrics, Told, {**_HELD, "data": {"rows": 1200}})
async def save_metrics(caller: Caller, asked: Metrics) -> dict[str, Any]:
    """Keep what an attempt has measured, over what it has before."""
    data = await value_of(caller, asked.task_id, asked.blob, asked.data)
    await _answer(caller, await caller.fence(asked), "save_metrics", {"data": data})
    return {}


@act(
    router, "/v1/task/spawn", Spawn, Spawned, {**_HELD, "call": "=a.png", "handler": "resize", "params": {"path": "a"}}
)
async def spawn(caller: Caller, asked: Spawn) -> dict[str, Any]:
    """Make a further task of the job; the same call of a later attempt is told the same task."""
    own = caller.who.queues
    if own is not None and asked.queue not in own:
        raise UnknownQueue(asked.queue, own)
    params = await value_of(caller, asked.task_id, asked.blob, asked.params, "params")
    said = {
        "call": asked.call,
        "handler": check_handler(asked.handler),
        "queue": check_queue(asked.queue),
        "params": params,
        "priority": asked.priority,
        "max_attempts": asked.max_attempts,
        "retry": None if asked.retry is None else Retry(**asked.retry.model_dump()).to_json(),
        "timeout": asked.timeout,
        "heartbeat_timeout": asked.heartbeat_timeout,
        "concurrency_key": asked.concurrency_key,
        "allow_failure": asked.allow_failure,
    }
    made = await _answer(caller, await caller.fence(asked), SPAWN, said)
    return {"task_id": made["id"], "has_key": made["has_key"]}


@act(router, "/v1/task/await", Await, Awaited, {**_HELD, "ids": ["7340085817581571"], "wait": 30})
async def await_tasks(caller: Caller, asked: Await) -> dict[str, Any]:
    """Wait until tasks of the org have ended, and return how; null when one of them has not in that time.

    Meanwhile the task rests: it takes no slot of its queue, and when it goes on there is one for it. After null it
    still rests, until it asks to go on.
    """
    claim = await caller.holds(asked)
    seat = await caller.seat(asked.lease_token.worker_id)
    database = caller.database
    queues = None if caller.who.queues is None else list(seat.found.queues)
    own = await database.read(lambda conn: remote_workers.of_org(conn, caller.who.org_id, asked.ids, queues, claim.id))
    for task_id in asked.ids:
        if task_id not in own:
            raise NotFound("task", task_id)
    fence = Fence(asked.lease_token.worker_id, claim.id, claim.attempt)
    await seat.rest(claim)
    try:
        async with asyncio.timeout(asked.wait):
            found = await _answer(caller, fence, AWAIT_TASKS, {"ids": asked.ids})
            if not asked.keeps_resting:
                await seat.go_on(claim)
    except TimeoutError:
        return {"ended": None}
    await caller.check_again()
    return {"ended": [{**each, **{name: _raw(each[name]) for name in ("error", "output")}} for each in found]}


@act(router, "/v1/task/go-on", GoOn, MayGoOn, _HELD)
async def go_on(caller: Caller, asked: GoOn) -> dict[str, Any]:
    """Wait until a task that has rested may go on, within the limit of its queue."""
    claim = await caller.holds(asked)
    try:
        async with asyncio.timeout(asked.wait):
            await (await caller.seat(asked.lease_token.worker_id)).go_on(claim)
    except TimeoutError:
        return {"may": False}
    return {"may": True}


@act(router, "/v1/task/lend", Held, Lent, _HELD)
async def lend(caller: Caller, asked: Held) -> dict[str, Any]:
    """Give back the slot of the task's concurrency key while it waits for tasks that it made."""
    return {"lent": await caller.answers.lending.lend(await caller.fence(asked), lambda: False)}


@act(router, "/v1/task/take", Held, Taken, _HELD)
async def take(caller: Caller, asked: Held) -> dict[str, Any]:
    """Take a slot of the task's concurrency key again; if there is none, it is next in line, and is told by news."""
    fence = await caller.fence(asked)
    taken = await caller.database.run(lambda conn: loans.take(conn, fence))
    if taken is None:
        raise LeaseLost(fence.task_id)
    return {"taken": taken}


def _raw(text: str | None) -> Any:
    return None if text is None else orjson.Fragment(text)


@act(router, "/v1/task/log", Log, LogTold, {**_HELD, "offset": 0, "text": "began\n"})
async def append_log(caller: Caller, asked: Log) -> dict[str, Any]:
    """Append what an attempt has printed from an offset on; what is there already is passed over."""
    told = await _appended(caller, [asked])
    if told["refused"]:
        raise LeaseLost(asked.task_id)
    return {"size": told["sizes"][str(asked.task_id)]}


@act(router, "/v1/task/logs", Logs, LogsTold, {"tasks": [{**_HELD, "offset": 0, "text": "began\n"}]})
async def append_logs(caller: Caller, asked: Logs) -> dict[str, Any]:
    """Append what several attempts of a worker have printed, each from an offset on."""
    return await _appended(caller, asked.tasks)


async def _appended(caller: Caller, logs: Sequence[Log]) -> dict[str, Any]:
    """Append to logs of attempts that are or were a worker's own; return how long each is, and what is another's."""
    fences = [await caller.fence(each) for each in logs]
    if len({fence.worker_id for fence in fences}) > 1:
        raise InvalidInput("tasks", "are of several workers: send what one holds by itself")
    leases, worker_id = [(fence.task_id, fence.attempt) for fence in fences], fences[0].worker_id
    if len(dict(leases)) < len(leases):
        raise InvalidInput("tasks", "name one of them twice: send what it has printed at once")
    own = await caller.database.read(lambda conn: remote_workers.had_among(conn, worker_id, leases))
    sizes: dict[str, int] = {}
    for each, fence in zip(logs, fences, strict=True):
        if (fence.task_id, fence.attempt) in own:
            sizes[str(fence.task_id)] = await _append(caller, each, fence)
    return {"sizes": sizes, "refused": [str(task_id) for task_id, _ in leases if str(task_id) not in sizes]}


async def _append(caller: Caller, asked: Log, fence: Fence) -> int:
    state, settings = caller.state, caller.state.client.settings
    data = asked.text.encode("utf-8", "replace")
    size = await asyncio.to_thread(state.logs.append, fence.task_id, fence.attempt, asked.offset, data)
    if asked.is_last and settings.log_upload:
        part = part_of(await local_log(settings, fence.task_id) or b"", fence.attempt)
        if part is not None:
            # As workers with a database copy it: the copies of all attempts are read one after the other.
            part = heading_of(fence.attempt, has_text=True) + part
            digest, length = await state.blobs.put(part), len(part)
            await caller.database.run(lambda conn: look.add_log(conn, fence.task_id, fence.attempt, digest, length))
    return size


@act(router, "/v1/task/cached", FindOutput, FoundOutput, {**_HELD, "key": "0" * 64})
async def find_output(caller: Caller, asked: FindOutput) -> dict[str, Any]:
    """Return an output that an earlier task of the same key has made, if one serves; note why none does.

    Workers whose tokens are of the same queues share outputs, and so do all whose tokens are of all queues.
    """
    claim = await caller.holds(asked)
    within = None if asked.within is None else timedelta(seconds=asked.within)
    kept = OutputCache(caller.database, caller.state.blobs)
    keys = Keys(key_for(caller.who, asked.key), key_for(caller.who, asked.args or asked.key))
    found = await kept.find(claim, keys, Caching(within, asked.takes))
    if found is None:
        return {"output": None, "root": None, "entry": None}
    # From now on the task refers to it, and so may be completed with it.
    await caller.database.run(lambda conn: blobs.keep(conn, [(claim.id, found[0])]))
    output, reuse = found
    return {"output": output, "root": str(reuse.root), "entry": None if reuse.entry is None else str(reuse.entry)}
