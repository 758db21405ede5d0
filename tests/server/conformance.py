"""Sends a server what its document allows and what it does not, and finds answers that the document does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

# Streams and waits do not end by themselves: they have tests of their own.
_ENDLESS = "text/event-stream"
# What is well-formed may still be refused: there is no such queue, the text of a definition is not one.
_ACCEPTED = ["2xx", "304", "400", "401", "403", "404", "409", "412", "415", "422", "503"]


def _is_endless(operation: Mapping[str, Any]) -> bool:
    if operation["operationId"].endswith("wait"):
        return True
    return any(_ENDLESS in answer.get("content", {}) for answer in operation["responses"].values())


def part_of(document: dict[str, Any], tags: frozenset[str], *, others: bool) -> dict[str, Any]:
    """Return a document of the operations with one of the tags, or of all others."""
    paths: dict[str, dict[str, Any]] = {}
    for path, methods in document["paths"].items():
        # A path is looked at as a whole: which methods it has is part of what is said of it.
        told = {tag for operation in methods.values() for tag in operation.get("tags", ())}
        if bool(told & tags) != others and not any(map(_is_endless, methods.values())):
            paths[path] = methods
    return {**document, "paths": paths}


def surprises(
    document: dict[str, Any], url: str, secret: str, known: Mapping[str, str], *, is_long: bool, is_covered: bool
) -> tuple[int, list[str]]:
    """Return how many requests were sent, and what is wrong with the answers to them.

    ``known`` are names and ids of what is there, by the parameters of paths that take them: they are tried as well as
    ones that are made up. What is covered is sent all kinds of values that each field may and may not have.
    """
    count, problems = _run(document, url, secret, {}, "coverage", 1) if is_covered else (0, [])
    more, others = _run(document, url, secret, known, "fuzzing", 200 if is_long else 3, is_long=is_long)
    return count + more, problems + others


def _run(
    document: dict[str, Any],
    url: str,
    secret: str,
    known: Mapping[str, str],
    phase: str,
    examples: int,
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
            "checks": {"positive_data_acceptance": {"expected-statuses": _ACCEPTED}},
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
