"""Tasks with a cache amid random writes and rollbacks: one runs exactly when a plain model says so.

One that did not run would have changed nothing: neither what there is, nor what it returns.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import weft
from depth import daily
from weft.worker.registry import Registry

PARTS = ("a", "b")
STEPS, LOOKS = 50, 10
MOST = 5
Rows = dict[str, list[int]]


@dataclass
class File:
    """Rows that stand from one write to another; ``token`` is what a rollback brings back."""

    part: str
    token: int
    ids: tuple[int, ...]
    added: int
    removed: int | None = None


@dataclass
class Version:
    """All files there ever were, and for each partition when something of it was taken away."""

    files: list[File] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    last: int = 0
    dropped: int = 0
    columns: int = 1

    def standing(self, part: str | None = None) -> list[File]:
        return [file for file in self.files if file.removed is None and part in (None, file.part)]

    def content(self, parts: Any = None) -> frozenset[int]:
        return frozenset(file.token for file in self.standing() if parts is None or file.part in parts)

    def rows(self) -> Rows:
        found: Rows = {}
        for file in self.standing():
            found.setdefault(file.part, []).extend(file.ids)
        return {part: sorted(ids) for part, ids in sorted(found.items()) if ids}


class Model:
    """One dataset, with the versions that it has had."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self.tokens = tokens
        self.versions: dict[int, Version] = {}
        self.current = 0

    @property
    def now(self) -> Version:
        return self.versions[self.current]

    def rows(self) -> Rows:
        return self.now.rows() if self.current else {}

    def write(
        self, part: str | None, ids: list[int], *, adds: bool = False, breaks: bool = False, wide: int = 1
    ) -> None:
        if breaks or not self.current:
            self.current = len(self.versions) + 1
            self.versions[self.current] = Version()
        version, key = self.now, part or ""
        version.last += 1
        version.columns = max(version.columns, wide)
        if adds:
            known = {id for file in version.standing(key) for id in file.ids}
            ids = [id for id in ids if id not in known]
            version.lost.setdefault(key, version.dropped)
        else:
            for file in version.standing(part):
                file.removed = version.last
            if part is None:
                version.lost, version.dropped = {}, version.last
            version.lost[key] = version.last
        if ids:
            version.files.append(File(key, next(self.tokens), tuple(ids), version.last))

    def go_back(self, number: int, write: int) -> None:
        self.current = number
        version = self.now
        if write == version.last:
            return
        gone = [file for file in version.standing() if file.added > write]
        back = [file for file in version.files if file.added <= write < (file.removed or 0)]
        version.last += 1
        for file in gone:
            file.removed = version.last
        version.files += [File(file.part, file.token, file.ids, version.last) for file in back]
        for part in {file.part for file in (*gone, *back)}:
            version.lost.pop(part, None)
            if version.standing(part):
                version.lost[part] = version.last
            else:
                version.dropped = version.last


@dataclass
class Entry:
    """An output with what it was made of."""

    output: Any
    read: list[tuple[Any, ...]]
    wrote: list[tuple[Any, ...]]


class World:
    """What there is, and what is in the cache, by a plain account."""

    def __init__(self) -> None:
        tokens = itertools.count(1)
        self.sets = {name: Model(tokens) for name in ("orders", "daily", "log")}
        self.kept: dict[Any, list[Entry]] = {}

    def stands(self, entry: Entry) -> bool:
        for name, number, parts, content, columns in entry.read:
            now = self.sets[name]
            if (now.current, now.now.content(parts), now.now.columns) != (number, content, columns):
                return False
        for name, number, role, parts, told in entry.wrote:
            now = self.sets[name]
            if now.current != number:
                return False
            if role == "added":
                if any(now.now.lost.get(part, told + 1) > told for part in parts):
                    return False
            elif now.now.content(parts) != told:
                return False
        return True

    def does(self, kind: str, part: str | None) -> tuple[Any, list[tuple[Any, ...]]]:
        """Return what a handler returns, and carry out what it writes."""
        orders = self.sets["orders"].rows()
        seen = sorted(itertools.chain.from_iterable(ids for key, ids in orders.items() if part in (None, key)))
        output = sum(seen)
        if kind == "read":
            return output, []
        name = "log" if kind == "add" else "daily"
        target = self.sets[name]
        into = None if kind == "whole" else part or "a"
        target.write(into, [output % 7], adds=kind == "add")
        role = {"add": "added", "whole": "whole", "part": "replaced"}[kind]
        parts = None if kind == "whole" else (into,)
        told = target.now.last if kind == "add" else target.now.content(parts)
        return output, [(name, target.current, role, parts, told)]

    def call(self, kind: str, part: str | None) -> tuple[bool, Any]:
        """Return whether a handler runs, and its output."""
        entries = self.kept.setdefault((kind, part), [])
        for entry in entries:
            if self.stands(entry):
                before = {name: each.rows() for name, each in self.sets.items()}
                kept, self.sets = self.sets, _copied(self.sets)
                output, _ = self.does(kind, part)
                after = {name: each.rows() for name, each in self.sets.items()}
                self.sets = kept
                assert (output, after) == (entry.output, before), "it would have made a difference to run"
                return False, entry.output
        orders = self.sets["orders"]
        parts = None if part is None else (part,)
        read = [("orders", orders.current, parts, orders.now.content(parts), orders.now.columns)]
        output, wrote = self.does(kind, part)
        entries.insert(0, Entry(output, read, wrote))
        del entries[MOST:]
        return True, output


