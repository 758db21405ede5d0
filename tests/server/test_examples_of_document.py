"""Every body that the document gives as an example is taken by the server, where there is what it speaks of."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from described import described
from matrix import FIRST_TURN, dag

import weft
from buckets import S3Bucket, S3Server
from engine.job_scene import Handlers, at_work, flow
from weft.db.blob_address import Bucket
from weft.server.credentials import HOOKS
from weft.server.paths import PREFIX
from writing import written

FLOW = flow(
    {"day": {"type": "string", "default": "2026-11-14"}},
    fetch={"type": "task", "handler": "etl:fetch", "params": {"size": 1}, "next": "review"},
    review={"type": "wait", "for": "approval", "form": {"limit": {"type": "integer"}}},
) | {"workflow_id": "etl"}


@pytest.fixture
def weather(s3_server: S3Server, s3_bucket: S3Bucket, tmp_path: Path) -> Iterator[None]:
    """What others have written, of which an example speaks."""
    pq.write_table(pa.table({"degrees": [3.5]}), tmp_path / "1.parquet")
    bucket = s3_server.make_bucket(Bucket("weather-archive", "2026"))
    bucket.write("day=2026-11-14/1.parquet", (tmp_path / "1.parquet").read_bytes())
    yield
    bucket.remove()


@pytest.fixture
def settings(settings: weft.Settings, weather: None) -> weft.Settings:
    """Settings with which that may be registered."""
    return replace(settings, data_outside=("s3://weather-archive",))


@pytest.fixture
async def things(client: weft.Client) -> AsyncIterator[dict[str, str]]:
    """What the examples speak of, by the calls that speak of it, or by the parameter that names it."""
    handlers = Handlers()

    @handlers.registry.task(name="etl:fetch")
    async def fetch(size: int) -> int:
        return size

    async with at_work(client, handlers):
        await client.workflows.push(FLOW)
        await client.workflows.branch("etl/next", "etl/main")
        found = {"slug": "finance", "user": "ada@example.com", "name": "mail", "which": "etl/main", "new": "etl/new"}
        for field, value in (
            ("inputs.day.default", "x"),
            ("nodes.fetch.priority", 1),
            ("nodes.fetch.timeout_seconds", 60),
        ):
            await client.workflows.patch("etl/main", set={field: value})
        for call in ("patch", "move", "undo", "redo", "revert", "protect", "merge", "undelete", "compact"):
            found[f"workflows.{call}"] = name = f"etl/{call}"
            await client.workflows.branch(name, "etl/main")
            await client.workflows.patch(name, set={"nodes.fetch.params.size": 9})
        await client.workflows.undo("etl/redo")
        await client.workflows.delete("etl/undelete")
        waits = await client.jobs.submit("etl/main")
        fails = await client.jobs.submit(flow(a={"type": "task", "handler": "fail", "retry": {"max_attempts": 1}}))
        await client.jobs.wait(fails.id)
        async for event in client.jobs.follow(waits.id):
            if event.node == "review":
                break
        await client.create_queue("mail")
        task = await client.enqueue("nobody:knows", queue="mail")
        alone = await client.enqueue("fail", max_attempts=1)
        with pytest.raises(weft.TaskFailed):
            await client.wait(alone.id)
        goes_on = await client.jobs.submit("etl/main")
        found |= {"jobs.approve": str(waits.id), "jobs.add": str(goes_on.id), "job_id": str(fails.id)}
        found |= {"cancel": str(task.id), "replay": str(alone.id)}
        await client.roles.create("finance")
        await client.schedules.add("etl/main", name="nightly", every=86400)
        found |= {"schedules.change": "nightly", "schedules.backfill": "nightly"}
        await written(client, "etl/main", 1, 2)
        found |= {f"datasets.{verb}": "etl/main" for verb in ("describe", "grant", "hand_over")} | {
            "datasets.rollback": "etl/main@1.1"
        }
        await client.live.deploy(dag("acme", "etl/main"))
        await client.database.run(lambda conn: conn.execute(FIRST_TURN, "acme/copied"))
        await client.live.deploy(dag("acme", "etl/main") | {"description": "again"})
        await client.database.run(lambda conn: conn.execute(HELD))
        await client.database.run(lambda conn: conn.execute(DAY))
        found |= {"dag": "acme/market", "job": "candles"}
        await client.orgs.create("globex")
        yield found | {"orgs.rename": "globex", "orgs.create_token": "globex"}
        handlers.leave.set()


# A unit of work that is held, and a partition of the dataset that its job reads.
HELD = """
    insert into weft.live_unit (id, org_id, live_job_id, lane, kind, dedupe_key, state, said)
    select 381002207845156620, 1, j.id, 'x', 'partition', 'x', 'held', '{}' from weft.live_job j
    where j.name = 'candles'"""
DAY = """
    insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
    select d.current_id, '2026-11-14', 1, 2, 0, 0, 0, weft.now() from weft.dataset d where d.name = 'etl/main'"""


def _examples(content: dict[str, Any], schemas: dict[str, Any]) -> list[Any]:
    if "example" in content:
        return [content["example"]]
    if "examples" in content:
        return [each["value"] for each in content["examples"].values()]
    schema = content["schema"]
    told = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return list(told["examples"])


def _address(path: str, call: str, things: dict[str, str]) -> str:
    return re.sub(r"{(\w+)}", lambda name: quote(things.get(call) or things[name[1]], safe=""), path)


async def test_every_example_of_a_body_is_taken(http: httpx.AsyncClient, things: dict[str, str]) -> None:
    document = described()
    sent, refused = 0, []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            # What a hook takes is signed for a source that listens.
            if not path.startswith(PREFIX) or path == HOOKS:
                continue
            call = str(operation["operationId"]).replace("_", ".", 1)
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                for example in _examples(content, document["components"]["schemas"]):
                    at = _address(path, call, things)
                    body = {"json": example} if kind == "application/json" else {"content": example}
                    answer = await http.request(method, at, headers={"content-type": kind}, **body)
                    sent += 1
                    if not answer.is_success:
                        refused.append(f"{call} {at} {example}: {answer.text}")
    assert not refused, "\n".join(refused)
    assert sent > 40
