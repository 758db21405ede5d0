"""The operator `alert_evaluate`: rows for which a condition holds become alerts, each once, with their end."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from weft.core.errors import InvalidInput
from weft.flow.live.configs import AlertEvaluate
from weft.live.staging import MOST_CALLBACKS
from weft.worker.operators.changes import CHANGES, inputs_named, rows_said
from weft.worker.operators.configured import configured
from weft.worker.operators.numbered import quoted
from weft.worker.operators.origins import Origins, bounded, origins_in
from weft.worker.operators.querying import answered, tables_in

if TYPE_CHECKING:
    from weft.worker.datasets import DatasetFiles
    from weft.worker.live import LiveContext

# Keys share so many slots of the state: those that have nothing in common mostly change side by side.
_SLOTS = 64
# So many rows are looked at, and so many alerts kept as Python has them, at once.
_AT_ONCE = 2000
_MORE = "alert.more"
# Of what a unit may stage, messages have a part: a worker without a database sends it all in one request.
_SHARE_TOLD, _AROUND = 8, 100
_HOLDS = "\u2063holds"
_PLACE = re.compile(r"\{(\w+)\}")
_ALERTS = pa.schema([
    ("alert_id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("state", pa.string()), ("severity", pa.string()),
    ("key", pa.string()), ("message", pa.string()), ("row", pa.string()),
])  # fmt: skip


async def run(live: LiveContext) -> dict[str, Any]:
    """Look at the rows of a unit; at those that were there before the job was only if the DAG says so."""
    config = configured(live, AlertEvaluate)
    if live.unit.kind == "bootstrap" and not config.history:
        return {"alerts": 0}
    evaluation = _Evaluation(live, config)
    stood = None if config.history or live.unit.kind != "partition" else await live.stood()
    if stood is not None:
        # A partition is looked at anew each time, with all that it has: what is past must be known.
        if config.order_by is not None:
            await evaluation.pass_over(stood)
        if stood == live.unit.said["write"]:
            return {"alerts": await evaluation.tell()}
    async with aclosing(_rows(live, config, evaluation)) as rows:
        async for row in rows:
            await evaluation.look(row)
    return {"alerts": await evaluation.tell()}


async def _rows(
    live: LiveContext, config: AlertEvaluate, evaluation: _Evaluation, stood: int | None = None
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the rows, each with whether the condition holds, in their order; of so many at once there is a table.

    With a write those that ``stood`` there after it: of a query that does not read what the unit is about, none.
    """
    query = config.query or f"select * from {CHANGES}"
    names = await tables_in(live, query, "config.query")
    async with AsyncExitStack() as stack:
        tables: dict[str, DatasetFiles] = await inputs_named(live, names, {}, "config.query")
        if stood is not None:
            if CHANGES not in names:
                return
            tables[CHANGES] = await live.at(stood).files(partition=live.unit.partitions)
        elif CHANGES in names and "dataset" in live.unit.said:
            tables[CHANGES] = await live.changed_files()
        elif CHANGES in names:
            tables |= stack.enter_context(rows_said(live))
        order = "" if config.order_by is None else f"\norder by {quoted(config.order_by)}"
        asked = f"select *, coalesce((\n{config.condition}\n), false) as {quoted(_HOLDS)} from (\n{query}\n){order}"
        reader = await stack.enter_async_context(answered(live, asked, tables, "config.condition"))
        while (batch := await asyncio.to_thread(next, reader, None)) is not None:
            for begin in range(0, batch.num_rows, _AT_ONCE):
                for row in await asyncio.to_thread(batch.slice(begin, _AT_ONCE).to_pylist):
                    yield row
                live.task.heartbeat()
        if live.outputs and evaluation.count:
            evaluation.origins = await origins_in(live, asked, tables, {}, reader.schema.names) or {}


