"""Untrusted SQL over datasets: each query runs in a process of its own behind walls, and its answer is streamed."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib.util
import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Self

import orjson

from weft.core.errors import InvalidInput
from weft.core.query_errors import InvalidQuery, QueryCancelled, QueryCrashed, QueryLimitReached, WallsMissing
from weft.data import query_frames, walls
from weft.data.extra import needs
from weft.data.pieces import Pieces
from weft.data.query_model import FORMATS, LONGEST_SQL, MEDIA_TYPES, Attached, Column, Format, QueryLimits, Wall
from weft.data.query_starter import Begun, Starter

_READING_S = 10


class Answer(Pieces):
    """The answer to a query, which is being computed: iterate over its bytes; nothing is computed ahead of that.

    ``columns`` are known from the beginning, ``rows`` and ``bytes`` grow to what they are at the end.
    """

    def __init__(self, begun: Begun, format: str, limits: QueryLimits, names: Sequence[str]) -> None:
        self.columns: tuple[Column, ...] = ()
        self.rows: int | None = None
        self.bytes = 0
        self.media_type = MEDIA_TYPES[format]
        self._begun = begun
        self._limits = limits
        self._names = names
        self._deadline = asyncio.get_running_loop().time() + limits.seconds
        self._is_cancelled = False
        self._first: tuple[bytes, bytes] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the answer piece by piece.

        Raises `QueryLimitReached`, `InvalidQuery`, `QueryCancelled` or `QueryCrashed`; then what came is not all.
        """
        while self.rows is None:
            letter, data = self._first or await self.frame()
            self._first = None
            if letter == query_frames.END:
                self.rows = int(orjson.loads(data)["rows"])
                return
            self.bytes += len(data)
            if self.bytes > self._limits.bytes:
                raise QueryLimitReached("bytes", self._limits.bytes)
            yield data

    def cancel(self) -> None:
        """End the query; whoever reads its answer gets `QueryCancelled`."""
        self._is_cancelled = True
        self._begun.kill()

    async def begin(self) -> None:
        """Wait for the columns and for what comes first, so that most of what is wrong with a query is told here."""
        _, told = await self.frame()
        self.columns = tuple(Column(str(each["name"]), str(each["type"])) for each in orjson.loads(told))
        self._first = await self.frame()

    async def frame(self) -> tuple[bytes, bytes]:
        """Return what the process says next."""
        if self._is_cancelled:
            raise QueryCancelled
        try:
            async with asyncio.timeout_at(self._deadline):
                letter, size = query_frames.HEAD.unpack(await self._begun.reader.readexactly(query_frames.HEAD.size))
                if size > query_frames.LARGEST_TOLD:
                    raise QueryCrashed("saying more than it may", self._names)
                data = await self._begun.reader.readexactly(size)
        except TimeoutError:
            self._begun.kill()
            raise QueryLimitReached("seconds", self._limits.seconds) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._explain_end()
        if letter == query_frames.ERROR:
            self._explain(orjson.loads(data))
        return letter, data

    async def _explain_end(self) -> NoReturn:
        """Raise why the process is gone without a word; one that only says so is ended."""
        self._begun.kill()
        status = await self._begun.ended
        if self._is_cancelled:
            raise QueryCancelled
        if status == -signal.SIGXCPU:
            raise QueryLimitReached("cpu_seconds", self._limits.cpu_seconds)
        if status == -signal.SIGALRM:
            raise QueryLimitReached("seconds", self._limits.seconds)
        if status is None:
            raise QueryCrashed("the end of the process that began it", ())
        raise QueryCrashed(signal.Signals(-status).name if status < 0 else f"status {status}", self._names)

    def _explain(self, told: dict[str, Any]) -> NoReturn:
        """Raise what the process says is wrong."""
        kind, message = str(told["kind"]), str(told["message"])
        if kind == "limit":
            raise QueryLimitReached(message, getattr(self._limits, message))
        if kind == "walls":
            raise WallsMissing(orjson.loads(message))
        raise InvalidQuery(message, kind)


