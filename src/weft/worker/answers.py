"""Answers what a handler asks for while it runs, wherever it runs: its steps, its blobs, datasets, further tasks."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from weft.core.errors import InvalidInput, LeaseLost
from weft.core.json import BLOB_MARK, blob_reference, check_size, referenced_blob, size_of
from weft.db.blob_address import data_address
from weft.db.database import OUTAGE
from weft.queue import blobs, loans, steps
from weft.queue.steps import Fence, SavedStep
from weft.worker import dataset_answers, live_answers
from weft.worker.background import pause_after_error
from weft.worker.kin import Kin
from weft.worker.lending import Lending

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.db.blobs import Blobs
    from weft.db.database import Database, type_Connection

T = TypeVar("T")
logger = logging.getLogger("weft.worker")
_FIRST_PAUSE = 0.1
# The verbs by which an attempt makes others, waits for them, and needs no slot meanwhile, and gives up waiting.
SPAWN, AWAIT_TASKS, LEAVE = "spawn", "await_tasks", "leave"
# The verb by which an attempt adds to its job through a server.
ADD = "add"


class Answers:
    """What all attempts of a worker ask for; an outage of those kinds is waited out."""

    def __init__(
        self, database: Database, storage: Blobs, settings: Settings,
        outages: tuple[type[BaseException], ...] = OUTAGE,
    ) -> None:  # fmt: skip
        self._outages = outages
        self._database = database
        self._blobs = storage
        self._settings = settings
        self.kin = Kin(database, storage)
        self.lending = Lending(
            lambda fence, is_over: self._persist(fence, is_over, database.run, lambda conn: loans.lend(conn, fence)),
            lambda fence, is_over: self._persist(fence, is_over, database.run, lambda conn: loans.take(conn, fence)),
        )

    async def answer(self, fence: Fence, verb: str, arguments: dict[str, Any], is_over: Callable[[], bool]) -> Any:
        """Do what an attempt asks for; raises `LeaseLost` when the task is not its own any more.

        PostgreSQL may be away meanwhile: hours of work are not given up for that while the attempt is not ``is_over``.
        """
        match verb:
            case "load_step":
                return await self._load(fence, arguments["name"], is_over)
            case "save_step":
                took = None if arguments["took"] is None else timedelta(seconds=arguments["took"])
                await self._save(fence, arguments["name"], took, arguments["data"], is_over)
            case "save_metrics":
                await self._save(fence, steps.metrics_name(fence.attempt), None, arguments["data"], is_over)
            case _ if verb == SPAWN:
                said = await self.kin.with_small_params(arguments)
                return await self._persist(
                    fence, is_over, self._database.run, lambda conn: self.kin.spawn(conn, fence, said)
                )
            case _ if verb == AWAIT_TASKS:
                ids = [int(id) for id in arguments["ids"]]
                await self.kin.until_ended(ids)
                return await self._persist(
                    fence, is_over, self._database.read, lambda conn: self.kin.outcomes(conn, ids)
                )
            case "put_blob":
                return await self._put_blob(fence, base64.b64decode(arguments["data"]), is_over)
            case "get_blob":
                return base64.b64encode(await self._blobs.get(arguments["digest"])).decode()
            case "drop_step":
                dropped = await self._persist(
                    fence, is_over, self._database.run_alone, lambda conn: steps.drop(conn, fence, arguments["name"])
                )
                _require(dropped, fence)
            case _ if verb in dataset_answers.VERBS:
                root = str(data_address(self._settings))
                told = await self._persist(
                    fence, is_over, self._database.run,
                    lambda conn: dataset_answers.answer(conn, fence, verb, arguments, root),
                )  # fmt: skip
                return dataset_answers.with_allowed(verb, told, self._settings.data_outside)
            case _ if verb in live_answers.VERBS:
                limits = self._settings.value_limit, self._settings.inline_limit
                return await self._persist(
                    fence, is_over, self._database.run,
                    lambda conn: live_answers.answer(conn, fence, verb, arguments, *limits),
                )  # fmt: skip
            case _ if verb == ADD:
                raise InvalidInput("client", "this worker has the database: add to its job by a weft.Client")
            case _:
                raise AssertionError(verb)
        return None

    async def close(self) -> None:
        """Look no more for tasks that somebody waits for."""
        await self.kin.close()

    async def _load(self, fence: Fence, name: str | None, is_over: Callable[[], bool]) -> dict[str, Any] | None:
        found: SavedStep | None = await self._persist(
            fence, is_over, self._database.read, lambda conn: steps.load(conn, fence.task_id, name)
        )
        if found is None:
            return None
        digest = referenced_blob(found.data)
        data = found.data if digest is None else (await self._blobs.get(digest)).decode()
        return {"name": found.name, "attempt": found.attempt, "saved_at": found.saved_at.isoformat(), "data": data}

    async def _save(
        self, fence: Fence, name: str, took: timedelta | None, text: str, is_over: Callable[[], bool]
    ) -> None:
        check_size(name, text, self._settings.value_limit)
        size = size_of(text)
        data = (
            text if size <= self._settings.inline_limit else blob_reference(await self._blobs.put(text.encode()), size)
        )
        run = self._database.run if data.startswith(BLOB_MARK) else self._database.run_alone
        saved = await self._persist(fence, is_over, run, lambda conn: steps.save(conn, fence, name, took, size, data))
        _require(saved is not None, fence)

    async def _put_blob(self, fence: Fence, data: bytes, is_over: Callable[[], bool]) -> str:
        if len(data) > self._settings.value_limit:
            raise InvalidInput("data", f"has {len(data)} bytes, and may have {self._settings.value_limit}")
        digest = await self._blobs.put(data)
        kept = [(fence.task_id, blob_reference(digest, len(data)))]
        await self._persist(fence, is_over, self._database.run, lambda conn: blobs.keep(conn, kept))
        return digest

    async def _persist(
        self, fence: Fence, is_over: Callable[[], bool],
        run: Callable[[Callable[[type_Connection], Awaitable[T]]], Awaitable[T]],
        verb: Callable[[type_Connection], Awaitable[T]],
    ) -> T:  # fmt: skip
        pause = _FIRST_PAUSE
        while not is_over():
            try:
                return await run(verb)
            except self._outages as problem:
                logger.info("task %s waits to save a step: %s: %s", fence.task_id, type(problem).__name__, problem)
                pause = await pause_after_error(pause)
        raise LeaseLost(fence.task_id)


def _require(landed: bool, fence: Fence) -> None:
    if not landed:
        raise LeaseLost(fence.task_id)
