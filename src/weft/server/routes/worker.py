"""The routes by which workers without a database of their own register, live and leave."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from weft.contract.protocol import Beat, ByWorker, Holdings, Leave, Listen, Register
from weft.contract.protocol_answers import BeatTold, ClaimTold, News, Told, WorkerTold
from weft.core.checks import check_handler, check_queues
from weft.core.errors import UnknownQueue
from weft.core.server_errors import WorkerLost
from weft.queue import remote_workers, work, workers
from weft.queue.audit import acting_from
from weft.server.acting import Caller, act
from weft.server.claims import told
from weft.server.credentials import origin_of
from weft.worker import registration

router = APIRouter()
_WORKER = "7340085817581568"
_HELD = {"task_id": "7340085817581570", "lease_token": f"{_WORKER}.1"}


@act(router, "/v1/worker/register", Register, WorkerTold, {"queues": ["default"], "handlers": ["email:send"]})
async def register(caller: Caller, asked: Register) -> dict[str, Any]:
    """Enter a worker in the registry, with its queues and the handlers it knows; queues that do not exist are made."""
    names = list(dict.fromkeys(check_queues(asked.queues)))
    own = caller.who.queues
    for name in names:
        if own is not None and name not in own:
            raise UnknownQueue(name, own, "queues")
    known = [check_handler(name, f"handlers[{place}]") for place, name in enumerate(asked.handlers)]
    handlers = list(dict.fromkeys(known))
    # Others than these too: whatever function of its modules a task names may become a handler.
    for name in asked.codes:
        check_handler(name, "codes")
    settings, token_id = caller.state.client.settings, caller.who.token_id
    assert token_id is not None  # who has the role of a worker has it by a token

    async def enter(conn: Any) -> tuple[int, list[int]]:
        worker_id, queue_ids = await registration.enter(
            conn, caller.who.org_id, names, handlers, lease=settings.lease_time, concurrency=asked.concurrency,
            version=asked.version, codes=asked.codes, hostname=asked.hostname, pid=asked.pid, actor=caller.who.actor,
        )  # fmt: skip
        await remote_workers.bind(conn, worker_id, token_id)
        return worker_id, queue_ids

    with acting_from(origin_of(caller.request)):  # queues that are made are an act
        worker_id, queue_ids = await caller.database.run(enter)
    return {
        "worker_id": str(worker_id),
        "queues": {name: str(queue_id) for name, queue_id in zip(names, queue_ids, strict=True)},
        "lease_seconds": settings.lease_time.total_seconds(),
        "heartbeat_seconds": settings.heartbeat_interval.total_seconds(),
        "inline_limit": settings.inline_limit,
        "value_limit": settings.value_limit,
        "body_limit": settings.server_body_limit,
    }


@act(router, "/v1/worker/heartbeat", Beat, BeatTold, {"worker_id": _WORKER, "tasks": [_HELD]})
async def heartbeat(caller: Caller, asked: Beat) -> dict[str, Any]:
    """Say that a worker lives, by which it keeps all that it holds; told which of its tasks it does not hold."""
    seat = await caller.seat(asked.worker_id)
    pulse = await caller.state.seats.beat(
        seat, busy=asked.busy, completed=asked.completed, failed=asked.failed, is_blocked=asked.is_blocked
    )
    leases = [(held.task_id, held.lease_token.attempt) for held in asked.tasks]
    database = caller.database
    held = await database.read(lambda conn: remote_workers.held_among(conn, asked.worker_id, leases)) if leases else {}
    return {
        "lease_seconds": caller.state.client.settings.lease_time.total_seconds(),
        "held": pulse.held,
        "lost": [str(task_id) for task_id, _ in leases if task_id not in held],
    }


@act(router, "/v1/worker/deregister", Leave, Told, {"worker_id": _WORKER})
async def deregister(caller: Caller, asked: Leave) -> dict[str, Any]:
    """Take a worker out of the registry, and give back all that it holds; one that has left already has left."""
    try:
        seat = await caller.seat(asked.worker_id)
    except WorkerLost:
        return {}
    if asked.is_lost:
        await caller.database.run(lambda conn: workers.abandon(conn, asked.worker_id))
        caller.state.seats.forget(asked.worker_id)
        return {}
    woken = await caller.database.run(
        lambda conn: registration.leave(conn, asked.worker_id, asked.completed, asked.failed)
    )
    await seat.relay.send(woken)
    caller.state.seats.forget(asked.worker_id)
    return {}


@act(router, "/v1/worker/listen", Listen, News, {"worker_id": _WORKER, "wait": 30})
async def listen(caller: Caller, asked: Listen) -> dict[str, Any]:
    """Wait for news: that there is work, or that a task was cancelled."""
    seat = await caller.seat(asked.worker_id)
    seat.is_new = seat.is_new or asked.is_new
    loop = asyncio.get_running_loop()
    deadline = loop.time() + asked.wait
    while True:
        moment = seat.moment
        messages, is_new = seat.take_news()
        if messages or is_new or seat.is_closed or loop.time() >= deadline:
            return {"messages": messages, "is_new": is_new}
        await seat.pass_of(moment, deadline - loop.time())
        await caller.check_again()


@act(router, "/v1/worker/pass-on", ByWorker, Told, {"worker_id": _WORKER})
async def pass_on(caller: Caller, asked: ByWorker) -> dict[str, Any]:
    """Say that news of work came while there was no room: another worker is told, until this one claims again."""
    seat = await caller.seat(asked.worker_id)
    await seat.relay.pass_on(seat.found.queues)
    return {}


@act(router, "/v1/worker/holdings", Holdings, ClaimTold, {"worker_id": _WORKER})
async def holdings(caller: Caller, asked: Holdings) -> dict[str, Any]:
    """Tell all that a worker holds: among it what was claimed by a request whose answer was lost."""
    seat = await caller.seat(asked.worker_id)

    async def look(conn: Any) -> list[work.Claim]:
        return await work.with_params(conn, await work.held_by(conn, asked.worker_id))

    claims = await caller.database.read(look)
    tasks = await told(caller.state, seat, claims, stored=asked.stored)
    return {"tasks": tasks, "refused": [], "again_in": None}
