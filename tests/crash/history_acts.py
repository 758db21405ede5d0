"""Every verb that changes the history of a workflow, each on a workflow that was made ready for it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import weft

DEPTH = 3
# Longer than what is kept in a row.
LONG = "x" * 300_000
# What is seen of a workflow: the size and the queue in its document, and what its tag is at.
Seen = tuple[int, str, str] | None


@dataclass(frozen=True)
class Act:
    """A verb; ``seen`` is what is seen before it, when it was done, and when it was done twice."""

    prepare: Callable[[weft.Workflows, str], Awaitable[Any]]
    perform: Callable[[weft.Workflows, str, Any], Awaitable[Any]]
    seen: tuple[Seen, Seen, Seen]
    # The moves that it makes, and the artifacts that no tag is ever at.
    moves: int = 1
    kept: int = 0
    # Where it puts what is over the inline limit, a folder or a bucket; nothing is, in most.
    storage: str | None = None


def settings_for(url: str, home: Path | str, actor: str, blob_url: str | None = None) -> weft.Settings:
    """Settings under which patches are compacted soon, of somebody whose moves are known by their name."""
    return weft.Settings.load(
        environ={}, database_url=url, home=home, actor=actor, blob_url=blob_url, compaction_depth=DEPTH
    )


def flow(name: str, size: int = 1) -> dict[str, Any]:
    """A definition."""
    return {
        "workflow_id": name,
        "nodes": {
            "START": {"type": "start", "next": "fetch"},
            "fetch": {"handler": "fetch", "params": {"size": size}, "next": "load"},
            "load": {"handler": "load", "queue": "db", "next": "END"},
            "END": {"type": "end"},
        },
    }


async def seen_of(workflows: weft.Workflows, name: str, line: str = "main") -> Seen:
    """Look at a line of a workflow; None: it is not there."""
    try:
        shown = await workflows.show(f"{name}/{line}")
    except weft.NotFound:
        return None
    nodes = shown.data["nodes"]
    return nodes["fetch"]["params"]["size"], nodes["load"]["queue"], shown.kind


async def _sizes(workflows: weft.Workflows, name: str, upto: int) -> list[int]:
    """Push a definition and patch it, one size after the other; return what each made."""
    made = [(await workflows.push(flow(name))).artifact_id]
    for size in range(2, upto + 1):
        made.append((await workflows.patch(name, set={"nodes.fetch.params.size": size})).artifact_id)
    return made


async def _queue(workflows: weft.Workflows, tag: str) -> None:
    await workflows.patch(tag, set={"nodes.load.queue": "fast"})


async def _nothing(workflows: weft.Workflows, name: str) -> None:
    pass


async def _one(workflows: weft.Workflows, name: str) -> list[int]:
    return await _sizes(workflows, name, 1)


async def _three(workflows: weft.Workflows, name: str) -> list[int]:
    return await _sizes(workflows, name, 3)


async def _four(workflows: weft.Workflows, name: str) -> list[int]:
    return await _sizes(workflows, name, 4)


async def _one_deleted(workflows: weft.Workflows, name: str) -> None:
    await _one(workflows, name)
    await workflows.delete(name)


async def _four_undone(workflows: weft.Workflows, name: str) -> None:
    await _four(workflows, name)
    await workflows.undo(name, 3)


async def _two_lines(workflows: weft.Workflows, name: str) -> None:
    await _one(workflows, name)
    await workflows.branch(f"{name}/faster", name)
    await _queue(workflows, f"{name}/faster")
    await workflows.patch(name, set={"nodes.fetch.params.size": 2})


async def _one_in_the_middle(workflows: weft.Workflows, name: str) -> int:
    _, wrong = await _sizes(workflows, name, 2)
    await _queue(workflows, name)
    return wrong


async def _delete(workflows: weft.Workflows, name: str, _: Any) -> None:
    with contextlib.suppress(weft.NotFound):
        await workflows.delete(f"{name}/main")


async def _undelete(workflows: weft.Workflows, name: str, _: Any) -> None:
    with contextlib.suppress(weft.StateConflict):
        await workflows.undelete(f"{name}/main")


ACTS: dict[str, Act] = {
    "push of a new workflow": Act(
        _nothing, lambda w, name, _: w.push(flow(name)), (None, (1, "db", "version"), (1, "db", "version"))
    ),
    "push": Act(
        _three, lambda w, name, _: w.push(flow(name, 9)),
        ((3, "db", "patch"), (9, "db", "version"), (9, "db", "version")),
    ),
    "patch": Act(
        _one, lambda w, name, _: _queue(w, name), ((1, "db", "version"), (1, "fast", "patch"), (1, "fast", "patch"))
    ),
    "patch that compacts": Act(
        _four, lambda w, name, _: _queue(w, name), ((4, "db", "patch"), (4, "fast", "patch"), (4, "fast", "patch")), 2
    ),
    "merge": Act(
        _two_lines, lambda w, name, _: w.merge(f"{name}/faster", into=name),
        ((2, "db", "patch"), (2, "fast", "patch"), (2, "fast", "patch")),
    ),
    "revert": Act(
        _one_in_the_middle, lambda w, name, wrong: w.revert(name, wrong),
        ((2, "fast", "patch"), (1, "fast", "patch"), (1, "fast", "patch")),
    ),
    "move": Act(
        _three, lambda w, name, made: w.move(f"{name}/main", made[1]),
        ((3, "db", "patch"), (2, "db", "patch"), (2, "db", "patch")),
    ),
    "undo": Act(
        _four, lambda w, name, _: w.undo(name), ((4, "db", "patch"), (3, "db", "patch"), (2, "db", "patch"))
    ),
    "undo of two steps": Act(
        _four, lambda w, name, _: w.undo(name, 2), ((4, "db", "patch"), (2, "db", "patch"), (1, "db", "version")), 2
    ),
    "redo": Act(
        _four_undone, lambda w, name, _: w.redo(name), ((1, "db", "version"), (2, "db", "patch"), (3, "db", "patch"))
    ),
    "compact": Act(
        _three, lambda w, name, _: w.compact(name),
        ((3, "db", "patch"), (3, "db", "version"), (3, "db", "version")),
    ),
    "snapshot of a patch": Act(
        _four, lambda w, name, _: w.snapshot(name, set={"nodes.fetch.params.size": 9}),
        ((4, "db", "patch"), (4, "db", "patch"), (4, "db", "patch")), 0, 2,
    ),
    "delete": Act(_one, _delete, ((1, "db", "version"), None, None)),
    "undelete": Act(_one_deleted, _undelete, (None, (1, "db", "version"), (1, "db", "version"))),
}  # fmt: skip


def _push_of_a_large_definition(storage: str) -> Act:
    """The push of a definition that is over the inline limit."""

    def large(name: str) -> dict[str, Any]:
        made = flow(name, 9)
        # Another each time: what somebody has put who died is not what comes to be used.
        made["nodes"]["fetch"]["params"]["text"] = LONG + uuid.uuid4().hex
        return made

    return Act(
        _one, lambda w, name, _: w.push(large(name)),
        ((1, "db", "version"), (9, "db", "version"), (9, "db", "version")), storage=storage,
    )  # fmt: skip


# What is kept in two places: the storage has it before the database says so.
LARGE: dict[str, Act] = {
    f"push of a large definition into a {storage}": _push_of_a_large_definition(storage)
    for storage in ("folder", "bucket")
}


async def _one_with_snapshots(workflows: weft.Workflows, name: str) -> None:
    await _three(workflows, name)
    await workflows.snapshot(name)
    for size in (8, 9):
        await workflows.snapshot(name, set={"nodes.fetch.params.size": size})


async def _two_lines_with_a_snapshot(workflows: weft.Workflows, name: str) -> None:
    await _three(workflows, name)
    for line in ("other", "lost"):
        await workflows.branch(f"{name}/{line}", name)
    await workflows.patch(f"{name}/lost", set={"nodes.fetch.params.size": 4})
    await workflows.snapshot(name)


# What no tag tells of: it is done in several steps, each whole by itself.
UPKEEP: dict[str, Act] = {
    "gc": Act(
        _one_with_snapshots, lambda w, name, _: w.gc(),
        ((3, "db", "patch"), (3, "db", "patch"), (3, "db", "patch")), 0,
    ),
    "repair": Act(
        _two_lines_with_a_snapshot, lambda w, name, _: w.fsck(repair=True),
        ((3, "db", "patch"), (3, "db", "patch"), (3, "db", "patch")), 0,
    ),
}  # fmt: skip