class QueryProcess:
    """Runs untrusted SQL over datasets, each query in a process of its own; ``at_once`` of them, and others wait.

    On Linux it does not start where a wall cannot stand, unless an operator names that wall in ``without``. Temporary
    files are in ``folder``, else where the system has them.

    Example::

        async with QueryProcess(QueryLimits(seconds=10)) as queries:
            names = await queries.mentioned("select count(*) from orders")
            async with queries.query("select count(*) from orders", [Attached("orders", files)], "csv") as answer:
                async for piece in answer:
                    ...
    """

    def __init__(
        self, limits: QueryLimits | None = None, *, at_once: int = 4, folder: str | None = None,
        without: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.limits = limits or QueryLimits()
        self.walls: tuple[Wall, ...] = ()
        self._without = tuple(without)
        self._folder = folder
        self._turns = asyncio.Semaphore(at_once)
        self._starting = asyncio.Lock()
        self._starter: Starter | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return when queries can be run; raises `WallsMissing` where that would not be safe."""
        for module in ("duckdb", "pyarrow"):
            if importlib.util.find_spec(module) is None:
                needs(module)
        try:
            missing = await self._probe()
        except BaseException:
            # Whoever asked may be gone: nobody else knows of what was begun.
            await self.stop()
            raise
        self.walls = tuple(
            Wall(name, about, name not in missing, missing.get(name)) for name, about in walls.ABOUT.items()
        )
        unexpected = {name: why for name, why in missing.items() if name not in self._without}
        if unexpected and sys.platform == "linux":
            await self.stop()
            raise WallsMissing(unexpected)
        self._without = tuple(missing)

    async def stop(self) -> None:
        """End all queries, and return when nothing is left of them."""
        if self._starter is not None:
            starter, self._starter = self._starter, None
            await starter.stop()
        await asyncio.gather(*self._leaving)

    async def mentioned(self, sql: str) -> tuple[str, ...]:
        """Return the names of the datasets that a query reads, as it has them; raises `InvalidQuery` if it is none.

        It takes no dataset, and runs behind the same walls as a query.
        """
        limits = dataclasses.replace(self.limits, seconds=min(self.limits.seconds, _READING_S))
        async with self._process("mentioned", sql, (), "json", limits) as answer:
            _, told = await answer.frame()
        return tuple(str(name) for name in orjson.loads(told))

    @asynccontextmanager
    async def query(
        self, sql: str, attached: Sequence[Attached] = (), format: Format = "json", limits: QueryLimits | None = None,
        *, plain: bool = False,
    ) -> AsyncIterator[Answer]:  # fmt: skip
        """Run a query over datasets; what is left of it when the block ends is ended too.

        ``json`` is one row a line; in ``plain`` Arrow no value stands for several. Raises `InvalidQuery` for SQL that
        is wrong or no query, `QueryLimitReached`, and `QueryCrashed`, which concerns no other query.
        """
        if format not in FORMATS:
            raise InvalidInput("format", f"must be one of {', '.join(FORMATS)}")
        more = {"plain": "yes"} if plain else {}
        async with self._process("query", sql, attached, format, limits or self.limits, more) as answer:
            await answer.begin()
            yield answer

    @asynccontextmanager
    async def compute(
        self, code: str, entry: str, attached: Attached, schema: bytes, limits: QueryLimits | None = None
    ) -> AsyncIterator[Answer]:
        """Let a function of Python, ``entry`` of some ``code``, make a table of one, behind the same walls as a query.

        ``schema`` is that of the table, as Arrow writes it; the answer is plain Arrow. Raises as `query` does.
        """
        more = {"entry": entry, "schema": base64.b64encode(schema).decode()}
        async with self._process("compute", code, [attached], "arrow", limits or self.limits, more) as answer:
            await answer.begin()
            yield answer

    async def _probe(self) -> dict[str, str]:
        async with self._process("probe", "", (), "json", self.limits) as answer:
            _, told = await answer.frame()
        return {str(name): str(why) for name, why in orjson.loads(told).items()}

    @asynccontextmanager
    async def _process(
        self, verb: str, sql: str, attached: Sequence[Attached], format: str, limits: QueryLimits,
        more: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answer]:  # fmt: skip
        """Give a request to a new process, and put it away in the end."""
        request = _request(verb, sql, attached, format, limits, self._without, more or {})
        async with self._turns:
            begun = await (await self._ready()).begin()
            try:
                begun.writer.write(len(request).to_bytes(4, "big") + request)
                yield Answer(begun, format, limits, [each.name for each in attached])
            finally:
                leaving = asyncio.create_task(begun.put_away())
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)

    async def _ready(self) -> Starter:
        async with self._starting:
            if self._starter is not None and not self._starter.is_alive:
                starter, self._starter = self._starter, None
                await starter.stop()
            if self._starter is None:
                self._starter = await Starter.start(self._folder)
            return self._starter


def _request(
    verb: str, sql: str, attached: Sequence[Attached], format: str, limits: QueryLimits, without: tuple[str, ...],
    more: Mapping[str, str],
) -> bytes:  # fmt: skip
    if len(sql) > LONGEST_SQL:
        raise QueryLimitReached("sql", LONGEST_SQL)
    if "\0" in sql or any("\ud800" <= sign <= "\udfff" for sign in sql):
        raise InvalidQuery("the SQL has signs that no text has", "parser")
    return orjson.dumps({
        "verb": verb,
        "sql": sql,
        "tables": [dataclasses.asdict(each) for each in attached],
        "format": format,
        "limits": dataclasses.asdict(limits),
        "without": without,
        "readable": sys.executable,
        **more,
    })  # fmt: skip


async def stand() -> tuple[Wall, ...]:
    """Return which walls stand around queries on this machine, each tried from inside.

    Example::

        for wall in await stand():
            print(wall.name, wall.stands, wall.why)
    """
    process = QueryProcess(without=tuple(walls.ABOUT))
    async with process:
        return process.walls
