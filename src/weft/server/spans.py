"""Tells of requests as spans, below the caller's own if there is one, each with a way to the job that it made."""

from __future__ import annotations

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.core.log_lines import add_to_lines
from weft.core.tracing import HEADER, Place, Tracer, place_of_job

_JOB = "weft.made_job"
_HEADER = HEADER.encode()


def made_job(scope: Scope, job: Any) -> None:
    """Note which job a request has made, for its span and for the lines of the log."""
    scope[_JOB] = job.id
    add_to_lines(job_id=str(job.id))


class Traced:
    """Tells of every request; what the routes call by OpenTelemetry hangs below."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        caller = Place.read(given.decode("latin-1"))
        place = self._tracer.chosen(Place.anew() if caller is None else caller.below(), caller)
        self._tracer.enter(place)
        add_to_lines(trace_id=f"{place.trace_id:032x}")
        start, status = time.time_ns(), 500

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answered)
        finally:
            self._tell(scope, place, caller, start, status)

    def _tell(self, scope: Scope, place: Place, caller: Place | None, start: int, status: int) -> None:
        route, end = getattr(scope.get("route"), "path_format", None), time.time_ns()
        said: dict[str, Any] = {
            "http.request.method": scope["method"], "http.response.status_code": status,
            "weft.request.id": scope.get("request_id", ""),
        }  # fmt: skip
        if route is not None:
            said["http.route"] = route
        if (who := scope.get("state", {}).get("who")) is not None:
            said |= {"enduser.id": who.actor, "weft.org": who.org}
        job_id: int | None = scope.get(_JOB)
        links = []
        if job_id is not None:
            job = self._tracer.chosen(place_of_job(job_id))
            said["weft.job.id"] = str(job_id)
            links.append(job)
            # And the way back: whoever looks at the job finds who asked for it.
            self._tracer.tell(
                "submit", job.below(), start=start, end=end, attributes=said, parent=job, kind="PRODUCER", links=[place]
            )
        self._tracer.tell(
            f"{scope['method']} {route}" if route else scope["method"], place, start=start, end=end, attributes=said,
            parent=caller, kind="SERVER", error=f"answered {status}" if status >= 500 else None, links=links,
        )  # fmt: skip
