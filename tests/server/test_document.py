"""The OpenAPI document: complete, sound, with examples that are what they say, and the same as the client's calls."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import openapi_spec_validator
from described import described
from jsonschema import Draft202012Validator

from weft.contract.operations import Operation
from weft.contract.parameters import LEFT_OUT
from weft.contract.table import OPERATIONS
from weft.core.errors import InvalidDefinition, MergeConflict, TagConflict, WeftError
from weft.flow.diff import Diff
from weft.jobs.model import JobPage
from weft.queue.model import Page
from weft.remote.client import RemoteClient
from weft.server.endpoints import FILES
from weft.server.notes import operations
from weft.server.problems import Problem

_ONCE = frozenset({"if-match", "if-none-match", "idempotency-key", "weft-reason"})


@cache
def _document() -> dict[str, Any]:
    return described()


def _every(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        for each in value.values():
            yield from _every(each)
    if isinstance(value, list):
        for each in value:
            yield from _every(each)


def _at(reference: str) -> Any:
    found = _document()
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def _of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return _at(schema["$ref"]) if "$ref" in schema else schema


def test_the_document_is_sound_and_all_that_it_refers_to_is_there() -> None:
    openapi_spec_validator.validate(_document())
    for each in _every(_document()):
        if isinstance(each.get("$ref"), str):
            assert _at(each["$ref"])


def test_no_two_paths_are_alike_but_for_the_names_of_their_parameters() -> None:
    shapes = [re.sub(r"{\w+}", "{}", path) for path in _document()["paths"]]
    assert len(set(shapes)) == len(shapes)


def test_the_page_of_the_interface_tells_of_every_route() -> None:
    page = Path(__file__).parents[2].joinpath("docs/reference/http.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([A-Z]+ /[^`]*)`", page, re.MULTILINE))
    assert {name.replace(" /api/v1/", " /") for name, _ in operations(_document())} == told


def test_every_operation_says_what_it_does_who_may_ask_and_how_it_answers() -> None:
    told = {tag["name"]: tag["description"] for tag in _document()["tags"]}
    seen = set()
    for name, operation in operations(_document()):
        assert operation["operationId"] not in seen, name
        seen.add(operation["operationId"])
        assert operation["summary"].endswith("."), name
        assert len(operation["description"]) > 20, name
        assert operation["tags"], name
        assert all(told[tag] for tag in operation["tags"]), f"{name}: say in server/notes.py what the tag is about"
        assert all(each["description"] for each in operation.get("parameters", ())), name
        good = {status: answer for status, answer in operation["responses"].items() if status[0] == "2"}
        assert good, name
        assert all("X-Request-Id" in answer["headers"] for answer in good.values()), name
        if operation.get("security"):
            assert operation["responses"].keys() >= {"401", "403", "404", "422", "503"}, name
        if "requestBody" in operation:
            assert operation["responses"].keys() >= {"400", "408", "413", "415"}, name


def test_every_example_is_what_it_is_an_example_of() -> None:
    seen = 0
    for name, operation in operations(_document()):
        contents = [operation.get("requestBody", {}), *map(_of, operation["responses"].values())]
        for content in [each for part in contents for each in part.get("content", {}).items()]:
            media_type, told = content
            examples = [each["value"] for each in told.get("examples", {}).values()]
            examples += [told["example"]] if "example" in told else []
            assert examples, f"{name} has no example of {media_type}"
            for example in examples:
                checked = Draft202012Validator({**told["schema"], "components": _document()["components"]})
                assert not [error.message for error in checked.iter_errors(example)], f"{name}: {example}"
                seen += 1
    assert seen > 10 * len(OPERATIONS) // 2


def _parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, value
    for part, inner in value.items() if isinstance(value, Mapping) else ():
        yield from _parts(inner, part)
    for inner in value if isinstance(value, list) else ():
        yield from _parts(inner, name.rstrip("s"))


def test_no_example_of_an_answer_is_made_up_of_the_names_of_its_fields_or_could_never_be() -> None:
    for name, operation in operations(_document()):
        for answer in map(_of, operation["responses"].values()):
            example = answer.get("content", {}).get("application/json", {}).get("example")
            for part, value in _parts(example):
                told = f"{name}: say in server/likenesses.py what {part} is like"
                assert not (isinstance(value, str) and value in (part, part.replace("_", "-"))), told
                if isinstance(value, Mapping) and value.get("ended_at"):
                    assert value.get("state", "completed") in ("completed", "failed", "dead", "cancelled"), told


def test_a_refusal_says_all_that_is_sent_with_it() -> None:
    telling = {InvalidDefinition: "problems", MergeConflict: "conflicts", TagConflict: "conflict"}
    every: list[type[WeftError]] = [WeftError]
    for kind in every:
        every += kind.__subclasses__()
    assert {kind for kind in every[1:] if "details" in vars(kind)} == telling.keys()
    assert Problem.model_fields.keys() >= set(telling.values())


def test_nothing_is_said_in_python() -> None:
    told = [f"{each['summary']} {each['description']}" for _, each in operations(_document())]
    told += [each["description"] for each in _document()["components"]["schemas"].values() if "description" in each]
    python = re.compile(
        r"\b(None|True|False)\b|``|\braise|`[A-Z]\w*[a-z]\w*`|`\w+=(False|True|\")|`Client\.|page\.next"
    )
    assert [text for text in told if python.search(text)] == []


def test_whoever_may_come_by_a_cookie_is_told_so() -> None:
    schemes = _document()["components"]["securitySchemes"]
    assert {name: each["type"] for name, each in schemes.items()} == {"token": "http", "session": "apiKey"}
    for name, operation in operations(_document()):
        ways = {way for each in operation.get("security", ()) for way in each}
        is_of_workers = name.split()[1].startswith(("/v1/", "/internal/"))
        assert ways in (set(), {"token"} if is_of_workers else {"token", "session"}), name


# They go through many things bit by bit, and what is done stays: the same again goes on with the rest.
_KEYLESS = {
    "POST /tasks/cancel": "what is cancelled is not found again",
    "POST /tasks/replay": "what is replayed is not found again until it has failed anew",
    "POST /dead-letters/replay": "what is replayed is no dead letter",
    "POST /dead-letters/purge": "what is gone is not found again",
    "POST /outbox/replay": "what is replayed is not failed",
    "POST /outbox/purge": "what is gone is not found again",
    "POST /live/{dag}/jobs/{job}/retry": "what is tried again is not held",
    "POST /live/deploys/plan": "changes nothing",
    "POST /live/{dag}/rollback/plan": "changes nothing",
    "POST /history/fsck": "what is mended is not found again",
    "POST /datasets/gc": "what is gone is not found again",
    "POST /history/gc": "what is gone is not found again",
    "POST /jobs/{job_id}/rerun/plan": "changes nothing",
    "POST /workflows/validate": "changes nothing",
    "POST /query": "changes nothing",
    "POST /hooks": "what is delivered again is known by its own id, or its body",
}


def test_whatever_is_posted_takes_a_key_but_for_these() -> None:
    keyless = set()
    for name, operation in operations(_document()):
        taken = {each["name"] for each in operation.get("parameters", ())}
        if name.startswith("POST /api/v1/") and "idempotency-key" not in taken:
            keyless.add(name.replace("/api/v1", ""))
    assert keyless == _KEYLESS.keys()


def test_what_changes_something_says_which_headers_it_takes_and_gives() -> None:
    for operation in OPERATIONS:
        told = _told(operation)
        headers = {each["name"] for each in told.get("parameters", ()) if each["in"] == "header"}
        assert ("idempotency-key" in headers) == operation.takes_key, operation.call
        assert ("weft-reason" in headers) == operation.changes, operation.call
        assert ("if-match" in headers) == any(each.name == "expect" for each in operation.parameters), operation.call
        answer = told["responses"][str(operation.status)]
        may_be_repeated = operation.takes_key and not operation.goes_on_by_key
        assert ("Idempotency-Replayed" in answer["headers"]) == may_be_repeated
        if "if-match" in headers:
            assert "412" in told["responses"]
    assert "ETag" in _document()["paths"]["/api/v1/tags/{tag}"]["get"]["responses"]["200"]["headers"]
    assert "304" in _document()["paths"]["/api/v1/tags/{tag}"]["get"]["responses"]


def _told(operation: Operation) -> dict[str, Any]:
    path = "/api/v1" + operation.path.replace(":name}", "}")
    found: dict[str, Any] = _document()["paths"][path][operation.method.lower()]
    return found


def _method(operation: Operation) -> Any:
    """Return the method of the remote client, by what its own classes say."""
    remote = RemoteClient("http://127.0.0.1:1")
    kind, _, name = operation.call.rpartition(".")
    return getattr(getattr(remote, kind) if kind else remote, name)


def test_the_calls_of_the_remote_client_take_and_return_what_the_document_says() -> None:
    for operation in OPERATIONS:
        _check_call(operation)


def _check_call(operation: Operation) -> None:
    told = _told(operation)
    schemas = {
        each["name"]: (each["schema"], each.get("required", False))
        for each in told.get("parameters", ())
        if each["name"] not in _ONCE and not (operation.call in FILES and each["in"] == "query")
    }
    content = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if content is not None:
        body = _of(next(each for each in content.get("anyOf", [content]) if each.get("type") != "null"))
        schemas |= {name: (schema, name in body.get("required", ())) for name, schema in body["properties"].items()}
    taken = _taken(_method(operation))
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        # What it has no use for itself it passes on, as it was given to the client with the database.
        whole = _taken(functools.partial(operation.function, None))
        assert {name for name in taken if taken[name].kind is not inspect.Parameter.VAR_KEYWORD} <= whole.keys()
        taken = whole
    assert schemas.keys() == taken.keys(), operation.call
    assert {name for name, (_, is_required) in schemas.items() if is_required} == {
        name for name, each in taken.items() if each.default is inspect.Parameter.empty
    }
    for name, (schema, _) in schemas.items():
        assert _kinds(schema) & _kinds_of(operation.hints[name], name), f"{operation.call}: {name}: {schema}"
    answer = told["responses"][str(operation.status)].get("content", {}).get("application/json")
    if answer is not None and is_dataclass(operation.returns) and operation.returns not in (Page, JobPage, Diff):
        assert _of(answer["schema"])["properties"].keys() == {each.name for each in fields(operation.returns)}


def _taken(method: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(method).parameters
    return {name: each for name, each in found.items() if name not in LEFT_OUT}


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    schema = _of(schema)
    if "anyOf" in schema:
        return set().union(*map(_kinds, schema["anyOf"])) - {"null"}
    kind = schema.get("type")
    return {kind} if kind is not None else {"string", "object", "array", "integer", "number", "boolean"}


def _kinds_of(hint: Any, name: str) -> set[str]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return set().union(*(_kinds_of(each, name) for each in get_args(hint) if each is not types.NoneType))
    if hint is int:
        is_id = (
            name
            in (
                "after",
                "before",
                "rerun_of",
                "rerun_of",
                "task",
                "job",
                "which",
                "source",
                "to",
                "change",
                "user",
                "old",
                "new",
            )
            or name[-2:] == "id"
        )
        return {"string", "integer"} if is_id else {"integer"}
    if hint in (float, timedelta):
        return {"number"}
    if hint is bool:
        return {"boolean"}
    if hint in (str, datetime) or (inspect.isclass(hint) and issubclass(hint, Enum)):
        return {"string"}
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {"object"} if name != "labels" else {"object", "array"}
    if origin is not None:
        return {"array"}
    return {"string", "object", "array", "integer", "number", "boolean"}
