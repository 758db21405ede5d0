"""One trace of a job, told by real processes that know nothing of each other, to a real receiver over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from apps.cli_scene import Cli, Command
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import weft
from receivers import Receiver, receiving

SECRET = "canary-4711"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FLOW = {
    "workflow_id": "traced",
    "nodes": {
        "START": {"type": "start", "next": "inner"},
        "inner": {"type": "task", "handler": "traced:inner", "next": "flaky"},
        "flaky": {"type": "task", "handler": "traced:flaky", "params": {"secret": SECRET}, "next": "apart"},
        "apart": {"type": "task", "handler": "traced:apart", "next": "far"},
        "far": {"type": "task", "handler": "traced:far", "queue": "far", "next": "END"},
        "END": {"type": "end"},
    },
}


def _spans(receiver: Receiver) -> list[Any]:
    found = []
    for request in receiver.received:
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            found += [span for scope in resource.scope_spans for span in scope.spans]
    return found


async def _until(receiver: Receiver, names: set[str]) -> list[Any]:
    while True:
        found = _spans(receiver)
        told = {span.name for span in found}
        if names <= told:
            return found
        try:
            await receiver.until(len(receiver.received) + 1)
        except TimeoutError:
            raise AssertionError(f"no {names - told} among {told}") from None


def _said(span: Any) -> dict[str, Any]:
    values = {each.key: each.value for each in span.attributes}
    return {name: getattr(value, value.WhichOneof("value")) for name, value in values.items()}


def _traced(url: str | None, home: Path, receiver: Receiver, **more: str) -> Cli:
    where = f"http://127.0.0.1:{receiver.port}"
    return Cli(
        url, home, OTEL_EXPORTER_OTLP_ENDPOINT=where, OTEL_EXPORTER_OTLP_COMPRESSION="none",
        OTEL_BSP_SCHEDULE_DELAY="50", **more,
    )  # fmt: skip


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_server_orchestrator_and_worker_tell_of_one_trace_of_a_job(
    url: str, home: Path, client: weft.Client, started: ExitStack
) -> None:
    secret = (await client.tokens.create("t", role="writer")).secret
    async with receiving() as receiver:
        cli = _traced(url.replace("postgres@", f"postgres:{SECRET}@"), home, receiver)

        def start() -> Command:
            started.enter_context(cli.start("orchestrator", "--fast"))
            started.enter_context(cli.start("worker", "--app", "traced_app", "--fast"))
            return started.enter_context(cli.start("server", "--port", "0"))

        server = await asyncio.to_thread(start)
        address = (await asyncio.to_thread(server.line, "answers at")).split()[-1]
        await client.create_queue("far")
        token = (await client.tokens.create("w", role="worker")).secret
        far = _traced(None, home / "far", receiver, WEFT_TOKEN=token)
        started.enter_context(far.start("worker", "--app", "traced_app", "--queues", "far", "--server", address))
        async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {secret}"}) as http:
            asked = {"workflow": FLOW}
            answer = await http.post("/api/v1/jobs", json=asked, headers={"traceparent": CALLER})
            assert answer.status_code == 201, answer.text
            job_id = answer.json()["id"]
            # Secrets in all places where one may stand by mistake.
            spoilt = {"authorization": f"Bearer {SECRET}", "cookie": f"weft={SECRET}", "user-agent": SECRET}
            for headers in ({}, spoilt):
                await http.get(f"/api/v1/tags/{SECRET}", params={"token": SECRET}, headers=headers)
            await http.get("/sign-in", params={"code": SECRET})
            result = await client.jobs.wait(int(job_id), timeout=60)
        spans = await _until(receiver, {"traced", "own work", "apart work", "POST /api/v1/jobs", "POST /v1/task/step"})
        assert result.state == "completed"
        bodies = b"".join(request.body for request in receiver.received)
        assert SECRET.encode() not in bodies
        assert secret.encode() not in bodies
    (root,) = [span for span in spans if span.name == "traced"]
    ours = {span.span_id: span for span in spans if span.trace_id == root.trace_id}
    outputs = {node.node: (await client.get_task(node.id)).output for node in await client.jobs.nodes(int(job_id))}
    assert (root.parent_span_id, _said(root)["weft.outcome"]) == (b"", "completed")
    assert _said(root)["weft.job.id"] == job_id
    by_name = {name: [s for s in ours.values() if s.name == name] for name in {s.name for s in ours.values()}}
    (inner,), (apart,), (own,), (own_apart,) = (by_name[name] for name in ("inner", "apart", "own work", "apart work"))
    assert own.parent_span_id == inner.span_id
    assert own_apart.parent_span_id == apart.span_id
    (step,) = by_name["POST /v1/task/step"]
    assert step.parent_span_id == by_name["far"][0].span_id
    assert not {"POST /v1/task/claim", "POST /v1/worker/heartbeat"} & set(by_name), "these are about no attempt"
    for span in (inner, apart):
        assert span.parent_span_id == root.span_id
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert outputs[span.name] == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"
    first, second = sorted(by_name["flaky"], key=lambda span: _said(span)["weft.attempt"])
    assert [(event.name) for event in first.events] == ["exception", "retry"]
    assert (first.status.code, first.status.message, second.status.code) == (2, "ValueError: not yet", 0)
    assert second.links[0].span_id == first.span_id
    assert _said(first)["weft.queue"] == "default"
    assert any(_said(span).get("weft.handler") == "@end" for span in ours.values()), "control steps are told too"
    (asked_by,) = by_name["submit"]
    (request,) = [span for span in spans if span.name == "POST /api/v1/jobs"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == tuple(CALLER.split("-")[1:3])
    assert request.links[0].trace_id == root.trace_id
    assert asked_by.links[0].span_id == request.span_id