class _Evaluation:
    """The alerts of one unit: what of each key was so far, and what comes of it."""

    def __init__(self, live: LiveContext, config: AlertEvaluate) -> None:
        # What the columns of the rows are made of.
        self.origins: Origins = {}
        self.count = 0
        self._live = live
        self._config = config
        self._now = datetime.now(UTC)
        self._slots: dict[str, dict[str, Any]] = {}
        # As rows of the output: those before the last ones as Arrow keeps them, which is much smaller.
        self._packed: list[pa.RecordBatch] = []
        self._alerts: list[dict[str, Any]] = []
        # What a receiver is told, as far as there is room.
        self._messages: list[tuple[str, dict[str, Any]]] = []
        self._room = live.workshop.settings.value_limit // _SHARE_TOLD
        self._passed_over = 0

    async def look(self, row: dict[str, Any]) -> None:
        """Note whether the condition holds for the next row of its key."""
        holds = bool(row.pop(_HOLDS))
        key = self._key(row)
        text = orjson.dumps(key).decode()
        slot = await self._slot(text)
        known = slot.get(text, {})
        if self._config.order_by is not None:
            position = _position(row.get(self._config.order_by), self._config.order_by)
            if "seen" in known and position <= known["seen"]:
                self._passed_over += 1
                return
            known["seen"] = position
        known["streak"] = known.get("streak", 0) + 1 if holds else 0
        if not known.get("is_firing") and known["streak"] >= self._config.for_ and self._is_cool(known):
            known |= {"is_firing": True, "number": known.get("number", 0) + 1, "fired_at": self._now.isoformat()}
            self._add("firing", known["number"], key, text, row)
        elif known.get("is_firing") and not holds:
            known["is_firing"] = False
            if self._config.resolved:
                self._add("resolved", known["number"], key, text, row)
        slot[text] = known

    async def pass_over(self, stood: int) -> None:
        """Note which rows stood there after a write: none of them counts any more, nor what comes before them."""
        assert self._config.order_by is not None
        async with aclosing(_rows(self._live, self._config, self, stood)) as rows:
            async for row in rows:
                text = orjson.dumps(self._key(row)).decode()
                slot = await self._slot(text)
                position = _position(row.get(self._config.order_by), self._config.order_by)
                known = slot.setdefault(text, {"seen": position})
                known["seen"] = max(known["seen"], position)

    async def tell(self) -> int:
        """Write the alerts, remember what is so now, and let receivers be told, all with the end of the task."""
        if self._passed_over:
            self._live.task.logger.info(
                "%d rows are not after the last of their key, and count no more", self._passed_over
            )
        if self._slots:
            await self._live.set_states(self._slots)
        if not self.count:
            return 0
        self._pack()
        if self._live.outputs:
            table = pa.Table.from_batches(self._packed, _ALERTS)
            await self._live.write(table, partition=self._now.date().isoformat(), columns_from=self._columns_from())
        if self._config.callback_url is not None:
            await self._live.call_back_each(self._config.callback_url, self._told())
        return self.count

    def _told(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what a receiver is told: each alert, or as many as may be told, and how many more there are."""
        if len(self._messages) == self.count:
            return self._messages
        first = self._messages[: MOST_CALLBACKS - 1]
        more = {"event": _MORE, "dag": self._live.dag, "job": self._live.job, "count": self.count - len(first)}
        return [*first, (_MORE, {**more, "at": self._now.isoformat()})]

    def _pack(self) -> None:
        if self._alerts:
            self._packed.append(pa.RecordBatch.from_pylist(self._alerts, schema=_ALERTS))
            self._alerts.clear()

    def _columns_from(self) -> Origins | None:
        """Return what the columns of alerts are made of: the state of the condition, the others of rows."""
        rows = [name for name in self.origins if name != _HOLDS]
        named = [found[1] for found in _PLACE.finditer(self._config.message)]
        made_of = {"state": [_HOLDS], "key": self._config.key, "message": named, "row": rows}
        return bounded({
            column: list(dict.fromkeys(each for name in names for each in self.origins.get(name, ())))
            for column, names in made_of.items()
        })  # fmt: skip

    def _key(self, row: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: _plain(row.get(name)) for name in self._config.key}
        # Zero of either sign is one key, as it is for queries.
        return {name: 0.0 if isinstance(value, float) and value == 0 else value for name, value in values.items()}

    async def _slot(self, text: str) -> dict[str, Any]:
        name = f"alerts:{int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], 'big') % _SLOTS}"
        if name not in self._slots:
            self._slots[name] = dict(await self._live.state(name) or {})
        return self._slots[name]

    def _is_cool(self, known: Mapping[str, Any]) -> bool:
        if "fired_at" not in known or not self._config.cooldown:
            return True
        return (self._now - datetime.fromisoformat(known["fired_at"])).total_seconds() >= self._config.cooldown

    def _add(self, state: str, number: int, key: dict[str, Any], text: str, row: dict[str, Any]) -> None:
        shown = {name: _plain(value) for name, value in row.items()}
        words = {"dag": self._live.dag, "job": self._live.job, "state": state, "severity": self._config.severity}
        words |= {name: str(value) for name, value in shown.items()}
        message = _PLACE.sub(lambda found: words.get(found[1], found[0]), self._config.message)
        same = {
            "alert_id": f"{_short(text)}#{number}:{state}", "state": state, "severity": self._config.severity,
            "message": message,
        }  # fmt: skip
        self.count += 1
        self._alerts.append({**same, "at": self._now, "key": text, "row": orjson.dumps(shown).decode()})
        if len(self._alerts) == _AT_ONCE:
            self._pack()
        if self._config.callback_url is not None and self._room > 0 and len(self._messages) < MOST_CALLBACKS:
            about = {"event": f"alert.{state}", "dag": self._live.dag, "job": self._live.job}
            said = {**about, "key": key, "row": shown, **same, "at": self._now.isoformat()}
            self._room -= len(orjson.dumps(said)) + len(self._config.callback_url) + _AROUND
            if self._room >= 0:
                self._messages.append((_short(text), said))


def _short(text: str) -> str:
    return text if len(text) <= 200 else hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a value as JSON and PostgreSQL have it."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
        case str():
            return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return orjson.loads(orjson.dumps(value, default=str))


def _position(value: Any, column: str) -> Any:
    """Return where a row stands, as something that can be compared and remembered."""
    match value:
        case str():
            return value
        case int() if not isinstance(value, bool):
            return value
        case float() if math.isfinite(value):
            return value
        case Decimal() if value.is_finite():
            is_exact = value == value.to_integral_value() and abs(value) < 2**63
            return int(value) if is_exact else float(value)
        case datetime():
            # What Arrow has in nanoseconds is a moment of pandas, which has them too.
            exact: int | None = getattr(value, "value", None)
            return value.timestamp() if exact is None else exact
        case date():
            return value.toordinal()
        case _:
            raise InvalidInput("config.order_by", f"{column} has a value by which rows have no order: {value!r}")
