"""Does by a server what handlers ask for while they run: their steps, their blobs, further tasks, cached outputs."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, TypeVar

import orjson

from weft.contract.bounds import MOST
from weft.core.errors import BlobUnavailable, InvalidInput, LeaseLost, NotFound, OperatorError, WeftError
from weft.core.json import check_size, size_of
from weft.db.blobs import damaged, digest_of
from weft.queue.cache import Keys, Reuse
from weft.queue.steps import Fence
from weft.queue.work import Claim
from weft.remote.asking import Asking
from weft.remote.worker_line import lease_of
from weft.worker import dataset_answers, live_answers
from weft.worker.answers import ADD, AWAIT_TASKS, SPAWN
from weft.worker.background import pause_after_error
from weft.worker.caching import Caching
from weft.worker.lending import Lending

T = TypeVar("T")
logger = logging.getLogger("weft.worker")
_FIRST_PAUSE = 0.1
_WAIT = 30.0
# As many bytes tell of a value that was put before.
_AROUND = 150

_DATASETS = {
    dataset_answers.READ: "dataset/read",
    dataset_answers.FILES: "dataset/files",
    dataset_answers.PARTITIONS: "dataset/partitions",
    dataset_answers.BEGIN: "dataset/begin",
    dataset_answers.STAGE: "dataset/stage",
    dataset_answers.ADD_ROWS: "dataset/rows/add",
    dataset_answers.READ_ROWS: "dataset/rows",
}
_LIVE = {
    live_answers.JOB: "live/job", live_answers.STATE: "live/state", live_answers.STAGE: "live/stage",
    live_answers.FILES: "live/files",
}  # fmt: skip


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
        raise AssertionError("refused before there is something to put")

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable` when they are missing or damaged."""
        try:
            found = await self._asking.send("GET", f"/v1/task/blob/{digest}")
        except NotFound:
            raise BlobUnavailable(digest, "is not known to the server") from None
        if await asyncio.to_thread(digest_of, found) != digest:
            raise damaged(digest)
        return found


class PatientBlobs(RemoteBlobs):
    """The same for what an attempt itself gets and puts, its params and its output: whoever ends it breaks it off."""

    def __init__(self, asking: Asking, fence: Fence) -> None:
        super().__init__(asking, lease_of(*fence))
        self._fence = fence

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest, when the server is there."""
        put = super().put
        return await persist(self._fence, lambda: False, lambda: put(data))

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``, when the server is there; raises `BlobUnavailable`."""
        get = super().get
        return await persist(self._fence, lambda: False, lambda: get(digest))


class RemoteAnswers:
    """What all attempts of a worker ask for; an outage of the server is waited out."""

    def __init__(
        self, asking: Asking, room: int, value_limit: int, data_url: str | None = None, allowed: Sequence[str] = ()
    ) -> None:  # fmt: skip
        self._data_url = data_url
        self._allowed = allowed
        self._asking = asking
        self._room = room
        self._value_limit = value_limit
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

        async def ask(path: str, /, **said: Any) -> dict[str, Any]:
            body, wait = {**lease, **said}, said.get("wait", 0.0)
            return await persist(fence, is_over, lambda: self._asking.ask(f"/v1/task/{path}", body, wait=wait))

        blobs = RemoteBlobs(self._asking, lease)

        async def put(what: str, text: str) -> dict[str, Any]:
            check_size(what, text, self._value_limit)
            digest = await persist(fence, is_over, lambda: blobs.put(text.encode()))
            return {"blob": {"digest": digest, "size": size_of(text)}}

        async def sent(field: str, text: str, what: str) -> dict[str, Any]:
            """Return a value as it is told: under the name of its field, or put before when it is too large."""
            return {field: orjson.Fragment(text)} if len(text) <= self._room else await put(what, text)

        match verb:
            case "load_step":
                step = (await ask("step/load", name=arguments["name"]))["step"]
                return None if step is None else {**step, "data": orjson.dumps(step["data"]).decode()}
            case "save_step":
                kept = await sent("data", arguments["data"], arguments["name"])
                if arguments["took"] is None:
                    await ask("checkpoint", phase=arguments["name"], **kept)
                else:
                    await ask("step", name=arguments["name"], took=arguments["took"], **kept)
            case "save_metrics":
                await ask("metrics", **await sent("data", arguments["data"], "metrics"))
            case "drop_step":
                await ask("step/drop", name=arguments["name"])
            case _ if verb == SPAWN:
                said = {name: value for name, value in arguments.items() if name != "params"}
                said |= await sent("params", arguments["params"], "params")
                if (retry := arguments["retry"]) is not None:
                    said["retry"] = orjson.Fragment(retry)
                told = await ask("spawn", **said)
                return {"id": told["task_id"], "has_key": told["has_key"]}
            case _ if verb == AWAIT_TASKS:
                ids, found = arguments["ids"], list[dict[str, Any]]()
                # As many at once as a request may name: the others may end meanwhile, and are told then.
                while rest := ids[len(found) : len(found) + MOST]:
                    told = await ask("await", ids=rest, wait=_WAIT, keeps_resting=True)
                    found += told["ended"] or []
                return [{**each, "error": _text(each["error"]), "output": _text(each["output"])} for each in found]
            case _ if verb == ADD:
                said = orjson.loads(arguments["text"])
                over = len(arguments["text"]) - self._room
                # The largest first, until the rest fits into a request.
                by_size = [(len(orjson.dumps(each.get("params"))), each) for each in said["items"]] if over > 0 else []
                for size, each in sorted(by_size, key=itemgetter(0), reverse=True):
                    if over > 0 and size > _AROUND:
                        each.update(await put("params", orjson.dumps(each.pop("params")).decode()))
                        over -= size - _AROUND
                return (await ask("add", **said))["ids"]
            case _ if verb in dataset_answers.VERBS:
                told = await ask(_DATASETS[verb], **arguments)
                if verb in (dataset_answers.FILES, dataset_answers.PARTITIONS, dataset_answers.READ_ROWS):
                    return told[verb.removeprefix("list_")]
                told = dataset_answers.with_allowed(verb, told, self._allowed)
                # Where this machine finds the files, should that be elsewhere than where the server does.
                return told if self._data_url is None else {**told, "root": self._data_url}
            case _ if verb in live_answers.VERBS:
                return await ask(_LIVE[verb], **arguments)
            case "put_blob":
                data = base64.b64decode(arguments["data"])
                if len(data) > self._value_limit:
                    raise InvalidInput("data", f"has {len(data)} bytes, and may have {self._value_limit}")
                return await persist(fence, is_over, lambda: blobs.put(data))
            case "get_blob":
                data = await persist(fence, is_over, lambda: blobs.get(arguments["digest"]))
                return base64.b64encode(data).decode()
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

    async def find(self, claim: Claim, keys: Keys, caching: Caching) -> tuple[str, Reuse] | None:
        """Return an output that serves, as it is kept, and whose it is."""
        body = {
            **lease_of(self._id, claim.id, claim.attempt),
            "key": keys.key.hex(),
            "args": keys.args.hex(),
            "within": None if caching.lasts is None else _seconds(caching.lasts),
            "takes": caching.takes,
        }
        try:
            told = await self._asking.ask("/v1/task/cached", body)
        except WeftError as problem:
            logger.info("task %s runs without a look into the cache: %s", claim.id, problem)
            return None
        if told["output"] is None:
            return None
        entry = None if told["entry"] is None else int(told["entry"])
        return told["output"], Reuse(None, root=int(told["root"]), entry=entry)


def _seconds(span: timedelta) -> float:
    return span.total_seconds()
