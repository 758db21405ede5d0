"""How errors travel: their code, what they say, and what they are about, so that they are raised again as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from weft.contract.wire import is_id
from weft.core.errors import InvalidDefinition, MergeConflict, TagConflict, WeftError
from weft.flow.merging import Conflict
from weft.flow.problems import Problem

# What is found by an id, not by a name.
_WITH_IDS = frozenset({"job", "task", "worker", "token", "effect", "version"})
_PLAIN = (str, int, float, bool, type(None))


def told_of(error: WeftError) -> dict[str, Any]:
    """Return what there is to say of an error beside its code and its message."""
    about = {name: _told(name, value) for name, value in vars(error).items() if _travels(value)}
    told = {**error.details, "about": about}
    if isinstance(field := about.get("field"), str):
        told["field"] = field
    return told


def error_in(body: Mapping[str, Any], status: int) -> WeftError:
    """Return the error that a server has told of."""
    kind = _kinds().get(str(body.get("code")), WeftError)
    error = kind.__new__(kind)
    Exception.__init__(error, str(body.get("detail") or f"the server answered with {status}"))
    for name, value in dict(body.get("about") or {}).items():
        setattr(error, name, _read(name, value, body["about"].get("kind")))
    if isinstance(error, InvalidDefinition):
        error.problems = [Problem.from_json(each) for each in body.get("problems", ())]
    if isinstance(error, MergeConflict):
        error.conflicts = [Conflict.from_json(each) for each in body.get("conflicts", ())]
    if isinstance(error, TagConflict):
        error.now = {name: value for name, value in body.get("conflict", {}).items() if name not in ("tag", "why")}
    return error


def _read(name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    holds_id = is_id(name) or (name == "key" and kind in _WITH_IDS)
    return int(value) if holds_id and isinstance(value, str) and value.isdecimal() else value


def _travels(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_travels(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return all(isinstance(each, _PLAIN) for each in value)
    return isinstance(value, _PLAIN)


def _told(name: str, value: Any) -> Any:
    return str(value) if (is_id(name) or name == "key") and isinstance(value, int) else value


@cache
def _kinds() -> dict[str, type[WeftError]]:
    return {kind.code: kind for kind in _below(WeftError) if "code" in vars(kind)}


def _below(kind: type[WeftError]) -> Iterator[type[WeftError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)
