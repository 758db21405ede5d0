"""How the installation does: alive, ready, and in numbers."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from weft.contract.operations import Access
from weft.core.errors import DatabaseUnavailable
from weft.jobs.health import Health, HealthCheck, check_installation, without_database
from weft.jobs.metrics import exposition
from weft.server.bodies import KnownRoute
from weft.server.credentials import OPERATORS, Who, require
from weft.server.state import State

router = APIRouter(tags=["installation"], route_class=KnownRoute)
# Said to anybody who asks, so without numbers, names and addresses.
_WRONG = {
    "database": "does not answer",
    "workers": "none is alive",
    "stale_tasks": "some are late, or held by workers that are lost",
    "orchestrators": "none is alive, and jobs or schedules need one",
    "server": "is about to stop",
}
_NUMBERS = """\
# HELP weft_task_queue_depth Tasks that have not ended, by queue and state, all counted.
# TYPE weft_task_queue_depth gauge
weft_task_queue_depth{queue="default",state="ready"} 3
"""
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Alive(BaseModel):
    """The process answers."""

    ok: bool


class Part(BaseModel):
    """One part of the installation."""

    name: str
    ok: bool
    problem: str | None = None


class Ready(BaseModel):
    """Whether requests should come here, and each part of the installation."""

    ok: bool
    checks: list[Part]


@router.get("/healthz", operation_id="healthz", response_model=Alive)
async def healthz() -> Response:
    """Say that this process is alive; nothing else is looked at."""
    return _told({"ok": True}, 200)


@router.get("/readyz", operation_id="readyz", response_model=Ready, responses={503: {"model": Ready}})
async def readyz(request: Request) -> Response:
    """Say whether this server can answer: its database does, and it is not about to stop.

    Workers, orchestrators and tasks that are late, of whatever org, are told as well, and are no reason to send
    requests elsewhere. All of it is looked at once a second at most, however many ask. More of what is wrong is told
    by `/api/v1/health`, to those with a token, of their own org.
    """
    state: State = request.app.state.weft
    health = await state.readiness.get(None, lambda: _installation(state))
    checks = [*health.checks, HealthCheck("server", not state.is_stopping, "")]
    can_answer = all(check.ok for check in checks if check.name in ("database", "server"))
    told = {"ok": can_answer, "checks": [_part(check) for check in checks]}
    return _told(told, 200 if can_answer else 503)


@router.get(
    "/metrics", operation_id="prometheus", response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": _NUMBERS}}}},
)  # fmt: skip
async def metrics(request: Request, who: Who) -> Response:
    """Return the numbers of the org in the text that Prometheus reads; operators get those of this process as well.

    Takes the role `reader`.
    """
    require(who, Access.READER)
    state: State = request.app.state.weft
    client = state.client_of(who)
    found = [*await state.counts.get((who.org_id, "metrics"), client.metrics)]
    if who.org == OPERATORS:
        found += state.traffic.metrics() + state.live.metrics()
    return Response(exposition(found), media_type=_PROMETHEUS)


async def _installation(state: State) -> Health:
    try:
        return await state.client.database.read(check_installation)
    except (DatabaseUnavailable, TimeoutError) as problem:
        return without_database(problem)


def _part(check: HealthCheck) -> dict[str, Any]:
    return {"name": check.name, "ok": check.ok} | ({} if check.ok else {"problem": _WRONG[check.name]})


def _told(told: dict[str, Any], status: int) -> Response:
    return Response(orjson.dumps(told), status, {"cache-control": "no-store"}, "application/json")
