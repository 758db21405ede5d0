"""How a server tells of itself: alive, ready, in numbers, and what it says to those who have no token."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml
from described import described
from prometheus_client.parser import text_string_to_metric_families
from server_scene import FLOW, MakeHttp

import weft
from weft.jobs.health import Health
from weft.server import pages
from weft.server.credentials import ANONYMOUS, HOOKS
from weft.server.routes import installation
from weft.server.serving import Server
from weft.server.shared import Shared

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "docs"
# Of those there is none to tell of where nothing has been done.
NUMBERS = ("weft_task_queue_depth", "weft_jobs")


def test_the_routes_that_need_no_credential_are_these() -> None:
    document = described()
    without = {
        path for path, methods in document["paths"].items() for method in methods.values() if not method.get("security")
    }
    # What a hook takes is signed.
    assert without == {"/healthz", "/readyz", HOOKS}
    assert ANONYMOUS - without == {"/", "/openapi.json", "/docs", "/sign-in"}


async def test_whoever_has_no_token_learns_that_it_is_alive_and_ready_and_no_more(make_http: MakeHttp) -> None:
    nobody = await make_http(role=None)
    assert (await nobody.get("/healthz")).json() == {"ok": True}
    ready = await nobody.get("/readyz")
    assert ready.status_code == 200  # that there is no worker is no reason to ask another server
    assert ready.json()["checks"] == [
        {"name": "database", "ok": True}, {"name": "workers", "ok": False, "problem": "none is alive"},
        {"name": "stale_tasks", "ok": True}, {"name": "orchestrators", "ok": True}, {"name": "server", "ok": True},
    ]  # fmt: skip
    assert (await nobody.get("/metrics")).status_code == 401


async def test_what_is_late_in_any_org_is_told_of_the_installation(
    make_http: MakeHttp, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    task = await acme.enqueue("a", delay=3600)
    await conn.execute("update weft.task set due_at = weft.now() - interval '5 minutes' where id = $1", task.id)
    await acme.jobs.submit(yaml.safe_load(FLOW))
    told = (await (await make_http(role=None)).get("/readyz")).json()["checks"]
    assert {each["name"] for each in told if not each["ok"]} == {"workers", "stale_tasks", "orchestrators"}
    own = (await (await make_http()).get("/api/v1/health")).json()["checks"]
    assert {each["name"] for each in own if not each["ok"]} == {"workers"}, "an org is told of its own"
    async with weft.Worker(client=acme), weft.Orchestrator(client=client):
        nobody = await make_http(role=None)
        async with asyncio.timeout(30):
            # It is looked at once a second at most.
            while not {each["name"] for each in told if not each["ok"]} <= {"stale_tasks"}:
                told = (await nobody.get("/readyz")).json()["checks"]


async def test_many_who_ask_whether_it_is_ready_cost_the_database_no_more_than_one(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = 0, installation.check_installation

    async def counted(conn: asyncpg.Connection[asyncpg.Record]) -> Health:
        nonlocal looks
        looks += 1
        return await look(conn)

    monkeypatch.setattr(installation, "check_installation", counted)
    nobody, loop = await make_http(role=None), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(5):
        answers = await asyncio.gather(*(nobody.get("/readyz") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
    assert 1 <= looks <= 2 + (loop.time() - began), "one a second"


async def test_pages_that_anybody_may_ask_for_are_made_once(
    make_http: MakeHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, make = 0, pages.interface

    def counted(document: dict[str, Any]) -> tuple[str, str]:
        nonlocal count
        count += 1
        return make(document)

    monkeypatch.setattr(pages, "interface", counted)
    nobody = await make_http(role=None)
    answers = [await nobody.get(path) for path in ("/docs", "/docs", "/openapi.json", "/openapi.json")]
    assert count == 1
    assert [each.content for each in answers[::2]] == [each.content for each in answers[1::2]]
    assert answers[2].json()["paths"]["/healthz"]


async def test_what_takes_long_to_count_is_kept_for_a_while_for_each_org_apart(
    make_http: MakeHttp, client: weft.Client, server: Server
) -> None:
    http = await make_http()
    await client.enqueue("a")
    assert [each["depth"] for each in (await http.get("/api/v1/queues")).json()["items"]] == [1]
    await client.enqueue("a")
    assert [each["depth"] for each in (await http.get("/api/v1/queues")).json()["items"]] == [2], "few are counted anew"
    # As if there were millions.
    server.state.counts = Shared(lasts=lambda _: 3600.0)
    for path in ("/metrics", "/api/v1/queues", "/api/v1/metrics"):
        before = (await http.get(path)).content
        await client.enqueue("a")
        after = (await http.get(path)).content
        kept = [each for each in before.splitlines() if b"depth" in each]
        assert kept
        assert kept == [each for each in after.splitlines() if b"depth" in each]
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    headers = {"authorization": f"Bearer {(await acme.tokens.create('theirs', role='reader')).secret}"}
    assert (await http.get("/api/v1/queues", headers=headers)).json()["items"][0]["depth"] == 0


async def test_a_browser_is_led_from_the_address_alone_to_a_page(make_http: MakeHttp) -> None:
    nobody = await make_http(role=None)
    answer = await nobody.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/docs")
    assert (await nobody.get("/")).json() == {"docs": "/docs", "openapi": "/openapi.json"}


@pytest.mark.own_database
async def test_a_server_whose_database_is_gone_is_alive_and_not_ready(
    make_http: MakeHttp, conn: asyncpg.Connection[asyncpg.Record], server_url: str
) -> None:
    nobody = await make_http(role=None)
    name = await conn.fetchval("select current_database()")
    admin = await asyncpg.connect(server_url)
    await admin.execute(f'alter database "{name}" allow_connections false')
    await admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
    assert (await nobody.get("/healthz")).status_code == 200
    ready = await nobody.get("/readyz")
    assert (ready.status_code, ready.json()["ok"]) == (503, False)
    assert ready.json()["checks"][0] == {"name": "database", "ok": False, "problem": "does not answer"}
    refused = await nobody.get("/api/v1/jobs", headers={"authorization": "Bearer weft_x"})
    assert (refused.status_code, refused.json()["code"]) == (503, "database_unavailable")
    assert name not in refused.text, "where the database is is nobody's business"
    await admin.execute(f'alter database "{name}" allow_connections true')
    await admin.close()


async def test_numbers_of_the_org_are_for_all_of_it_and_those_of_the_process_for_operators(
    make_http: MakeHttp, client: weft.Client, http: httpx.AsyncClient
) -> None:
    await http.get("/api/v1/jobs/12")
    await http.get("/api/v1/jobs/12/result")
    await http.get("/api/v1/tags/none%2Fmain")
    text = (await http.get("/metrics")).text
    assert 'weft_http_requests_total{method="GET",route="/api/v1/jobs/{job_id}",status="404"} 1' in text
    assert 'route="/api/v1/jobs/{job_id}/result",status="404"} 1' in text
    assert 'route="/api/v1/tags/{tag}",status="404"} 1' in text
    assert 'weft_http_request_seconds_bucket{method="GET",route="/api/v1/jobs/{job_id}",le="+Inf"} 1' in text
    assert "weft_outbox_lag_seconds 0.0" in text
    assert "weft_jobs_created_total 0" in text
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    secret = (await acme.tokens.create("t", role="admin")).secret
    other = (await http.get("/metrics", headers={"authorization": f"Bearer {secret}"})).text
    assert "weft_jobs_created_total 0" in other
    assert "http_requests" not in other


async def test_the_numbers_are_read_by_prometheus_itself_and_have_all_that_was_asked_for(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    await http.get("/api/v1/jobs/12")
    await client.create_queue('odd"name')
    answer = await http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    kinds = {name.removeprefix("weft_"): family.type for name, family in found.items()}
    counters = ("jobs_created", "jobs_completed", "jobs_failed", "tasks_created", "tasks_completed", "tasks_failed")
    gauges = (
        "task_queue_depth", "task_queue_age_seconds", "task_lease_age_seconds", "workers_active", "outbox_lag_seconds",
        "worker_task_execution_time", "worker_heartbeat_age", "outbox_pending",
    )  # fmt: skip
    wanted = dict.fromkeys(counters, "counter") | dict.fromkeys(gauges, "gauge")
    wanted |= {"job_duration_seconds": "summary", "task_duration_seconds": "summary"}
    assert wanted.items() <= kinds.items()
    assert kinds["http_request_seconds"] == "histogram"
    for route, buckets in _buckets(found["weft_http_request_seconds"].samples).items():
        assert list(buckets.values()) == sorted(buckets.values()), route
        assert list(buckets)[-1] == "+Inf"
    assert {s.labels["queue"] for s in found["weft_task_queue_age_seconds"].samples} == {"default", 'odd"name'}


async def test_the_document_shows_numbers_that_there_are(http: httpx.AsyncClient, client: weft.Client) -> None:
    await client.enqueue("nobody:knows")
    answer = (await http.get("/openapi.json")).json()["paths"]["/metrics"]["get"]["responses"]["200"]
    # Whatever the numbers are.
    example, told = (re.sub(r" \d.*", "", text) for text in (
        answer["content"]["text/plain"]["example"], (await http.get("/metrics")).text,
    ))  # fmt: skip
    assert set(example.splitlines()) <= set(told.splitlines())


async def test_alerts_in_the_docs_name_numbers_that_there_are(http: httpx.AsyncClient) -> None:
    await http.get("/healthz")
    families = text_string_to_metric_families((await http.get("/metrics")).text)
    known = {sample.name for family in families for sample in family.samples} | set(NUMBERS)
    (group,) = yaml.safe_load((EXAMPLES / "weft-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    named = {name for rule in group["rules"] for name in re.findall(r"weft_\w+", rule["expr"])}
    assert named <= known
    assert len(named) >= 9


def _buckets(samples: list[Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for sample in samples:
        if sample.name.endswith("_bucket"):
            found[sample.labels["route"]][sample.labels["le"]] = sample.value
    return found


async def test_a_request_keeps_the_id_that_it_came_with_if_it_is_a_plain_one(http: httpx.AsyncClient) -> None:
    assert (await http.get("/healthz", headers={"x-request-id": "a-1"})).headers["x-request-id"] == "a-1"
    made = (await http.get("/healthz", headers={"x-request-id": "a b"})).headers["x-request-id"]
    assert len(made) == 32
