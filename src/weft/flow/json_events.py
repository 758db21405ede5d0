"""JSON texts, read as JSON has it: its own line breaks, and keys of any length."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
import yaml

# What is between two tokens, and a token: a text, a bracket, or a word or number.
_TOKEN = re.compile(r'[ \t\n\r,:]*("(?:[^"\\]|\\.)*"|[\[\]{}]|[^ \t\n\r,:\[\]{}"]+)')
_BREAK = re.compile(r"\r\n|\r|\n")


class Mark(NamedTuple):
    """A place in a text, from 0."""

    line: int
    column: int


class Peculiar(Exception):
    """What JSON allows, and a document may not have."""


def is_json(text: str) -> bool:
    """Whether a text is a mapping or a list in JSON."""
    if not text.lstrip(" \t\n\r").startswith(("{", "[")):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def read_plain(text: str) -> Any:
    """Return the data of a text that `is_json` knows; raises `Peculiar` when it must be looked at closely."""
    try:
        return json.loads(text, object_pairs_hook=_mapping, parse_int=_integer, parse_float=_real)
    except RecursionError:
        raise Peculiar from None


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Peculiar
    return found


def _integer(digits: str) -> int:
    if len(digits) > 18:
        raise Peculiar
    return int(digits)


def _real(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise Peculiar
    return number


class JsonEvents:
    """Gives the events of a text that `is_json` knows, as a YAML parser would."""

    def __init__(self, text: str) -> None:
        self.get_event = _events(text).__next__


def _events(text: str) -> Iterator[Any]:
    yield yaml.StreamStartEvent()
    yield yaml.DocumentStartEvent()
    starts = [0, *(found.end() for found in _BREAK.finditer(text)), len(text) + 1]
    line = 0
    for found in _TOKEN.finditer(text):
        place, token = found.start(1), found[1]
        while starts[line + 1] <= place:
            line += 1
        mark: Any = Mark(line, place - starts[line])
        first = token[0]
        if first == '"':
            value = token[1:-1] if "\\" not in token else orjson.loads(token)
            yield yaml.ScalarEvent(None, None, (False, True), value, mark)
        elif first == "{":
            yield yaml.MappingStartEvent(None, None, True, mark)
        elif first == "[":
            yield yaml.SequenceStartEvent(None, None, True, mark)
        elif first == "}":
            yield yaml.MappingEndEvent(mark)
        elif first == "]":
            yield yaml.SequenceEndEvent(mark)
        else:
            yield yaml.ScalarEvent(None, None, (True, False), token, mark)
    yield yaml.DocumentEndEvent()
    yield yaml.StreamEndEvent()
