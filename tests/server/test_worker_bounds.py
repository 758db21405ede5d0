"""What a worker may ask for is bounded alike with a database and through a server."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

import weft
from weft.contract import bounds, graphs, logs, protocol
from weft.core.checks import LONGEST_SPAN, MAX_KEY, MAX_NAME, MAX_PRIORITY, MAX_RUNNING
from weft.orchestration import Task
from weft.queue.retry import LONGEST_DELAY, MAX_ATTEMPTS
from weft.server.serving import Server
from weft.worker.registry import Registry

_SPAN = LONGEST_SPAN.total_seconds()
# By the field of a request: the most that the call takes for which it stands.
_AS_CALLED = {
    "call": 1 + MAX_KEY, "concurrency_key": MAX_KEY, "idempotency_key": MAX_KEY,
    "handler": MAX_NAME, "handlers": MAX_NAME, "name": MAX_NAME, "phase": MAX_NAME, "queue": MAX_NAME,
    "queues": MAX_NAME, "priority": MAX_PRIORITY, "concurrency": MAX_RUNNING, "max_attempts": MAX_ATTEMPTS,
    "initial_delay": LONGEST_DELAY, "max_delay": LONGEST_DELAY, "jitter": 1, "timeout": _SPAN, "codes": MAX_NAME,
    "heartbeat_timeout": _SPAN, "lasts": _SPAN, "within": _SPAN, "took": _SPAN, "retry_in": _SPAN, "snooze": _SPAN,
}  # fmt: skip
# How much a request tells at once: a worker sends several, or never comes near it.
_AT_ONCE = {
    "completed", "failed", "ids", "limit", "tasks", "wait", "handlers", "queues", "offset", "size", "number", "pid",
    "advice", "hostname", "version", "message", "traceback", "type", "items", "known", "pairs", "group", "codes",
}  # fmt: skip


def _most(schema: Any) -> Iterator[tuple[str, float]]:
    """Yield the upper bounds that a field has, also those of what it is made of."""
    if isinstance(schema, dict):
        for key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems"):
            if isinstance(schema.get(key), (int, float)):
                yield key, schema[key]
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _most(part)


def test_each_bound_of_the_worker_protocol_is_that_of_the_call_it_stands_for() -> None:
    kinds = [kind for module in (protocol, graphs, logs) for kind in vars(module).values()]
    seen = set()
    for kind in kinds:
        if inspect.isclass(kind) and issubclass(kind, BaseModel) and kind.model_config.get("extra") == "forbid":
            for field, schema in kind.model_json_schema().get("properties", {}).items():
                for key, most in _most(schema):
                    where = f"{kind.__name__}.{field}: {key} {most}"
                    if field in _AT_ONCE and not (key == "maxLength" and field in _AS_CALLED):
                        continue
                    assert field in _AS_CALLED, f"{where}: say here which bound the call has"
                    assert most == _AS_CALLED[field], where
                    seen.add(field)
    assert seen == set(_AS_CALLED)


@pytest.mark.parametrize("way", ["by the database", "through a server"])
async def test_a_worker_asks_for_as_much_through_a_server_as_with_a_database(
    settings: weft.Settings, client: weft.Client, way: str
) -> None:
    registry, small = Registry(), dataclasses.replace(settings, server_body_limit=100_000, value_limit=300_000)
    large = "x" * (2 * small.server_body_limit)
    lengths: list[int] = []
    gathered: list[list[int]] = []

    @registry.task(name="most")
    async def most(ctx: weft.Context) -> None:
        assert ctx.job_id is not None
        first = await ctx.spawn("length", {"text": large}, key="k" * MAX_KEY)
        second = await ctx.spawn(
            "length", {"text": "y"}, concurrency_key="c" * MAX_KEY, timeout=LONGEST_SPAN,
            heartbeat_timeout=LONGEST_SPAN, max_attempts=MAX_ATTEMPTS,
        )  # fmt: skip
        await ctx.save_metrics({"text": large})
        with pytest.raises(weft.InvalidInput, match=r"^params: has \d+ bytes, and may have"):
            await ctx.spawn("length", {"text": "x" * small.value_limit})
        # More than one request may name.
        found = await ctx.gather(*[first, second] * (bounds.MOST // 2 + 1))
        added = [Task("length", {"text": text}, name=f"added-{text[:3]}") for text in ("zzz", large)]
        await using.jobs.add(ctx.job_id, added)
        gathered.append([*found[:3], len(found)])

    @registry.task(name="length")
    async def length(text: str) -> int:
        lengths.append(len(text))
        return len(text)

    @registry.task(name="rest")
    async def rest() -> None:
        raise weft.Snooze(LONGEST_SPAN)

    secret = (await client.tokens.create("w", role="worker")).secret
    async with Server(small, port=0) as server:
        far = weft.RemoteClient(server.url, secret, settings=weft.Settings.load(environ={}))
        using = far if way == "through a server" else weft.Client(settings=small)
        job = await client.jobs.submit_graph("w", Task("most", name="most"))
        resting = await client.enqueue("rest")
        async with using, weft.Orchestrator(client=client), weft.Worker(client=using, registry=registry):
            done = await client.jobs.wait(job.id, 60)
            assert done.state == "completed", done
            while not (await client.get_task(resting.id)).attempts:
                await client.get_task(resting.id)
    assert sorted(lengths) == [1, 3, len(large), len(large)]
    assert gathered == [[len(large), 1, len(large), bounds.MOST + 2]]
    found = await client.get_task(resting.id)
    assert found.state == "scheduled"
    assert found.due_at is not None
    assert found.due_at - found.created_at > LONGEST_SPAN - timedelta(days=1)
