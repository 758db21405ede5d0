"""How what a call returns travels: nothing, a record, a page of a list, a single value under a name, or bytes."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from weft.contract.operations import Operation
from weft.contract.wire import is_id, new_model, wire
from weft.core.checks import LONGEST_PAGE
from weft.history.model import Artifact
from weft.jobs.model import JobPage, JobSummary
from weft.queue.model import Page, TaskSummary


class Answer(NamedTuple):
    """The form of an answer: what Pydantic knows of it (None: it has no JSON), and the ways there and back.

    ``encode`` is told with which arguments was asked.
    """

    model: Any
    encode: Callable[[Any, Mapping[str, Any]], Any]
    decode: Callable[[Any], Any]


@cache
def answer_of(operation: Operation) -> Answer:
    """Return the form in which a call is answered."""
    returns = operation.returns
    if returns is types.NoneType or returns == bytes | None:
        return Answer(None, lambda value, _: value, lambda value: value)
    if operation.call == "workflows.blame":
        return _blame()
    if operation.answer is not None:
        return _single(operation, operation.answer)
    if returns is Page:
        return _kept_page("TaskPage", Page, TaskSummary, "tasks")
    if returns is JobPage:
        return _kept_page("JobSummaryPage", JobPage, JobSummary, "jobs")
    if get_origin(returns) in (list, set):
        return _page(operation)
    plain = wire(returns)
    return Answer(plain.type, lambda value, _: plain.encode(value), plain.decode)


def _single(operation: Operation, name: str) -> Answer:
    inner = wire(operation.returns, name)
    title = "".join(word.title() for word in operation.call.replace(".", "_").split("_"))
    model = new_model(f"{title}Answer", {name: (inner.type, ...)})
    encode = str if is_id(name) else lambda value: value
    return Answer(model, lambda value, _: {name: encode(value)}, lambda body: inner.decode(body[name]))


def _page(operation: Operation) -> Answer:
    returns, key = operation.returns, operation.key
    inner = wire(get_args(returns)[0])
    title = inner.type.__name__[0].upper() + inner.type.__name__[1:]
    model = _page_model(f"{title}Page", inner.type)
    usual = next((each.default for each in operation.parameters if each.name == "limit"), LONGEST_PAGE)

    def encode(found: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
        rows = sorted(found) if isinstance(found, set) else found
        # What has no key is a list by itself.
        last = getattr(rows[-1], key) if rows and key is not None and len(rows) >= asked.get("limit", usual) else None
        return {"items": [inner.encode(row) for row in rows], "next": None if last is None else str(last)}

    kind = set if get_origin(returns) is set else list
    return Answer(model, encode, lambda body: kind(inner.decode(row) for row in body["items"]))


def _page_model(name: str, item: Any) -> Any:
    parts = {"items": (list[item], ...), "next": (str | None, None)}
    return new_model(name, parts, "A page of a list; `next` asks for the one after it.")


def _kept_page(name: str, kind: type[Page] | type[JobPage], item: Any, lines: str) -> Answer:
    """Return the form of a page that knows by itself where the next one begins."""
    inner = wire(item)
    model = _page_model(name, inner.type)

    def encode(page: Any, _: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "items": [inner.encode(each) for each in getattr(page, lines)],
            "next": None if page.next is None else str(page.next),
        }

    def decode(body: Mapping[str, Any]) -> Any:
        following = None if body["next"] is None else int(body["next"])
        return kind(tuple(inner.decode(each) for each in body["items"]), following)

    return Answer(model, encode, decode)


def _blame() -> Answer:
    inner = wire(Artifact)
    parts = {"path": (list[str | int], ...), "artifact": (inner.type, ...)}
    model = _page_model("BlamedPage", new_model("Blamed", parts, "A field and the change that last touched it."))

    def encode(found: Mapping[tuple[str | int, ...], Artifact], _: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "items": [{"path": list(path), "artifact": inner.encode(each)} for path, each in found.items()],
            "next": None,
        }

    return Answer(
        model, encode, lambda body: {tuple(each["path"]): inner.decode(each["artifact"]) for each in body["items"]}
    )
