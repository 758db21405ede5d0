"""The ids of traces, how they are told, and what is done when they cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.core.tracing import Place, place_of_attempt, place_of_job


def test_the_place_of_a_job_follows_from_its_id_in_every_process_and_release() -> None:
    # Written down: another derivation would tear the traces of jobs that run during an upgrade.
    assert place_of_job(5).traceparent == "00-52a9372c7bd3ab15d32f7d4a96ff4904-4aa9ae8f2ecd477c-01"
    attempt = place_of_attempt(5, 7, 1)
    assert attempt.trace_id == place_of_job(5).trace_id
    assert len({place_of_job(5).span_id, attempt.span_id, place_of_attempt(5, 7, 2).span_id}) == 3
    assert place_of_attempt(None, 7, 1).trace_id == place_of_attempt(None, 7, 2).trace_id != attempt.trace_id


@pytest.mark.parametrize(
    "text",
    [
        "", "00", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_read_counts_as_none(text: str) -> None:
    assert Place.read(text) is None


def test_a_place_is_read_as_it_is_written_and_says_whether_it_is_wanted() -> None:
    for place in (place_of_job(5), place_of_job(6)._replace(is_sampled=False)):
        assert Place.read(place.traceparent) == place
    assert Place.read("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more") is not None


def _run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    found = {"PYTHONPATH": ":".join(sys.path), **environ}
    return subprocess.run([sys.executable, "-c", code], env=found, capture_output=True, text=True, check=True)


def test_without_a_wish_for_traces_nothing_of_the_sdk_is_imported() -> None:
    code = "import sys; from weft.core.tracing import tracer; print(tracer(), 'opentelemetry.sdk' in sys.modules)"
    for off in ({}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}):
        assert _run(code, **off).stdout == "None False\n"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin', and may be otlp, console or none"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json', and may be http/protobuf or grpc",
        ),
    ],
)
def test_what_is_wrong_with_the_wish_is_told_and_stops_nothing(environ: dict[str, str], said: str) -> None:
    done = _run("from weft.core.tracing import tracer; print(tracer())", **environ)
    assert done.stdout == "None\n"
    assert done.stderr == f"traces are not sent: {said}\n"


def test_without_the_extra_it_is_told_how_to_get_it() -> None:
    code = "import sys; sys.modules['opentelemetry.sdk'] = None; from weft.core.tracing import tracer; print(tracer())"
    done = _run(code, OTEL_TRACES_EXPORTER="console")
    assert (done.stdout, "pip install 'weft[otel]'" in done.stderr) == ("None\n", True)


def test_every_process_comes_to_the_same_sample_of_jobs() -> None:
    code = (
        "from weft.core.tracing import *; t = tracer(); "
        "print([n for n in range(1000) if t.chosen(place_of_job(n)).is_sampled])"
    )
    wish = {"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
    first, second = (_run(code, **wish).stdout for _ in range(2))
    assert first == second
    assert 50 < len(first.split(",")) < 150
