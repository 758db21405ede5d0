"""An operation: a call of the client, the route by which it is made over HTTP, and who may make it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, get_type_hints

from weft.catalog.model import TokenRole
from weft.contract.parameters import LEFT_OUT, Parameter, Place, parameter_of
from weft.contract.words import for_http
from weft.core import errors
from weft.sdk.client import Client

# What the documentation of a method says to those who call it from Python.
_FOR_PYTHON = re.compile(r"( Raises|; raises|; pass) [^.;]*(`[A-Z]\w+`|next page)[^.;]*|; return how many[^.;]*")
_SENTENCE = re.compile(r"(?<=[.;]) ")
_IN_PROCESS = re.compile(rf"^Raises|`({'|'.join(sorted(LEFT_OUT))})`")
_ERROR = re.compile(r"`([A-Z]\w+)`")
# By this type calls that take long are asked to tell how far they are.
NDJSON = "application/x-ndjson"
# What is done bit by bit: when it breaks off, some of it is done, and it is asked for again.
_IN_PARTS = frozenset(
    {
        "cancel_all", "live.retry", "replay_all", "replay_dead", "replay_outbox", "purge", "purge_outbox",
        "workflows.fsck", "workflows.gc", "datasets.gc",
    }
)  # fmt: skip
_MADE_BY_KEY = frozenset({"jobs.submit", "enqueue"})
_RESUMED = frozenset({"jobs.rerun_all"})
_TAKEN = {"operator": "an operator: an admin of the org `default`"}
_IN_PATH = re.compile(r"{(\w+)(?::\w+)?}")


class Access(StrEnum):
    """Who may make a call, each including those before it; an operator is an admin of the installation's own org."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    OPERATOR = "operator"

    def allows(self, role: TokenRole, *, is_operator: bool) -> bool:
        """Whether a credential of a role may make the call; a worker's is good for the worker protocol alone."""
        if role is TokenRole.WORKER:
            return False
        held = Access.OPERATOR if is_operator and role is TokenRole.ADMIN else Access(role)
        order = list(Access)
        return order.index(held) >= order.index(self)


@dataclass(frozen=True, eq=False)
class Operation:
    """A call of the client as a route.

    ``call`` is the name of the method, such as ``jobs.submit``. What its path does not name is in the query of a GET,
    else in the body. A single value is answered under the name ``answer``; of a list ``key`` is the field by which the
    next page is asked for. ``body`` is an example of what is sent; ``said`` tells what it does, where the method's own
    words do not fit.
    """

    call: str
    method: str
    path: str
    access: Access
    status: int = 200
    answer: str | None = None
    key: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    said: str | None = None

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The method of the client, not yet of any client."""
        kind, _, name = self.call.rpartition(".")
        if not kind:
            return getattr(Client, name)  # type: ignore[no-any-return]
        group = inspect.getattr_static(Client, kind).func
        return getattr(get_type_hints(group, _group_types())["return"], name)  # type: ignore[no-any-return]

    def of(self, client: Client) -> Callable[..., Any]:
        """Return the method of one client."""
        kind, _, name = self.call.rpartition(".")
        return getattr(getattr(client, kind) if kind else client, name)  # type: ignore[no-any-return]

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The types of the method's arguments and of what it returns."""
        module = inspect.getmodule(self.function)
        return get_type_hints(self.function, {**_annotation_names(), **vars(module)})

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the call takes over HTTP."""
        in_path = set(_IN_PATH.findall(self.path))
        wanted = list(inspect.signature(self.function).parameters.values())[1:]
        rest: Place = "query" if self.method in ("GET", "DELETE") else "body"
        return tuple(
            parameter_of(self.call, each, self.hints[each.name], "path" if each.name in in_path else rest)
            for each in wanted
            if each.name not in LEFT_OUT
        )

    @property
    def returns(self) -> Any:
        """The type of what the method returns."""
        return self.hints["return"]

    @property
    def pages_by(self) -> str | None:
        """The argument by which the next page is asked for, of a call that returns all where the database is."""
        limit = inspect.signature(self.function).parameters.get("limit")
        if self.key is None or limit is None or limit.default is not None:
            return None
        return next(each.name for each in self.parameters if each.name in ("before", "after"))

    @property
    def makes_by_key(self) -> bool:
        """Whether what the call makes is kept with the key of the request: there is no cheaper way to make it once."""
        return self.call in _MADE_BY_KEY

    @property
    def goes_on_by_key(self) -> bool:
        """Whether the call is made of many, and the same key again goes on with the rest of them."""
        return self.call in _RESUMED

    @property
    def tells_progress(self) -> bool:
        """Whether the call may take long, and says how far it is."""
        return "on_progress" in inspect.signature(self.function).parameters

    @property
    def changes(self) -> bool:
        """Whether it changes something, which is kept as somebody's act."""
        return self.method != "GET" and self.access is not Access.READER

    @property
    def takes_key(self) -> bool:
        """Whether it changes something, all of it or nothing, and so may be sent again with a key."""
        return self.changes and self.call not in _IN_PARTS

    @property
    def summary(self) -> str:
        """What the call does, in one sentence."""
        told = self.said or (inspect.getdoc(self.function) or "").split("\n\n", maxsplit=1)[0]
        if self.answer is not None:
            told = told.replace("; False when", f"; `{self.answer}` is false when")
        return for_http(_FOR_PYTHON.sub("", told.replace("``", "`")).replace("..", "."))

    @property
    def description(self) -> str:
        """What there is to know beyond that, who may make the call, and the errors that are its own."""
        doc = inspect.getdoc(self.function) or ""
        _, _, rest = doc.partition("\n\n")
        sentences = _SENTENCE.split(" ".join(rest.partition("Example::")[0].split()).replace("``", "`"))
        told = for_http(" ".join(each for each in sentences if not _IN_PROCESS.search(each)))
        own = [kind for name in dict.fromkeys(_ERROR.findall(doc)) if (kind := getattr(errors, name, None)) is not None]
        refused = ", ".join(f"`{kind.code}` ({kind.http_status})" for kind in own)
        lines = f"Who accepts `{NDJSON}` is told how far it is, a line each second." if self.tells_progress else ""
        taken = f"Takes {_TAKEN.get(self.access) or f'the role `{self.access}`'}."
        parts = [told, taken, f"It may end with {refused}." if refused else "", lines]
        return " ".join(part for part in parts if part)


def _group_types() -> dict[str, Any]:
    from weft.sdk.datasets import Datasets
    from weft.sdk.jobs import Jobs
    from weft.sdk.live import Live
    from weft.sdk.orgs import Orgs
    from weft.sdk.roles import Roles
    from weft.sdk.schedules import Schedules
    from weft.sdk.tokens import Tokens
    from weft.sdk.users import Users
    from weft.sdk.workflows import Workflows

    return {kind.__name__: kind for kind in (Datasets, Jobs, Live, Orgs, Roles, Schedules, Tokens, Users, Workflows)}


def _annotation_names() -> dict[str, Any]:
    """Return what annotations name that is imported for type checkers only."""
    from collections.abc import Iterable, Sequence

    from weft.flow.patches import Op
    from weft.flow.problems import Path as FieldPath
    from weft.worker.registry import Registry

    return {"FieldPath": FieldPath, "Op": Op, "Registry": Registry, "Iterable": Iterable, "Sequence": Sequence}
