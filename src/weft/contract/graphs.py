"""How tasks and groups that are put together in Python travel: by their places, with what comes before what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from weft.contract.bounds import Key, Name, Priority
from weft.contract.protocol import Blob, Held, Run
from weft.contract.wire import Id
from weft.core.errors import InvalidInput
from weft.jobs.adding import Addition
from weft.jobs.items import Group, Item, Known, Task
from weft.queue.retry import Retry

_MOST = 10_000
Place = Annotated[int, Field(ge=0, lt=2 * _MOST)]


class NewItem(Run):
    """A task, or a group where there is no ``handler``; ``group`` is the place of the group that it is in."""

    handler: Name | None = None
    name: Name | None = None
    group: Place | None = None


class Graph(BaseModel):
    """Tasks and groups, and what comes before what: ``pairs`` are places of the one before and the one after."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: list[NewItem] = Field(max_length=_MOST)
    pairs: list[Annotated[list[Place], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, max_length=10 * _MOST
    )


class Growth(Graph):
    """What is added to a job.

    The places of ``known``, which are ids of what is part of the job already, come after those of the ``items``.
    """

    known: list[Id] = Field(default_factory=list, max_length=_MOST)


class AddedItem(NewItem):
    """A task, or a group, that a running task adds."""

    blob: Blob | None = Field(None, description="The params, put before, when they are large.")


class Add(Held, Growth):
    """What a running task adds to its job.

    ``number`` counts the calls of the attempt: a later one that makes the same is told the same.
    """

    items: list[AddedItem] = Field(max_length=_MOST)  # type: ignore[assignment]
    number: int = Field(ge=1, le=2**31 - 1)


class NewGraph(Graph):
    """A job to be made of tasks and groups; ``name`` is what its workflow is called."""

    name: Name
    priority: Priority = 0
    idempotency_key: Key | None = None
    labels: dict[str, str] | None = None
    on_failure: Literal["fail_fast", "finish_independent"] = "fail_fast"


class Added(BaseModel):
    """The ids of the items, in their order."""

    ids: list[str]


class Begun(BaseModel):
    """The job, and the ids of its items in their order; none of one that was there by its key."""

    id: str
    created: bool
    ids: list[str]


def packed(addition: Addition) -> dict[str, Any]:
    """Return an addition as it travels."""
    groups = [item.group for item in addition.items if item.group is not None]
    near = [item for pair in addition.pairs for item in pair] + groups
    known = dict.fromkeys(item.id for item in near if item.id is not None)
    places: dict[Item, int] = {item: place for place, item in enumerate(addition.items)}
    known_places = {id: len(addition.items) + place for place, id in enumerate(known)}

    def place_of(item: Item) -> int:
        return places[item] if item.id is None else known_places[item.id]

    return {
        "items": [_packed(item, None if item.group is None else place_of(item.group)) for item in addition.items],
        "known": [str(id) for id in known],
        "pairs": [[place_of(before), place_of(after)] for before, after in addition.pairs],
    }


def _packed(item: Item, group: int | None) -> dict[str, Any]:
    about = {"name": item.name, "group": group}
    if not isinstance(item, Task):
        return about
    return about | {
        "handler": item.handler,
        "params": orjson.Fragment(item.params),
        "queue": item.queue,
        "priority": item.priority,
        "max_attempts": item.max_attempts,
        "retry": None if item.retry is None else orjson.Fragment(item.retry),
        "timeout": None if item.timeout is None else item.timeout.total_seconds(),
        "heartbeat_timeout": None if item.heartbeat_timeout is None else item.heartbeat_timeout.total_seconds(),
        "concurrency_key": item.concurrency_key,
        "allow_failure": item.allow_failure,
    }


def items_in(asked: Graph) -> tuple[list[Item], Sequence[Item]]:
    """Return the new items that were told of, and those that are part of the job; raises `InvalidInput`."""
    new: list[Item] = [_item(each, f"items[{place}]") for place, each in enumerate(asked.items)]
    grouping = {each.group for each in asked.items}
    # Whatever something is to be in is a group; of the others nothing need be known.
    ids = asked.known if isinstance(asked, Growth) else ()
    known: list[Item] = [Group(id=id) if len(new) + place in grouping else Known(id) for place, id in enumerate(ids)]
    every = [*new, *known]
    for place, each in enumerate(asked.items):
        if each.group is not None:
            group = every[each.group] if each.group < len(every) else None
            if not isinstance(group, Group) or group is new[place]:
                raise InvalidInput(f"items[{place}].group", "is not the place of a group")
            group.add(new[place])
    for place, (before, after) in enumerate(asked.pairs):
        if max(before, after) >= len(every):
            raise InvalidInput(f"pairs[{place}]", "is not a pair of places")
        every[after].depends_on(every[before])
    return new, known


def _item(each: NewItem, where: str) -> Item:
    if each.handler is None:
        if each.name is None:
            raise InvalidInput(f"{where}.name", "is missing: a group has a name")
        return Group(each.name)
    retry = None if each.retry is None else Retry(**each.retry.model_dump())
    return Task(
        each.handler, each.params, name=each.name, queue=each.queue, priority=each.priority,
        max_attempts=each.max_attempts, retry=retry, timeout=each.timeout,
        heartbeat_timeout=each.heartbeat_timeout, concurrency_key=each.concurrency_key,
        allow_failure=each.allow_failure,
    )  # fmt: skip
