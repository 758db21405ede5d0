"""A live job as its operator sees it: what a unit is about, what is remembered, what is written."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from weft.core.checks import check_span
from weft.core.errors import InvalidInput
from weft.core.json import encode
from weft.queue.retry import Retry
from weft.worker import live_answers as asks
from weft.worker.context import Context
from weft.worker.registry import REGISTRY, AnyHandler, Registry
from weft.worker.steps import Ask, is_in_loop, require_no_step

if TYPE_CHECKING:
    from weft.worker.datasets import TaskDataset
    from weft.worker.workshop import Workshop

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class LiveUnit:
    """One unit of work of a live job, as `LiveContext.unit` has it.

    ``kind`` is ``bootstrap``, ``update`` or ``partition`` for what was written into an input, ``event``, ``tick``,
    ``file``, ``row`` or ``slice`` for what came from a source; ``said`` has the rest of it. Example::

        if live.unit.kind == "event":
            print(live.unit.lane, live.unit.payload["symbol"])
    """

    id: str
    kind: str
    lane: str | None
    said: Mapping[str, Any]

    @property
    def partitions(self) -> list[str] | None:
        """Which partitions were written; None for a great many, or where nothing was."""
        return self.said.get("partitions")

    @property
    def payload(self) -> Any:
        """What an event said, or the rows of a table."""
        return self.said.get("payload", self.said.get("rows"))


class LiveContext:
    """What an operator may know and do. Its verbs are awaited in an async operator, and block in others.

    All that it writes, remembers and emits comes into effect when the task completes, in one transaction. Example::

        @weft.operator("spread")
        async def spread(live: weft.LiveContext) -> None:
            quotes = await live.changes()
            await live.write(summarise(quotes), partition=live.unit.lane)
    """

    def __init__(self, ctx: Context, live_job: str, unit: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        assert ctx.ask is not None
        self.task = ctx
        self.id = live_job
        self.unit = LiveUnit(unit["id"], unit["kind"], unit["lane"], unit["said"])
        self.dag: str = info["dag"]
        self.job: str = info["name"]
        self.document: Mapping[str, Any] = info["document"]
        self.inputs: list[str] = [each["name"] for each in info["inputs"]]
        self.outputs: list[str] = list(info["outputs"])
        self._versions = {each["name"]: each["version"] for each in info["inputs"]}
        self._own_versions = dict(zip(self.outputs, info["output_versions"], strict=True))
        self._ask: Ask = ctx.ask
        self._seen: dict[str, int] = {}
        self._states: dict[str, Any] = {}
        self._units: list[dict[str, Any]] = []
        self._callbacks: list[dict[str, Any]] = []
        self._files: list[dict[str, Any]] = []
        self._rest: float | None = None
        self._is_caught_up: bool | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """What the DAG says to the operator."""
        found: Mapping[str, Any] = self.document.get("config") or {}
        return found

    @property
    def source(self) -> Mapping[str, Any]:
        """What the DAG says of the job's source; in a slice, how it looks by now. Nothing for one that reacts."""
        written: Mapping[str, Any] = self.document.get("source") or {}
        return {**written, **self.unit.said} if self.unit.kind == "slice" else written

    @property
    def workshop(self) -> Workshop:
        """What operators that come with Weft work with."""
        assert self.task.workshop is not None
        return self.task.workshop

    def input(self, place: int | str = 0) -> TaskDataset:
        """Return an input, by its place or name, in the version that this job reads.

        The one that the unit is about is as it was after the write that the unit is about, in every attempt.
        """
        name = place if isinstance(place, str) else self.inputs[place]
        if name not in self._versions:
            raise InvalidInput("input", f"{name} is not among the inputs of {self.job}: {', '.join(self.inputs)}")
        said = self.unit.said
        if said.get("dataset") == name:
            return self.task.dataset(f"{name}@{said['version']}.{said['write']}")
        return self.latest(name)

    def output(self, place: int | str = 0) -> TaskDataset:
        """Return an output, by its place or name, to read what this job has written so far."""
        name = place if isinstance(place, str) else self._output(place)
        return self.task.dataset(f"{name}@{self._own_versions[name]}")

    def latest(self, place: int | str = 0) -> TaskDataset:
        """Return an input, by its place or name, as it is by now: also the one that the unit is about."""
        name = place if isinstance(place, str) else self.inputs[place]
        version = self._versions[name]
        return self.task.dataset(name if version is None else f"{name}@{version}")

    def at(self, write: int) -> TaskDataset:
        """Return the input that the unit is about as it was after another write."""
        return self.task.dataset(f"{self.unit.said['dataset']}@{self.unit.said['version']}.{write}")

    def changes(self, *, columns: Sequence[str] | None = None) -> Any:
        """Return what the unit is about as a table of Arrow: rows that an update added, or the whole partition."""
        about, partitions, since = self._about()
        return about.read(partition=partitions, columns=columns, since=since)

    def changed_files(self, *, partition: str | None = None) -> Any:
        """Return where that is, all of it or one partition, as `DatasetFiles`."""
        about, partitions, since = self._about()
        return about.files(partition=partitions if partition is None else partition, since=since)

    def is_overtaken(self) -> Any:
        """Return whether this job reads another version of the input by now than the one that the unit is about.

        All that there is in the other has units of its own. Ask after the states that such units change: one that has
        ended before the answer lets this one be tried again, or is seen in it.
        """
        return self._given(self._is_overtaken)

    def stood(self) -> Any:
        """Return the write after which what the unit is about stood there when this job, or the input's version, began.

        None for a unit of what came later alone; one of both is about a later write.
        """
        return self._given(self._stood)

    def write(
        self, data: Any, *, output: int | str = 0, partition: str | None = None, partition_by: str | None = None,
        columns_from: Mapping[str, Sequence[str | tuple[str, str]]] | None = None,
    ) -> Any:  # fmt: skip
        """Write into an output, as ``update_strategy`` and ``unique_key`` of the job say.

        ``columns_from`` says what columns are made of, as in `TaskDataset.write`.
        """
        name = output if isinstance(output, str) else self._output(output)
        is_append = self.document.get("update_strategy") == "append"
        return self.task.dataset(name).write(
            data, partition=partition, partition_by=partition_by, mode="append" if is_append else "replace",
            unique_key=self.document.get("unique_key") if is_append else None, columns_from=columns_from,
        )  # fmt: skip

    def state(self, key: str = "default") -> Any:
        """Return what was remembered under a key, None before the first time."""
        return self._given(lambda: self._load(key))

    def set_state(self, value: Any, key: str = "default") -> Any:
        """Remember a value under a key: when another unit has changed it since it was read, this one is tried again."""
        return self.set_states({key: value})

    def set_states(self, values: Mapping[str, Any]) -> Any:
        """Remember several values at once, each under its key."""
        encode(dict(values), "state")
        return self._given(lambda: self._set(values))

    def emit(self, *units: Mapping[str, Any], kind: str = "event") -> Any:
        """Make further units of this live job, each a mapping with ``key``, ``said`` and perhaps ``lane``.

        One whose key waits already is not made again; units of one lane run one after the other.
        """
        made = [
            {"kind": kind, "key": each["key"], "lane": each.get("lane", each["key"]), "said": each["said"]}
            for each in units
        ]
        self._units += made
        return self._given(self._stage)

    def call_back(self, url: str, payload: Mapping[str, Any], *, key: str = "default") -> Any:
        """Tell a receiver outside, signed, when the task has completed; those of one key in their order.

        It is told again until it takes it, and knows a repeat by its id. Jobs of a version that is built beside the one
        in effect tell nobody.
        """
        return self.call_back_each(url, [(key, payload)])

    def call_back_each(self, url: str, told: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
        """Tell a receiver several things, as `call_back` does: each a key and what is told; 1,000 at most in a unit."""
        self._callbacks += [{"url": url, "key": key, "payload": dict(payload)} for key, payload in told]
        return self._given(self._stage)

    def rest(self, seconds: float | timedelta) -> Any:
        """Let the next slice of a source begin only after so long: nothing new is there."""
        self._rest = check_span(seconds, "rest", zero=True).total_seconds()
        return self._given(self._stage)

    def caught_up(self) -> Any:
        """Say that a source has brought all that is there by now: a deploy that waits for it may come into effect."""
        self._is_caught_up = True
        return self._given(self._stage)

    def compare_files(
        self, files: Sequence[tuple[str, str]], settle: float, after: str, until: str | None
    ) -> dict[str, Any]:
        """Return which files, of all that are there within these paths, have changed since they were noted, or left.

        For what looks for files; so is `note_files`. It blocks, as does that.
        """
        told = [{"path": path, "tag": tag} for path, tag in files]
        said = {"files": told, "settle": settle, "after": after, "until": until}
        found: dict[str, Any] = self._ask(asks.FILES, said).result()
        return found

    def note_files(self, notes: Sequence[Mapping[str, Any]], units: Sequence[Mapping[str, Any]]) -> None:
        """Remember files as they were seen, and make units of those that have settled: both, or neither."""
        self._files += [dict(each) for each in notes]
        self._units += [{"kind": "file", **each} for each in units]
        self._stage()

    def _about(self) -> tuple[TaskDataset, list[str] | None, int | None]:
        """Return the input that the unit is about, which of its partitions, and since which write."""
        said = self.unit.said
        if "dataset" not in said:
            raise InvalidInput("unit", f"{self.unit.kind}: only units about a dataset have changes; see unit.said")
        since = said["write"] - 1 if self.unit.kind == "update" else None
        return self.input(said["dataset"]), said.get("partitions"), since

    def _is_overtaken(self) -> bool:
        said = self.unit.said
        if self._versions.get(said.get("dataset", ""), 0) is not None:
            return False
        by_now = self._told_anew()[1].get("by_now")
        return by_now is not None and by_now != said["version"]

    def _stood(self) -> int | None:
        if "dataset" not in self.unit.said:
            return None
        info, about = self._told_anew()
        if not info.get("is_boot"):
            return None
        write: int = self.unit.said["write"]
        return about["stood"] if about["by_now"] == self.unit.said["version"] else write

    def _told_anew(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is told of this job just now, and of the input that the unit is about."""
        info: dict[str, Any] = self._ask(asks.JOB, {}).result()
        return info, next(each for each in info["inputs"] if each["name"] == self.unit.said["dataset"])

    def _output(self, place: int) -> str:
        if not 0 <= place < len(self.outputs):
            raise InvalidInput("output", f"{self.job} has {len(self.outputs)} outputs, and no {place}")
        return self.outputs[place]

    def _load(self, key: str) -> Any:
        if key in self._states:
            return self._states[key]
        found = self._ask(asks.STATE, {"key": key}).result()
        self._seen[key] = found["version"]
        return found["state"]

    def _set(self, values: Mapping[str, Any]) -> None:
        for key in values:
            if key not in self._seen:
                self._load(key)
        self._states.update(values)
        self._stage()

    def _stage(self) -> None:
        require_no_step("step", "what the live job remembers and tells")
        states = [{"key": key, "seen": self._seen[key], "state": value} for key, value in self._states.items()]
        said = {
            "states": states, "units": self._units, "callbacks": self._callbacks, "rest": self._rest,
            "is_caught_up": self._is_caught_up, "files": self._files,
        }  # fmt: skip
        self._ask(asks.STAGE, said).result()

    def _given(self, call: Callable[[], Any]) -> Any:
        return asyncio.to_thread(call) if is_in_loop() else call()


# What live jobs mean never changes.
@functools.lru_cache(maxsize=1000)
def _shelf(live_job: str) -> dict[str, Any]:
    return {}


def _info(ctx: Context, live_job: str) -> dict[str, Any]:
    if ctx.ask is None:
        raise InvalidInput("live_job", "only a task that a worker runs belongs to a live job")
    kept = _shelf(live_job)
    if not kept:
        kept.update(ctx.ask(asks.JOB, {}).result())
    return kept


def operator(
    name: str, /, *, registry: Registry = REGISTRY, executor: str | None = None, retry: Retry | int | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """Make a function an operator of live jobs, by a name that DAGs say; it is given a `LiveContext`.

    Example::

        @weft.operator("spread")
        async def spread(live: weft.LiveContext) -> None: ...
    """

    def register(function: F) -> F:
        registry.add(handler_of(function, name, executor=executor, retry=retry))
        return function

    return register


def handler_of(
    function: Callable[..., Any], name: str, *, executor: str | None = None, retry: Retry | int | None = None
) -> AnyHandler:
    """Return the handler that calls an operator with its live context."""
    if asyncio.iscoroutinefunction(function):

        async def live_task(live_job: str, unit: dict[str, Any], ctx: Context) -> Any:
            info = _shelf(live_job) or await asyncio.to_thread(_info, ctx, live_job)
            return await function(LiveContext(ctx, live_job, unit, info))

        made: Callable[..., Any] = live_task
    else:

        def live_work(live_job: str, unit: dict[str, Any], ctx: Context) -> Any:
            return function(LiveContext(ctx, live_job, unit, _info(ctx, live_job)))

        made = live_work
    made.__module__, made.__qualname__, made.__doc__ = function.__module__, function.__qualname__, function.__doc__
    found: AnyHandler = Registry().task(name=name, executor=executor, retry=retry)(made)
    return found
