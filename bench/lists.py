"""What stands beside a page of a list: its SQL alone, and how much of what was asked for the page has."""

from __future__ import annotations

import statistics
import time
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
import httpx

import weft
from weft.contract.parameters import labels_in

# So many pages are followed at most: whoever wants a full one asks on.
_MOST = 100


async def beside_a_list(url: str, org: str, port: int, token: str, query: str, count: int) -> str:
    """Return what the SQL of a page takes by itself, how many jobs the page has, and how many pages make it full."""
    alone = await _sql_alone(url, org, query, count)
    limit, first, pages, is_whole = 0, 0, 0, False
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {token}"}, timeout=60
    ) as http:
        asked, found = dict_of(query), 0
        limit = int(asked.get("limit", "50"))
        while pages < _MOST and found < limit and not is_whole:
            answer = (await http.get("/api/v1/jobs", params=_pairs(asked))).json()
            found, pages = found + len(answer["items"]), pages + 1
            first = len(answer["items"]) if pages == 1 else first
            is_whole = answer["next"] is None
            asked["after" if asked.get("sort") == "oldest" else "before"] = answer["next"]
    until = "the end" if is_whole else f"{limit} jobs" if found >= limit else "it was given up"
    return f"SQL alone {alone:.1f} ms; {first} jobs, {pages} page{'s' * (pages > 1)} until {until}"


def dict_of(query: str) -> dict[str, Any]:
    """Return the parameters of a query; those that may be there several times as lists."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query):
        if name in ("labels", "state"):
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def _pairs(asked: dict[str, Any]) -> list[tuple[str, str | int | float | bool | None]]:
    return [(name, each) for name, value in asked.items() for each in (value if isinstance(value, list) else [value])]


async def _sql_alone(url: str, org: str, query: str, count: int) -> float:
    """Return the median time that the statement of a page takes on a connection of its own, in milliseconds."""
    asked = dict_of(query)
    if "labels" in asked:
        asked["labels"] = labels_in(asked["labels"])
    for name in ("before", "rerun_of"):
        if name in asked:
            asked[name] = int(asked[name])
    for name in ("since", "until"):
        if name in asked:
            asked[name] = datetime.fromisoformat(asked[name])
    said: list[Any] = []
    async with (
        weft.Client(url, org=org) as client,
        client.in_one_transaction() as inside,
        inside.database.acquire() as conn,
    ):
        with conn.query_logger(said.append):
            await inside.jobs.page(**asked)
    # The longest of them is the page itself; beside it the org may have been looked up.
    page = max(said, key=lambda each: len(each.query))
    conn = await asyncpg.connect(url)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await conn.fetch(page.query, *page.args)
        times.append(1000 * (time.perf_counter() - began))
    await conn.close()
    return statistics.median(times)
