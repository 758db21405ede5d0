"""Evaluates every payload in a process of little memory, and prints what became of each, one line of JSON a payload.

Run by `test_expressions`, with the folder of the canary as its working directory. A payload that exhausts the process
ends it: there is no line for that payload then, nor for any after it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

import orjson
from expression_payloads import PAYLOADS

from weft.flow.budget import ExpressionError
from weft.flow.expressions import read_template

MEMORY = 1_500_000_000
SECONDS = 100
VALUES: dict[str, Any] = {
    "inputs": {
        "text": "Hello", "list": [3, 1, 2], "rows": [{"n": n, "t": str(n)} for n in range(1000)], "long": "x" * 100_000,
        "same": "".join(["x"] * 100_000), "n": 5, "none": None,
    },
    "nodes": {"fetch": {"output": {"rows": [1, 2], "url": "https://example.com"}}},
    "item": {"id": 9},
    "index": 4,
    "job": {"id": "12"},
}  # fmt: skip

# What the interpreter does by itself: Jinja makes literals of numbers, and a traceback for its own errors.
HARMLESS = {"builtins.id", "object.__getattr__", "compile", "code.__new__"}
events: list[str] = []


def note(event: str, args: tuple[Any, ...]) -> None:
    """Note what is done to the world outside: files, processes, sockets, imports, code that is executed."""
    is_traceback = event == "exec" and args[0].co_names == ("__jinja_exception__",)
    if event not in HARMLESS and not is_traceback:
        events.append(event)


def is_json(value: Any) -> bool:
    """Whether a value is made of nothing but JSON's own types."""
    if type(value) is dict:
        return all(type(key) is str and is_json(entry) for key, entry in value.items())
    if type(value) is list:
        return all(map(is_json, value))
    return value is None or type(value) in (bool, int, float, str)


def outcome_of(payload: str) -> dict[str, Any]:
    """Return what became of a payload: the refusal, or what is known of the value."""
    events.clear()
    try:
        value = read_template(payload).evaluate(VALUES)
    except ExpressionError as refusal:
        return {"refusal": str(refusal), "events": list(events)}
    except Exception as problem:
        return {"crash": repr(problem), "events": list(events)}
    seen = list(events)
    made = orjson.dumps(value).decode()
    return {"is_json": is_json(value), "size": len(made), "leaks": os.environ["CANARY"] in made, "events": seen}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    before = orjson.dumps(VALUES)
    for text in ("{{ warm | up }}", "{{ `up` }}", r"{{ '\N{LOW LINE}' }}", "{{ inputs['warm'] }}"):
        outcome_of(text)  # so that what is imported late is imported
    sys.addaudithook(note)
    for payload in PAYLOADS:
        outcome = outcome_of(payload)
        outcome["files"] = sorted(os.listdir("."))
        outcome["is_unchanged"] = orjson.dumps(VALUES) == before
        print(json.dumps({"payload": payload, **outcome}), flush=True)


if __name__ == "__main__":
    main()
