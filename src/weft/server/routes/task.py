"""The routes by which workers claim tasks and settle them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from weft.contract.protocol import ClaimTasks, Complete, Decline, Done, Fail, Failed, Held, HeldTasks, OneOrSeveral
from weft.contract.protocol_answers import ClaimedTask, ClaimTold, Declined, Settled
from weft.core.data_errors import WriteConflict
from weft.core.errors import InvalidInput, LeaseLost, NotFound
from weft.core.json import blob_reference, check_size, encode_plain, size_of
from weft.core.log_lines import add_to_lines
from weft.queue import cache, remote_workers, work
from weft.queue.work import Completed, Ended, Postponed
from weft.server.acting import ACTS, Act, AWorker, Caller, act, lines_name, read, sent
from weft.server.bodies import JsonRoute
from weft.server.cached import key_for
from weft.server.claims import failed, params_of, told, whole
from weft.server.problems import refusals
from weft.server.seats import Seat
from weft.worker import unsuccessful

if TYPE_CHECKING:
    from weft.catalog.model import Principal
    from weft.core.settings import Settings

router = APIRouter(route_class=JsonRoute)
_WORKER = "7340085817581568"
_HELD = {"task_id": "7340085817581570", "lease_token": f"{_WORKER}.1"}
_ERROR = {"type": "ConnectionError", "message": "the mail server does not answer"}


@act(router, "/v1/task/claim", ClaimTasks, ClaimTold, {"worker_id": _WORKER, "limit": 10, "wait": 30})
async def claim(caller: Caller, asked: ClaimTasks) -> dict[str, Any]:
    """Complete tasks and claim others in one go; without any it waits for some, if it may."""
    seat = await caller.seat(asked.worker_id)
    completed = await _completed(caller, seat, asked.completed, "completed")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + asked.wait
    while True:
        moment = seat.moment
        claims, lost = await seat.finish_and_claim(completed, asked.limit)
        tasks = await told(caller.state, seat, claims, stored=asked.stored)
        if asked.limit and not claims and not completed:
            await seat.require_live()
        left = deadline - loop.time()
        # What was completed is told at once: whoever waits for the answer has it to do again otherwise.
        if tasks or completed or asked.limit == 0 or left <= 0 or seat.is_closed:
            again_in = seat.again_in if len(claims) < asked.limit else None
            lines_name(each.id for each in claims)
            if len(claims) == 1 and claims[0].job_id is not None:
                add_to_lines(job_id=str(claims[0].job_id))
            return {"tasks": tasks, "refused": _texts(lost), "again_in": again_in}
        if not claims:
            await seat.pass_of(moment, min(left, seat.again_in))
            await caller.check_again()


@act(router, "/v1/task/complete", Complete, Settled, {**_HELD, "output": {"sent": True}})
async def complete(caller: Caller, asked: Complete) -> dict[str, Any]:
    """Complete one task, or several of one worker; told again it is no news, and a lease that is lost is refused."""
    seat = await _seat_of(caller, asked.tasks)
    _, lost = await seat.finish_and_claim(await _completed(caller, seat, asked.tasks, "tasks"), 0)
    return _settled(asked, lost)


async def _completed(caller: Caller, seat: Seat, tasks: Sequence[Done], field: str) -> list[Completed]:
    """Return outcomes as they are kept; large ones go to the blob storage. Raises for what cannot be one."""
    settings, found = caller.state.client.settings, []
    named = [(done.task_id, done.blob.digest) for done in tasks if done.blob is not None]
    org_id, read = caller.who.org_id, caller.database.read
    known = await read(lambda conn: remote_workers.task_refers_to(conn, org_id, named)) if named else set()
    for place, done in enumerate(tasks):
        where = f"{field}[{place}]"
        if done.lease_token.worker_id != seat.id:
            raise InvalidInput(f"{where}.lease_token", "is of another worker: send what one holds by itself")
        if done.blob is not None:
            if done.task_id not in known:
                raise NotFound("blob", done.blob.digest)
            text = blob_reference(done.blob.digest, await _size_of_json(caller, done.blob.digest, f"{where}.blob"))
        else:
            value = done.output if done.outputs is None else _with_outputs(done, where)
            text = encode_plain(value, f"{where}.output")
            check_size(f"{where}.output", text, settings.value_limit)
            if (size := size_of(text)) > settings.inline_limit:
                text = blob_reference(await caller.state.blobs.put(text.encode()), size)
        found.append(Completed(done.task_id, done.lease_token.attempt, text, _reuse(done, caller.who, settings)))
    return found


async def _size_of_json(caller: Caller, digest: str, field: str) -> int:
    """Return how large a value is that a worker has put aside; raises when nobody could read it as an output."""
    data = await caller.state.blobs.get(digest)
    try:
        await asyncio.to_thread(orjson.loads, data)
    except orjson.JSONDecodeError:
        raise InvalidInput(field, "is not JSON") from None
    return len(data)


def _with_outputs(done: Done, where: str) -> Any:
    if done.output is not None and not isinstance(done.output, dict):
        raise InvalidInput(f"{where}.output", "must be an object when there are outputs too: they become a part of it")
    return {**(done.output or {}), "outputs": done.outputs}


def _reuse(done: Done, who: Principal, settings: Settings) -> cache.Reuse | None:
    if done.reuse is None:
        return None
    key, lasts = done.reuse.key, done.reuse.lasts
    return cache.Reuse(
        None if key is None else key_for(who, key),
        None if lasts is None else timedelta(seconds=lasts),
        done.reuse.root,
        done.reuse.entry,
        settings.cache_max_output,
    )


@act(router, "/v1/task/fail", Fail, Settled, {**_HELD, "error": _ERROR})
async def fail(caller: Caller, asked: Fail) -> dict[str, Any]:
    """Tell attempts that did not succeed: each is tried again, put off, or was the last."""
    seat = await _seat_of(caller, asked.tasks)
    leases = [(each.task_id, each.lease_token.attempt) for each in asked.tasks]
    held = await caller.database.read(lambda conn: remote_workers.held_among(conn, seat.id, leases))
    settings, outcomes = caller.state.client.settings, list[Postponed | Ended]()
    for each in asked.tasks:
        found = held.get(each.task_id)
        if (
            found is None
            or each.state is not None
            or not each.retryable
            or each.snooze is not None
            or each.retry_in is not None
        ):
            outcomes.append(_outcome(each))
        else:
            outcomes.append(failed(settings, found, _error(each), each.reason, each.outcome))
    landed = await seat.settle(outcomes)
    return _settled(asked, [task_id for task_id, _ in leases if task_id not in landed])


def _outcome(each: Failed) -> Postponed | Ended:
    task_id, attempt = each.task_id, each.lease_token.attempt
    if each.snooze is not None:
        reason, error = (each.reason, _error(each)) if each.reason == WriteConflict.code else ("snooze", None)
        return Postponed(task_id, attempt, timedelta(seconds=each.snooze), "snoozed", reason, error, False)
    if each.state is not None:
        return Ended(task_id, attempt, each.state, each.outcome, each.reason, _error(each))
    if not each.retryable:
        reason = "non_retryable" if each.reason == "error" else each.reason
        return Ended(task_id, attempt, "failed", each.outcome, reason, _error(each))
    delay = timedelta(seconds=each.retry_in or 0)
    return Postponed(task_id, attempt, delay, each.outcome, each.reason, _error(each), True)


def _error(each: Failed) -> str:
    said = {"type": "Error", "message": "", "traceback": ""} if each.error is None else each.error.model_dump()
    return orjson.dumps({name: text.replace("\x00", "\ufffd") for name, text in said.items()}).decode()


@act(router, "/v1/task/release", HeldTasks, Settled, _HELD)
async def release(caller: Caller, asked: HeldTasks) -> dict[str, Any]:
    """Give tasks back as if they had not begun: others may claim them, and no attempt is counted."""
    seat = await _seat_of(caller, asked.tasks)
    leases = [(each.task_id, each.lease_token.attempt) for each in asked.tasks]
    landed = await seat.hand_back(leases)
    return _settled(asked, [task_id for task_id, _ in leases if task_id not in landed])


@act(router, "/v1/task/heartbeat", HeldTasks, Settled, _HELD)
async def heartbeat(caller: Caller, asked: HeldTasks) -> dict[str, Any]:
    """Say that attempts go on, and that their worker lives, by which it keeps all that it holds."""
    seat = await _seat_of(caller, asked.tasks)
    leases = [(each.task_id, each.lease_token.attempt) for each in asked.tasks]
    held = await seat.extend_expiry(leases)
    if held:
        await caller.state.seats.hear_from(seat)
    return _settled(asked, [task_id for task_id, _ in leases if task_id not in held])


@act(router, "/v1/task/decline", Decline, Declined, _HELD)
async def decline(caller: Caller, asked: Decline) -> dict[str, Any]:
    """Leave a task to a worker that knows its handler; when nobody has known it for long, it has failed."""
    held, settings = await caller.holds(asked), caller.state.client.settings
    seat = await caller.seat(asked.lease_token.worker_id)
    delay = await caller.database.run(
        lambda conn: unsuccessful.decline(
            conn, seat.id, caller.who.org_id, held, settings.no_handler_timeout, asked.advice
        )
    )
    if delay is not None:
        seat.stage([delay])
    return {"is_left": delay is not None}


async def _fetched(caller: Caller, asked: Held) -> Response:
    claim = await caller.holds(asked)
    if claim.params is None:
        (claim,) = await caller.database.read(lambda conn: work.with_params(conn, [claim]))
    seat = await caller.seat(asked.lease_token.worker_id)
    found = whole(seat, claim, await params_of(caller.state, seat, claim, whole=True))
    return Response(orjson.dumps(found), media_type="application/json")


_FETCH = "Return a task that the worker holds, with all of its params."
_TOLD: dict[int | str, dict[str, Any]] = {200: {"description": _FETCH, "model": ClaimedTask}, **refusals()}


@router.get("/internal/task-fetch", responses=_TOLD, summary=_FETCH, tags=["workers"], response_class=Response)
async def fetch(
    request: Request, who: AWorker, task_id: Annotated[str, Query(pattern="^[0-9]{1,19}$")],
    lease_token: Annotated[str, Query(max_length=40)],
) -> Response:  # fmt: skip
    """Return a task that the worker holds, with all of its params."""
    asked = read(Held, {"task_id": task_id, "lease_token": lease_token})
    return await _fetched(Caller(request, who), asked)


@router.post(
    "/internal/task-fetch", responses=_TOLD, summary=_FETCH, tags=["workers"], response_class=Response,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {
        "schema": {"$ref": "#/components/schemas/WorkerHeld"}, "example": _HELD}}}},
)  # fmt: skip
async def fetch_by_body(request: Request, who: AWorker) -> Response:
    """Return a task that the worker holds, with all of its params."""
    return await _fetched(Caller(request, who), read(Held, await sent(request)))


ACTS.append(Act("GET", "/internal/task-fetch", _FETCH))
ACTS.append(Act("POST", "/internal/task-fetch", _FETCH))


async def _seat_of(caller: Caller, tasks: Sequence[Held]) -> Seat:
    """Return the one worker that all leases are of."""
    ids = {each.lease_token.worker_id for each in tasks}
    if len(ids) > 1:
        raise InvalidInput("tasks", "are of several workers: send what one holds by itself")
    return await caller.seat(ids.pop())


def _settled(asked: OneOrSeveral[Any], lost: Iterable[int]) -> dict[str, Any]:
    """Return for which tasks it landed; raises `LeaseLost` when it did not for the one that was told by itself."""
    gone = set(lost)
    if gone and asked.is_one:
        raise LeaseLost(gone.pop())
    return {"tasks": [str(each.task_id) for each in asked.tasks if each.task_id not in gone], "refused": _texts(gone)}


def _texts(ids: Iterable[int]) -> list[str]:
    return [str(each) for each in ids]
