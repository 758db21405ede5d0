"""Tasks and groups as authors put them together, before they are part of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Self, TypeVar

from weft.core.checks import check_handler, check_key, check_name, check_number, check_priority, check_queue, check_span
from weft.core.errors import InvalidInput
from weft.core.json import encode
from weft.flow.names import MAX_NAME, NAME
from weft.queue.retry import MAX_ATTEMPTS, Retry

_NAME = re.compile(NAME)
AnyItem = TypeVar("AnyItem", bound="Item")


class Item:
    """Something in a job that may come before or after something else; it has an id when it is part of the job."""

    __slots__ = ("_group", "after", "before", "id", "job_id", "name")

    def __init__(self, name: str | None, group: Group | None, id: int | None) -> None:
        self.name = name
        self.id = id
        self.job_id: int | None = None
        # What comes before it, and whether the job knows that already.
        self.before: dict[Item, bool] = {}
        self.after: list[Item] = []
        self._group: Group | None = None
        if group is not None:
            group.add(self)

    @property
    def group(self) -> Group | None:
        """The group that it is in."""
        return self._group

    def join(self, group: Group) -> None:
        """Note the group that it is in, of something that is part of a job."""
        self._group = group

    @property
    def called(self) -> str:
        """What errors call it."""
        return self.name or f"{type(self).__name__.lower()} {self.id or ''}".strip()

    def depends_on(self, other: Item | Iterable[Item]) -> Self:
        """Let this wait until ``other``, or each of several, has completed; return this.

        Example::

            load.depends_on(extract)
        """
        for item in items_of(other, "depends_on"):
            if item not in self.before:
                self.before[item] = False
                item.after.append(self)
        return self

    def __rshift__(self, other: AnyItem | list[AnyItem]) -> AnyItem | list[AnyItem]:
        """``a >> b``: b waits for a."""
        for item in items_of(other, ">>"):
            item.depends_on(self)
        return other

    def __lshift__(self, other: Item | list[Item]) -> Self:
        """``a << b``: a waits for b."""
        return self.depends_on(other)

    def __rrshift__(self, other: Iterable[Item]) -> Self:
        """``[a, b] >> c``: c waits for both."""
        return self.depends_on(other)

    def __rlshift__(self, other: list[AnyItem]) -> list[AnyItem]:
        """``[a, b] << c``: both wait for c."""
        for item in items_of(other, "<<"):
            item.depends_on(self)
        return other


class Group(Item):
    """Tasks and groups that can be waited for, or wait, as one. An empty one completes at once.

    Example::

        extract, load = Group("extract"), Group("load")
        extract.add(read_orders, read_customers)
        extract >> load
    """

    __slots__ = ("members",)

    def __init__(self, name: str | None = None, *, group: Group | None = None, id: int | None = None) -> None:
        self.members: list[Item] = []
        super().__init__(None if name is None and id is not None else check_item_name(name, "name"), group, id)

    def add(self, *items: Item) -> Self:
        """Put tasks and groups into this one; return it."""
        for item in items_of(items, "group"):
            if item._group is not None and item._group is not self:
                raise InvalidInput("group", f"{item.called} is in the group {item._group.called} already")
            if item.id is not None:
                raise InvalidInput("group", f"{item.called} is part of a job already, and stays where it is")
            if item._group is None:
                item._group = self
                self.members.append(item)
        return self


class Task(Item):
    """A call of a handler with its params.

    ``name`` is that of its node; by default its handler's last part, and a number when there are several.
    """

    __slots__ = (
        "allow_failure", "concurrency_key", "handler", "heartbeat_timeout", "max_attempts", "params", "priority",
        "queue", "retry", "timeout",
    )  # fmt: skip

    def __init__(
        self, handler: str, params: Mapping[str, Any] | None = None, *, name: str | None = None,
        group: Group | None = None, queue: str = "default", priority: int = 0, max_attempts: int | None = None,
        retry: Retry | None = None, timeout: float | timedelta | None = None,
        heartbeat_timeout: float | timedelta | None = None, concurrency_key: str | None = None,
        allow_failure: bool = False, id: int | None = None,
    ) -> None:  # fmt: skip
        self.handler = check_handler(handler)
        if params is not None and not isinstance(params, Mapping):
            raise InvalidInput("params", f"must be a mapping of arguments by name, not {type(params).__name__}")
        self.params = "{}" if not params else encode(dict(params), "params")
        self.queue = queue if queue == "default" else check_queue(queue)
        self.priority = priority if priority == 0 else check_priority(priority)
        self.retry = None if retry is None else retry.to_json()
        self.max_attempts = None if retry is None else retry.max_attempts
        if max_attempts is not None:
            self.max_attempts = check_number(max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
        self.timeout = None if timeout is None else check_span(timeout, "timeout")
        self.heartbeat_timeout = (
            None if heartbeat_timeout is None else check_span(heartbeat_timeout, "heartbeat_timeout")
        )
        self.concurrency_key = None if concurrency_key is None else check_key(concurrency_key, "concurrency_key")
        self.allow_failure = allow_failure
        super().__init__(None if name is None else check_item_name(name, "name"), group, id)

    @property
    def called(self) -> str:
        """What errors call it."""
        return self.name or self.handler.rpartition(".")[2]


class Known(Item):
    """A task or group that is part of the job already, known by its id alone."""

    __slots__ = ()

    def __init__(self, id: int) -> None:
        super().__init__(None, None, id)

    @property
    def called(self) -> str:
        """What errors call it."""
        return str(self.id)


def check_item_name(value: object, field: str) -> str:
    """The name of a task or group, which is that of its node."""
    name = check_name(value, field)
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(field, f"{name[:60]!r} is no name: letters, digits, _ and -, up to {MAX_NAME}")
    return name


def items_of(value: object, field: str) -> list[Item]:
    """Return one item, or each of several, as a list."""
    entries = [value] if isinstance(value, Item) or not isinstance(value, Iterable) else list(value)
    found: list[Item] = []
    for item in entries:
        if not isinstance(item, Item):
            raise InvalidInput(field, f"must be a task or a group, or a list of them, not {type(item).__name__}")
        found.append(item)
    return found
