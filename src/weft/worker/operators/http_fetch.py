"""The operator `http_fetch`: what an address answers becomes rows of the output, unless it is what it was before."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
from pyarrow import csv

from weft.core.errors import InvalidInput
from weft.core.signals import Snooze
from weft.flow.durations import seconds_of
from weft.flow.live.configs import HttpFetch
from weft.worker.operators.changes import table_of
from weft.worker.operators.configured import configured
from weft.worker.operators.fetching import Fetched, Unavailable, decoded, fetch, filled, found_at
from weft.worker.operators.typed_rows import has_decimals, typed_table

if TYPE_CHECKING:
    from weft.worker.live import LiveContext

_URL, _ITEMS = "config.url", "config.items"
_AT_ONCE = 10_000
_LINE = re.compile(rb"[^\r\n]+")


async def run(live: LiveContext) -> dict[str, Any]:
    """Fetch once; a source that goes on for ever rests afterwards."""
    config = configured(live, HttpFetch)
    try:
        told = await _fetch(live, config)
    except Unavailable as problem:
        if live.unit.kind == "slice":
            live.task.logger.warning("%s is asked again later: %s", config.url, problem)
            await live.rest(max(problem.retry_after or 0, _poll(live)))
            return {"rows": 0, "trouble": str(problem)}
        if problem.retry_after is not None:
            raise Snooze(timedelta(seconds=problem.retry_after)) from problem
        raise
    if live.unit.kind == "slice":
        await live.caught_up()
        await live.rest(_poll(live))
    return told


async def _fetch(live: LiveContext, config: HttpFetch) -> dict[str, Any]:
    values = _values(live)
    url = filled(config.url, values, _URL)
    key = f"http:{hashlib.sha256(url.encode()).hexdigest()[:32]}"
    known = (await live.state(key) or {}) if config.conditional else {}
    asked = {"If-None-Match": known.get("etag"), "If-Modified-Since": known.get("last_modified")}
    found = await fetch(
        live, url, _URL, seconds=config.timeout, headers=config.headers,
        more_headers={name: value for name, value in asked.items() if value is not None},
    )  # fmt: skip
    if found.status == httpx.codes.NOT_MODIFIED:
        return {"rows": 0, "is_unchanged": True}
    table = _table(found, config, httpx.URL(url).host)
    partition = None if config.partition is None else filled(config.partition, values, "config.partition")
    rows = 0
    if table is not None:
        rows = int((await live.write(table, partition=partition, partition_by=config.partition_by)).rows)
    now = {"etag": found.headers.get("etag"), "last_modified": found.headers.get("last-modified")}
    state = {name: value for name, value in now.items() if value is not None}
    if config.conditional and state != known:
        await live.set_state(state, key)
    return {"rows": rows}


def _values(live: LiveContext) -> dict[str, Any]:
    """Return what an address may have places for: the time of the unit, and what came with it."""
    said = live.unit.said
    values: dict[str, Any] = {"at": said.get("at") or datetime.now(UTC).isoformat(), "lane": live.unit.lane or ""}
    if (partitions := live.unit.partitions) is not None and len(partitions) == 1:
        values["partition"] = partitions[0]
    if isinstance(live.unit.payload, Mapping):
        values["payload"] = live.unit.payload
    return values


def _table(found: Fetched, config: HttpFetch, host: str) -> pa.Table | None:
    """Return what came as a table; None for no rows of which nothing more is known."""
    exact = has_decimals(config.columns)
    match config.format:
        case "csv":
            return _csv(found.body, config, host)
        case "ndjson":
            wrong = f"{host} did not answer in lines of JSON"
            lines = (line[0] for line in _LINE.finditer(found.body) if line[0].strip())
            rows: Any = (decoded(line, wrong, exact=exact) for line in lines)
        case _:
            rows = found_at(found.json(host, exact=exact), config.items)
            rows = [rows] if isinstance(rows, Mapping) else rows
    told = _objects(rows, f"no list of objects is at {config.items!r} of what {host} answers")
    # What was read of a document goes as its rows are taken.
    del rows
    if config.columns:
        return typed_table(told, config.columns, "config.columns")
    listed = [*told]
    return table_of(listed, _ITEMS) if listed else None


def _objects(rows: Any, problem: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows, and keep none of them."""
    if isinstance(rows, list):
        rows = _taken(rows)
    if not isinstance(rows, Iterator):
        raise InvalidInput(_ITEMS, problem)
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidInput(_ITEMS, problem)
        yield row


def _taken(rows: list[Any]) -> Iterator[Any]:
    rows.reverse()
    while rows:
        yield rows.pop()


def _csv(body: bytes, config: HttpFetch, host: str) -> pa.Table:
    options = None
    if config.columns:
        wanted = {each.path or name: pa.string() for name, each in config.columns.items()}
        options = csv.ConvertOptions(column_types=wanted, include_columns=list(wanted), strings_can_be_null=True)
    try:
        table = csv.read_csv(io.BytesIO(body), convert_options=options)
    except (pa.ArrowInvalid, KeyError) as problem:
        raise InvalidInput("config.format", f"what {host} answers is no CSV with these columns: {problem}") from None
    if not config.columns:
        return table
    rows = (row for batch in table.to_batches(max_chunksize=_AT_ONCE) for row in batch.to_pylist())
    return typed_table(rows, config.columns, "config.columns")


def _poll(live: LiveContext) -> float:
    return seconds_of(live.source.get("poll", 1))
