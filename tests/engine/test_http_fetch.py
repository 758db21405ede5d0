"""The operator `http_fetch`: rows of what an address answers, fetched again only when they have changed."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any, TypeAlias

import asyncpg
import orjson
import pytest
from engine_scene import MakeClient

import weft
from live_scene import until
from operator_scene import OperatorScene
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Site:
    """Answers by path, with an ETag, and notes who asked how."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.statuses: list[tuple[int, str]] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                target, headers = line.decode().split(" ")[1], {}
                while (head := (await reader.readline()).decode().strip()) != "":
                    name, _, value = head.partition(":")
                    headers[name.lower()] = value.strip()
                self.asked.append((target, headers))
                status, more = self.statuses.pop(0) if self.statuses else (200, "")
                body = self.pages.get(target, b"")
                tag = f'"{hash(body)}"'
                if status == 200 and headers.get("if-none-match") == tag:
                    status, body = 304, b""
                elif status == 200 and target not in self.pages:
                    status = 404
                text = f"HTTP/1.1 {status} X\r\netag: {tag}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
                writer.write(text.encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


async def fetching(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site, config: dict[str, Any], **more: Any
) -> tuple[weft.Client, OperatorScene, int]:
    client = await make_client(fetch_allowed="127.0.0.1", dag_secrets="SITE_TOKEN")
    scene = OperatorScene(client, conn, registry)
    config = {**config, "url": f"http://127.0.0.1:{site.port}{config['url']}"}
    source = {"kind": "event", "event": "look", "lane": ["symbol"]}
    job = await scene.job("fetched", "http_fetch", config, output="fetched", source=source, **more)
    return client, scene, job


async def test_rows_come_with_events_and_only_when_they_have_changed(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "abc")
    config = {
        "url": "/quotes/{payload.symbol}?day={at:%Y}", "items": "data.rows", "partition": "{payload.symbol}",
        "headers": {"Authorization": {"env": "SITE_TOKEN", "prefix": "Bearer "}, "X-Plain": "yes"},
        "columns": {"price": {"path": "quote.price", "type": "double"}, "at": "timestamp"},
    }  # fmt: skip
    client, scene, _ = await fetching(make_client, conn, registry, site, config)

    def page(*prices: float) -> bytes:
        rows = [{"quote": {"price": price}, "at": 1_700_000_000 + place} for place, price in enumerate(prices)]
        return orjson.dumps({"data": {"rows": rows}})

    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        sent = await client.jobs.send_event("look", {"symbol": "A/B ?"})
        year = sent.at.year if hasattr(sent, "at") else 2026
        place = f"/quotes/A%2FB%20%3F?day={year}"
        site.pages[place] = page(1, 2.5)
        await scene.settled()
        for _ in range(2):
            await client.jobs.send_event("look", {"symbol": "A/B ?"})
            await scene.settled()
        assert await conn.fetchval("select last_write from weft.dataset_version") == 1
        site.pages[place] = page(7)
        await client.jobs.send_event("look", {"symbol": "A/B ?"})
        await scene.settled()
        found = await scene.rows("fetched")
    assert [row["price"] for row in found] == [7.0]
    assert {target for target, _ in site.asked} == {place}
    assert {(headers["authorization"], headers["x-plain"]) for _, headers in site.asked} == {("Bearer abc", "yes")}


@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("csv", b"n,word\n1,a\n2,\n"),
        ("ndjson", b'{"n": 1, "word": "a"}\n\n{"n": 2}\n'),
        ("json", b'[{"n": 1, "word": "a"}, {"n": 2}]'),
    ],
)
@pytest.mark.parametrize("is_typed", [True, False])
async def test_each_format_is_rows(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site, format: str, body: bytes, is_typed: bool
) -> None:
    config: dict[str, Any] = {"url": "/x", "format": format}
    if is_typed:
        config["columns"] = {"n": "bigint", "word": "text"}
    site.pages["/x"] = body
    client, scene, _ = await fetching(make_client, conn, registry, site, config)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.jobs.send_event("look", {})
        await scene.settled()
        found = await scene.rows("fetched")
    assert [(row["n"], row["word"] or None) for row in found] == [(1, "a"), (2, None)]