def _copied(sets: dict[str, Model]) -> dict[str, Model]:
    tokens = itertools.count(10**9)
    found = {}
    for name, each in sets.items():
        found[name] = Model(tokens)
        found[name].versions, found[name].current = copy.deepcopy(each.versions), each.current
    return found


def _handlers(registry: Registry, ran: list[int]) -> None:
    @registry.task(name="put")
    async def put(said: dict[str, Any], ctx: weft.Context) -> None:
        rows = [{"id": id, "more": 1} if said["wide"] > 1 else {"id": id} for id in said["ids"]]
        how = {"mode": "append", "unique_key": "id"} if said["adds"] else {"breaking": said["breaks"]}
        await ctx.dataset("orders").write(rows, partition=said["part"], **how)

    @registry.task(name="cached", cache=True)
    async def cached(kind: str, part: str | None, ctx: weft.Context) -> int:
        ran.append(ctx.task_id)
        output = sum((await ctx.dataset("orders").read(partition=part)).column("id").to_pylist())
        rows = [{"id": output % 7}]
        if kind == "whole":
            await ctx.dataset("daily").write(rows)
        elif kind == "part":
            await ctx.dataset("daily").write(rows, partition=part or "a")
        elif kind == "add":
            await ctx.dataset("log").write(rows, partition=part or "a", mode="append", unique_key="id")
        return output

    @registry.task(name="dump")
    async def dump(name: str, ctx: weft.Context) -> Rows:
        dataset, found = ctx.dataset(name), {}
        for key in ("", *PARTS):
            found[key] = sorted((await dataset.read(partition=key)).column("id").to_pylist())
        return {key: ids for key, ids in found.items() if ids}


def _change(chance: random.Random, ids: Iterator[int], world: World) -> dict[str, Any]:
    """Return a write into what is read: of a partition or all, over or beside what is there, perhaps with a column."""
    adds = chance.random() < 0.3
    part = chance.choice([*PARTS, None]) if not adds else chance.choice(PARTS)
    breaks = part is None and chance.random() < 0.3
    columns = world.sets["orders"].now.columns if world.sets["orders"].current else 1
    wide = 1 if breaks else max(columns, 1 + (chance.random() < 0.1))
    return {"part": part, "ids": [next(ids)], "adds": adds, "breaks": breaks, "wide": wide}


@pytest.mark.parametrize(
    ("client", "seed"),
    [*daily((("direct", seed) for seed in range(4)), 4), ("through a server", 4)],
    indirect=["client"],
)
async def test_a_task_runs_exactly_when_the_model_says_so(client: weft.Client, registry: Registry, seed: int) -> None:
    chance, ids, world, ran = random.Random(seed), itertools.count(1), World(), list[int]()
    _handlers(registry, ran)
    counted, kind, part = {True: 0, False: 0}, "read", None

    async def call(handler: str, **params: Any) -> Any:
        return await client.wait((await client.enqueue(handler, params)).id, timeout=30)

    async with weft.Worker(client=client, registry=registry):
        for step in range(STEPS):
            known = [name for name, each in world.sets.items() if each.current]
            act = chance.choices(["put", "back", "call"], [2, 2, 6])[0]
            if act == "put" or not known:
                said = _change(chance, ids, world)
                world.sets["orders"].write(
                    said["part"], said["ids"], adds=said["adds"], breaks=said["breaks"], wide=said["wide"]
                )
                await call("put", said=said)
            elif act == "back":
                name = chance.choice(known)
                number = chance.choice(list(world.sets[name].versions))
                write = chance.randint(1, world.sets[name].versions[number].last)
                world.sets[name].go_back(number, write)
                await client.datasets.rollback(f"{name}@{number}.{write}")
            else:
                if chance.random() < 0.5:
                    kind, part = chance.choice(["read", "whole", "part", "add"]), chance.choice([*PARTS, None])
                runs, output = world.call(kind, part)
                before = len(ran)
                assert await call("cached", kind=kind, part=part) == output, step
                assert (len(ran) > before) is runs, (step, kind, part)
                counted[runs] += 1
            for name, each in world.sets.items():
                if each.current and step % LOOKS == LOOKS - 1:
                    assert await call("dump", name=name) == each.rows(), (step, name)
    assert min(counted.values()) >= 5, counted
