"""Does by a server what handlers ask for while they run: their steps, their blobs, further tasks, cached outputs."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import orjson

from weft.core.errors import BlobUnavailable, InvalidInput, LeaseLost, NotFound, OperatorError, WeftError
from weft.core.json import size_of
from weft.db.blobs import damaged, digest_of
from weft.queue.cache import Reuse
from weft.queue.steps import Fence
from weft.queue.work import Claim
from weft.remote.asking import Asking
from weft.remote.worker_line import lease_of
from weft.worker.answers import AWAIT_TASKS, SPAWN
from weft.worker.background import pause_after_error
from weft.worker.caching import Caching
from weft.worker.lending import Lending

T = TypeVar("T")
logger = logging.getLogger("weft.worker")
_FIRST_PAUSE = 0.1
_WAIT = 30.0


class RemoteBlobs:
    """Where large values of one task are kept, through the server."""

    def __init__(self, asking: Asking, lease: dict[str, str]) -> None:
        self._asking = asking
        self._lease = lease

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest."""
        told = await self._asking.send("PUT", "/v1/task/blob", params=self._lease, content=data)
        return str(orjson.loads(told)["digest"])

    def put_now(self, data: bytes) -> str:
        """Refuse: what completes a task in a transaction of its own needs the database."""
        raise InvalidInput("complete_in", "is for workers with a database: this one works through a server")

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable` when they are missing or damaged."""
        try:
            found = await self._asking.send("GET", f"/v1/task/blob/{digest}")
        except NotFound:
            raise BlobUnavailable(digest, "is not known to the server") from None
        if await asyncio.to_thread(digest_of, found) != digest:
            raise damaged(digest)
        return found


class RemoteAnswers:
    """What all attempts of a worker ask for; an outage of the server is waited out."""

    def __init__(self, asking: Asking, room: int) -> None:
        self._asking = asking
        self._room = room
        self.lending = Lending(self._lend, self._take)

    async def close(self) -> None:
        """Nothing goes on beside."""

    async def _lend(self, fence: Fence, is_over: Callable[[], bool]) -> bool | None:
        lease = lease_of(*fence)
        return bool((await persist(fence, is_over, lambda: self._asking.ask("/v1/task/lend", lease)))["lent"])

    async def _take(self, fence: Fence, is_over: Callable[[], bool]) -> bool | None:
        lease = lease_of(*fence)
        return bool((await persist(fence, is_over, lambda: self._asking.ask("/v1/task/take", lease)))["taken"])

    async def answer(self, fence: Fence, verb: str, arguments: dict[str, Any], is_over: Callable[[], bool]) -> Any:
        """Do what an attempt asks for; raises `LeaseLost` when the task is not its own any more."""
        lease = lease_of(*fence)

        async def ask(path: str, **said: Any) -> dict[str, Any]:
            body, wait = {**lease, **said}, said.get("wait", 0.0)
            return await persist(fence, is_over, lambda: self._asking.ask(f"/v1/task/{path}", body, wait=wait))

        blobs = RemoteBlobs(self._asking, lease)
        match verb:
            case "load_step":
                found = (await ask("step/load", name=arguments["name"]))["step"]
                return None if found is None else {**found, "data": orjson.dumps(found["data"]).decode()}
            case "save_step":
                text: str = arguments["data"]
                if len(text) > self._room:
                    digest = await persist(fence, is_over, lambda: blobs.put(text.encode()))
                    kept: dict[str, Any] = {"blob": {"digest": digest, "size": size_of(text)}}
                else:
                    kept = {"data": orjson.Fragment(text)}
                if arguments["took"] is None:
                    await ask("checkpoint", phase=arguments["name"], **kept)
                else:
                    await ask("step", name=arguments["name"], took=arguments["took"], **kept)
            case "save_metrics":
                await ask("metrics", data=orjson.Fragment(arguments["data"]))
            case "drop_step":
                await ask("step/drop", name=arguments["name"])
            case _ if verb == SPAWN:
                retry = arguments["retry"]
                said = {**arguments, "params": orjson.Fragment(arguments["params"])}
                told = await ask("spawn", **{**said, "retry": None if retry is None else orjson.Fragment(retry)})
                return {"id": told["task_id"], "has_key": told["has_key"]}
            case _ if verb == AWAIT_TASKS:
                said = {"ids": arguments["ids"], "wait": _WAIT, "keeps_resting": True}
                while (ended := (await ask("await", **said))["ended"]) is None:
                    pass
                return [{**each, "error": _text(each["error"]), "output": _text(each["output"])} for each in ended]
            case "put_blob":
                data = base64.b64decode(arguments["data"])
                return await persist(fence, is_over, lambda: blobs.put(data))
            case "get_blob":
                found = await persist(fence, is_over, lambda: blobs.get(arguments["digest"]))
                return base64.b64encode(found).decode()
            case _:
                raise AssertionError(verb)
        return None


def _text(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


async def persist(fence: Fence, is_over: Callable[[], bool], ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again for as long as the server is away: hours of work are not given up for that."""
    pause = _FIRST_PAUSE
    while not is_over():
        try:
            return await ask()
        except BlobUnavailable:
            raise
        except OperatorError as problem:
            logger.info("task %s waits for the server: %s", fence.task_id, problem)
            pause = await pause_after_error(pause)
    raise LeaseLost(fence.task_id)


class RemoteCache:
    """Finds outputs for the attempts of a worker; what goes wrong with it is no reason for a task to fail."""

    def __init__(self, asking: Asking, worker_id: int) -> None:
        self._asking = asking
        self._id = worker_id

    async def find(self, claim: Claim, key: bytes, caching: Caching) -> tuple[str, Reuse] | None:
        """Return an output that serves, as it is kept, and whose it is."""
        if not caching.takes:
            return None
        within = None if caching.lasts is None else _seconds(caching.lasts)
        body = {**lease_of(self._id, claim.id, claim.attempt), "key": key.hex(), "within": within}
        try:
            told = await self._asking.ask("/v1/task/cached", body)
        except WeftError as problem:
            logger.info("task %s runs without a look into the cache: %s", claim.id, problem)
            return None
        return None if told["output"] is None else (told["output"], Reuse(None, root=int(told["root"])))


def _seconds(span: timedelta) -> float:
    return span.total_seconds()
