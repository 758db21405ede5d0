"""Counts and times what is asked of a server, gives each request an id, and writes a line about it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from bisect import bisect_left
from collections import defaultdict

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.core.log_lines import lines_about
from weft.jobs.metrics import Metric, Sample

logger = logging.getLogger("weft.server.requests")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,100}")
HEADER = b"x-request-id"
# What an address names, and a line of the log by the same name.
_NAMED = ("job_id", "task_id")


class _Times:
    """How long the requests of one route took."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.seconds += seconds


class Traffic:
    """All requests of a process, by route and by status."""

    def __init__(self) -> None:
        self._times: defaultdict[tuple[str, str], _Times] = defaultdict(_Times)
        self._answers: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self.open = 0

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request that was answered."""
        self._times[method, route].add(seconds)
        self._answers[method, route, status] += 1

    def metrics(self) -> list[Metric]:
        """Return what was counted."""
        answers = tuple(
            Sample(count, {"method": method, "route": route, "status": str(status)})
            for (method, route, status), count in sorted(self._answers.items())
        )
        return [
            Metric("http_requests_total", "counter", "Requests that were answered.", answers),
            Metric("http_requests_open", "gauge", "Requests that are being answered.", (Sample(self.open),)),
            Metric("http_request_seconds", "histogram", "Time from a request to its answer.", tuple(self._samples())),
        ]

    def _samples(self) -> list[Sample]:
        found = []
        for (method, route), times in sorted(self._times.items()):
            labels, seen = {"method": method, "route": route}, 0
            for bound, count in zip((*_BOUNDS, "+Inf"), times.counts, strict=True):
                seen += count
                found.append(Sample(seen, {**labels, "le": str(bound)}, "bucket"))
            found += [Sample(times.seconds, labels, "sum"), Sample(seen, labels, "count")]
        return found


class Noted:
    """Notes every request: its id goes back with the answer, its time into the numbers, a line into the log."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex.encode()
        scope["request_id"] = request_id.decode()
        status, begun, answered_at = 500, time.perf_counter(), None

        async def answered(message: Message) -> None:
            nonlocal status, answered_at
            if message["type"] == "http.response.start":
                status, answered_at = message["status"], time.perf_counter()
                message["headers"] = [*message["headers"], (HEADER, request_id)]
            await send(message)

        self._traffic.open += 1
        about = {"request_id": request_id.decode()}
        try:
            with lines_about(about):
                await self._app(scope, receive, answered)
        finally:
            self._traffic.open -= 1
            # Until the answer begins: a stream goes on for as long as somebody looks.
            took = (answered_at or time.perf_counter()) - begun
            # Not the path itself: it has names in it, and there is no end of them.
            route = getattr(scope.get("route"), "path_format", "(none)")
            self._traffic.note(scope["method"], route, status, took)
            who = getattr(scope.get("state", {}).get("who"), "actor", None)
            more = about | {"actor": who, "status": status, "ms": round(1000 * took, 1)}
            # What was asked about goes before what was made of it.
            asked = about | scope.get("path_params", {})
            more |= {"method": scope["method"], "route": route, **{name: asked.get(name) for name in _NAMED}}
            logger.info("%s %s %s in %.1f ms", scope["method"], route, status, 1000 * took, extra=more)
