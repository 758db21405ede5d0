"""Spans of jobs and requests for OpenTelemetry, where it is installed and the ``OTEL_*`` variables ask for it.

The ids of a job's trace follow from the job's id: every process tells of its part of it, without being told of the
others'. So a trace needs nothing in the database, and survives whoever dies.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import re
import secrets
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.core.settings import environment
from weft.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

logger = logging.getLogger("weft.tracing")
HEADER = "traceparent"
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# So many jobs that have ended wait to be told of; beyond it the oldest are not.
_MOST_ENDED = 10_000
Attributes = Mapping[str, str | int | float | bool]


class Place(NamedTuple):
    """Where a span is: its trace and its own id, and whether anybody wants to hear of it."""

    trace_id: int
    span_id: int
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The place as it is told to others (W3C Trace Context)."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.is_sampled else '00'}"

    @classmethod
    def read(cls, text: str) -> Place | None:
        """Return the place that a caller tells; None when it cannot be read, which is no reason to refuse it."""
        found = _TRACEPARENT.fullmatch(text.strip())
        if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
            return None
        place = cls(int(found[2], 16), int(found[3], 16), bool(int(found[4], 16) & 1))
        return place if place.trace_id and place.span_id else None

    def below(self) -> Place:
        """Return a new place in the same trace."""
        return self._replace(span_id=int.from_bytes(secrets.token_bytes(8)) or 1)

    @classmethod
    def anew(cls) -> Place:
        """Return a new place in a new trace."""
        return cls(int.from_bytes(secrets.token_bytes(16)) or 1, 1).below()


@lru_cache(maxsize=4096)
def place_of_job(job_id: int) -> Place:
    """Return the place of a job: that of the span from its submission to its end."""
    return _derived(f"job {job_id}")


def place_of_attempt(job_id: int | None, task_id: int, attempt: int) -> Place:
    """Return the place of an attempt: in the trace of its job, or of its task when that is part of none."""
    trace = place_of_job(job_id) if job_id is not None else _derived(f"task {task_id}")
    return trace._replace(span_id=_derived(f"attempt {task_id} {attempt}").span_id)


def _derived(what: str) -> Place:
    digest = hashlib.sha256(f"weft {what}".encode()).digest()
    return Place(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1)


def current_traceparent() -> str | None:
    """Return the place of the caller's own span, when the program has one."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    found = trace.get_current_span().get_span_context()
    return Place(found.trace_id, found.span_id, found.trace_flags.sampled).traceparent if found.is_valid else None


class Tracer:
    """Tells of spans when they are over; they are sent in batches by a thread, and dropped when there are too many."""

    def __init__(self, provider: TracerProvider, processor: BatchSpanProcessor) -> None:
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._provider = provider
        self._processor = processor
        self._scope = InstrumentationScope("weft", __version__)
        # What orchestrators have ended of late: only afterwards it is known how.
        self.ended_jobs: deque[int] = deque(maxlen=_MOST_ENDED)

    def chosen(self, place: Place, parent: Place | None = None) -> Place:
        """Return the place with what the sampler says of it: every process comes to the same, by the trace's id."""
        from opentelemetry import trace
        from opentelemetry.sdk.trace.sampling import Decision

        around = None if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(_context(parent)))
        found = self._provider.sampler.should_sample(around, place.trace_id, "weft")
        return place._replace(is_sampled=found.decision is Decision.RECORD_AND_SAMPLE)

    def enter(self, place: Place) -> None:
        """Make spans of the program's own, on this task or thread, hang below a place."""
        from opentelemetry import context, trace

        context.attach(trace.set_span_in_context(trace.NonRecordingSpan(_context(self.chosen(place)))))

    def tell(
        self, name: str, place: Place, *, start: int, end: int, attributes: Attributes, parent: Place | None = None,
        kind: str = "INTERNAL", error: str | None = None, events: Sequence[tuple[str, int, Attributes]] = (),
        links: Sequence[Place] = (),
    ) -> None:  # fmt: skip
        """Tell of a span that is over; times are nanoseconds since 1970."""
        from opentelemetry import trace
        from opentelemetry.sdk.trace import Event, ReadableSpan

        status = trace.Status() if error is None else trace.Status(trace.StatusCode.ERROR, error)
        self._processor.on_end(
            ReadableSpan(
                name, _context(place), None if parent is None else _context(parent), self._provider.resource,
                dict(attributes), [Event(what, dict(said), at) for what, at, said in events],
                [trace.Link(_context(other)) for other in links], trace.SpanKind[kind], status=status,
                start_time=start, end_time=max(start, end), instrumentation_scope=self._scope,
            )
        )  # fmt: skip

    def share(self) -> None:
        """Let spans that handlers make by OpenTelemetry go the same way, unless the program has its own."""
        from opentelemetry import trace

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)

    def flush(self) -> None:
        """Send what has been told, before this process may be ended without a word."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what has been told, and tell no more."""
        self._provider.shutdown()


def _context(place: Place) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if place.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(place.trace_id, place.span_id, is_remote=True, trace_flags=flags)


@lru_cache(maxsize=1)
def tracer() -> Tracer | None:
    """Return what this process tells of spans by; None unless the environment asks for them and the extra is there."""
    environ = environment()
    wanted = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not wanted and any(environ.get(name) for name in endpoints):
        wanted = "otlp"
    if wanted in ("", "none") or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        return _made(_exporter(wanted))
    except (ImportError, ValueError) as problem:
        # No reason to run no tasks: what is wrong with the traces is told, and they are not.
        logger.warning("traces are not sent: %s", problem)
        return None


def _exporter(wanted: str) -> SpanExporter:
    try:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter
    except ImportError:
        raise ImportError("OpenTelemetry is not installed here: pip install 'weft[otel]'") from None
    if wanted == "console":
        # Not the standard output, which is for what was asked for.
        return ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: span.to_json(indent=None) + "\n")
    if wanted != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER is {wanted!r}, and may be otlp, console or none")
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next(filter(None, map(environment().get, names)), "http/protobuf")
    if protocol == "grpc":
        try:
            grpc = importlib.import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
        except ImportError:
            raise ImportError("for grpc: pip install opentelemetry-exporter-otlp-proto-grpc") from None
        return grpc.OTLPSpanExporter()  # type: ignore[no-any-return]
    if protocol != "http/protobuf":
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, and may be http/protobuf or grpc")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ImportError("the exporter is not installed here: pip install 'weft[otel]'") from None
    return OTLPSpanExporter()


def _made(exporter: SpanExporter) -> Tracer:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are read by it, and win.
    provider = TracerProvider(resource=Resource.create({"service.version": __version__, **_named()}))
    processor = BatchSpanProcessor(exporter)
    provider.add_span_processor(processor)
    return Tracer(provider, processor)


def _named() -> dict[str, str]:
    environ = environment()
    if environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return {}
    return {"service.name": "weft"}
