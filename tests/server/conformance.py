"""Sends a server what its document allows and what it does not, and finds answers that the document does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema


def _accepted(path: str, method: str, operation: Mapping[str, Any]) -> list[str]:
    """Return how what is well-formed may be answered: it may still be refused, but only as it makes sense there."""
    headers = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "header"}
    names = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    found = ["2xx", "422"]
    if method != "get" or "{" in path or names & _NAMING:
        found.append("404")
    if method != "get" or operation["operationId"] in _UNREADY:
        found.append("409")
    if "if-match" in headers:
        found.append("412")
    if "if-none-match" in headers:
        found.append("304")
    return found + _MORE.get(operation["operationId"], [])


# Queries that name something that may not be there.
_NAMING = frozenset({"old", "new", "user", "queue"})
# What cannot be told before something has ended, or as it ended.
_UNREADY = frozenset({"jobs_result", "jobs_wait", "tasks_output", "wait"})
_HEADERS_OF_MANY = frozenset({"weft-reason", "idempotency-key"})
# What is sent to a hook is not signed, and there is none; a lease that is made up is nobody's.
_MORE: Mapping[str, list[str]] = {"hooks": ["401"], "fetch_internal_task_fetch_get": ["404", "409"]}
# Of headers: what can be printed, without spaces around it.
_PRINTED = "^[!-~]([ -~]*[!-~])?$"
_LONG = 2000


def _is_endless(operation: Mapping[str, Any]) -> bool:
    """Whether it goes on until something has ended: it is asked of what has."""
    return operation["operationId"].endswith(("wait", "stream"))


def part_of(document: dict[str, Any], tags: frozenset[str], *, others: bool) -> dict[str, Any]:
    """Return a document of the operations with one of the tags, or of all others."""
    paths: dict[str, dict[str, Any]] = {}
    for path, methods in document["paths"].items():
        # A path is looked at as a whole: which methods it has is part of what is said of it.
        told = {tag for operation in methods.values() for tag in operation.get("tags", ())}
        if bool(told & tags) != others:
            paths[path] = methods
    return {**document, "paths": paths}


def _with_headers_once(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in which only the first operation has each header that many have.

    They are read in one place, and to make up all kinds of long texts for each takes longer than all the rest.
    """
    known: set[str] = set()
    paths: dict[str, dict[str, Any]] = {}
    for path, methods in document["paths"].items():
        paths[path] = {}
        for method, operation in methods.items():
            told = operation.get("parameters", [])
            kept = [each for each in told if each["in"] != "header" or each["name"] not in known]
            paths[path][method] = {**operation, "parameters": list(map(_spelled, kept))}
            known |= {each["name"] for each in told if each["name"] in _HEADERS_OF_MANY}
    return {**document, "paths": paths}


def _spelled(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter of the same texts, with the length of a long pattern in the pattern itself.

    What makes up texts looks in vain for one that is as long as may be, for as long as for all others together;
    `test_acts.py` sends it, and one that is longer.
    """
    schema = parameter["schema"]
    if schema.get("pattern") != _PRINTED or schema["maxLength"] < _LONG:
        return parameter
    pattern = _PRINTED.replace("*", f"{{0,{schema['maxLength'] - 2}}}")
    rest = {name: value for name, value in schema.items() if name != "maxLength"}
    return {**parameter, "schema": {**rest, "pattern": pattern}}


def surprises(
    document: dict[str, Any], url: str, secret: str, known: Mapping[str, str],
    ended: Mapping[str, str] | None = None, *, is_long: bool, is_covered: bool,
) -> tuple[int, list[str]]:  # fmt: skip
    """Return how many requests were sent, and what is wrong with the answers to them.

    ``known`` are names and ids of what is there, by the parameters of paths that take them: they are tried as well as
    ones that are made up; of streams and waits those of what has ``ended``. What is covered is sent all kinds of values
    that each field may and may not have.
    """
    covered = document if is_long else _with_headers_once(document)
    count, problems = _run(covered, url, secret, {}, "coverage", 1) if is_covered else (0, [])
    more, others = _run(document, url, secret, known, "fuzzing", 200 if is_long else 1, ended, is_long=is_long)
    return count + more, problems + others


def chained(
    document: dict[str, Any], url: str, secret: str, known: Mapping[str, str], *, is_long: bool
) -> tuple[int, list[str]]:
    """Return how many requests were sent in chains, each with what answers before it told, and what is wrong."""
    # What goes on until something has ended waits for what nobody works on here.
    paths = {path: each for path, each in document["paths"].items() if not any(map(_is_endless, each.values()))}
    return _run({**document, "paths": paths}, url, secret, known, "stateful", 200 if is_long else 5, is_long=is_long)


def _run(
    document: dict[str, Any],
    url: str,
    secret: str,
    known: Mapping[str, str],
    phase: str,
    examples: int,
    ended: Mapping[str, str] | None = None,
    *,
    is_long: bool = False,
) -> tuple[int, list[str]]:
    phases = {name: {"enabled": name == phase} for name in ("examples", "coverage", "fuzzing", "stateful")}
    # What answers tell is not sent back: it would revoke the token that asks.
    phases["fuzzing"]["extra-data-sources"] = {"responses": False}  # type: ignore[assignment]
    config = SchemathesisConfig.from_dict(
        {
            "base-url": url,
            "headers": {"Authorization": f"Bearer {secret}"},
            "request-timeout": 30,
            "continue-on-failure": True,
            "generation": {"max-examples": examples, "deterministic": not is_long, "database": "none"},
            "parameters": {f"path.{name}": value for name, value in known.items()},
            # Of a stream the first event is enough.
            "max-stream-events": 1,
            "operations": [
                _asked(path, method, operation, ended or {})
                for path, methods in document["paths"].items()
                for method, operation in methods.items()
            ],
            "phases": phases,
        }
    )
    schema = schemathesis.openapi.from_dict(document, config=config)
    count, problems = 0, []
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            problems.append(str(event))
        if isinstance(event, events.ScenarioFinished):
            count += len(event.recorder.cases)
            problems += _told(event)
    return count, problems


def _asked(path: str, method: str, operation: Mapping[str, Any], ended: Mapping[str, str]) -> dict[str, Any]:
    """Return what is said of one operation alone."""
    found: dict[str, Any] = {
        "include-operation-id": operation["operationId"],
        "checks": {"positive_data_acceptance": {"expected-statuses": _accepted(path, method, operation)}},
    }
    if operation["operationId"].endswith("stream"):
        # The schema is of all that comes, as text; what an event has in it is told in words.
        found["checks"]["response_schema_conformance"] = {"enabled": False}
    if _is_endless(operation) and ended:
        found["parameters"] = {f"path.{name}": value for name, value in ended.items() if f"{{{name}}}" in path}
    return found


def _told(event: events.ScenarioFinished) -> list[str]:
    found = []
    for case_id, checks in event.recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                failure = check.failure_info.failure
                found.append(f"{event.recorder.label}: {check.name}: {failure.title}: {failure.message}")
                found.append(check.failure_info.code_sample)
                answer = event.recorder.interactions[case_id].response
                found.append("" if answer is None else f"{answer.status_code} {answer.text[:500]}")
    return found