@pytest.mark.parametrize("format", ["json", "ndjson", "csv"])
async def test_decimals_are_as_exact_as_they_were_written(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site, format: str
) -> None:
    values = ["12345678901234567890.123456789012345678", "18446744073709551617", "-0.1", "1e3"]
    bodies = {
        "csv": "n,more\n" + "".join(f'{value},"{{""x"": {value}}}"\n' for value in values),
        "ndjson": "".join(f'{{"n": {value}, "more": {{"x": {value}}}}}\n' for value in values),
    }
    bodies["json"] = f"[{','.join(bodies['ndjson'].splitlines())}]"
    site.pages["/x"] = bodies[format].encode()
    config = {"url": "/x", "format": format, "columns": {"n": "decimal", "more": "text"}}
    client, scene, _ = await fetching(make_client, conn, registry, site, config)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.jobs.send_event("look", {})
        await scene.settled()
        async with client.datasets.query("select n::varchar as n, more from fetched") as answer:
            found = [row async for row in answer.records()]
    assert [Decimal(row["n"]) for row in found] == [Decimal(value) for value in values]
    assert [Decimal(row["more"].partition(":")[2].strip(" }")) for row in found] == [Decimal(value) for value in values]


@pytest.mark.parametrize("format", ["ndjson", "csv"])
async def test_rows_with_types_are_not_all_in_memory_at_once(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site, format: str
) -> None:
    count = 60_000
    head, row = ("n,m\n", "1,2\n") if format == "csv" else ("", '{"n":1,"m":2}\n')
    site.pages["/x"] = (head + row).encode()
    config = {"url": "/x", "format": format, "columns": {"n": "bigint", "m": "text"}}
    client, scene, _ = await fetching(make_client, conn, registry, site, config)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        # Whatever is imported with the first is there.
        await client.jobs.send_event("look", {})
        await scene.settled()
        site.pages["/x"] = (head + row * count).encode()
        # Of Python's own objects, of which each row would be several.
        tracemalloc.start()
        try:
            await client.jobs.send_event("look", {})
            await scene.settled()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    async with client.datasets.query("select count(*)::int as n, sum(n)::int as m from fetched") as answer:
        assert [row async for row in answer.records()] == [{"n": count, "m": count}]
    assert peak < 8_000_000


async def test_no_cookie_is_kept_for_whoever_fetches_next(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site
) -> None:
    site.pages["/x"] = b'[{"n": 1}]'
    client, scene, _ = await fetching(make_client, conn, registry, site, {"url": "/x"})
    site.statuses = [(200, "set-cookie: session=of-the-first; path=/\r\n")]
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for _ in range(2):
            await client.jobs.send_event("look", {})
            await scene.settled()
    assert len(site.asked) == 2
    assert not [headers["cookie"] for _, headers in site.asked if "cookie" in headers]


async def test_whoever_asks_for_time_gets_it_and_what_is_refused_is_told(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site
) -> None:
    client, scene, job = await fetching(make_client, conn, registry, site, {"url": "/x"}, max_attempts=1)
    site.pages["/x"] = b'[{"n": 1}]'
    site.statuses += [(503, "retry-after: 0\r\n"), (429, "retry-after: 0\r\n")]
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.jobs.send_event("look", {})
        await scene.settled()
        assert await scene.rows("fetched") == [{"n": 1}]
        site.statuses += [(302, "location: http://127.0.0.1:1/\r\n")]
        await client.jobs.send_event("look", {})
        assert "127.0.0.1 answered 302, and redirects are not followed" in await scene.error(job)


async def test_what_a_source_goes_on_fetching_it_rests_from(
    make_client: MakeClient, conn: Conn, registry: Registry, site: Site
) -> None:
    client = await make_client(fetch_allowed="127.0.0.1")
    scene = OperatorScene(client, conn, registry)
    site.pages["/x"] = b'[{"n": 1}]'
    site.statuses += [(500, "")]
    await scene.job(
        "fetched", "http_fetch", {"url": f"http://127.0.0.1:{site.port}/x"}, output="fetched",
        source={"kind": "continuous"}, document={"source": {"kind": "continuous", "poll": 0.05}},
    )  # fmt: skip
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
        site.pages["/x"] = b'[{"n": 2}]'
        await until(lambda: conn.fetchval("select last_write = 2 from weft.dataset_version"))
        assert await scene.rows("fetched") == [{"n": 2}]
    assert await conn.fetchval("select count(*) from weft.task_done where state <> 'completed'") == 0
