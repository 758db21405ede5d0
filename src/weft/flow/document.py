"""The text of a definition, YAML or JSON, as plain data of which each part knows its line."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from weft.core.garbage import uncollected
from weft.core.json import depth_of, text_problem
from weft.flow.json_events import JsonEvents, Peculiar, is_json, read_plain
from weft.flow.problems import Path, Problem, placed
from weft.flow.yaml_words import yaml_problem

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 100
# So many values can one document have; what aliases repeat counts each time, or ten lines could make billions.
MAX_VALUES = 1_000_000
MAX_REPEATED = 100_000

# The parser in C where PyYAML has it; only its events are used.
Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# YAML 1.2's core: `no`, `on`, `1:30` and dates are text, as whoever writes them means.
_WORDS: dict[str, bool | None] = {"": None, "~": None}
_WORDS |= {form: None for form in ("null", "Null", "NULL")}
_WORDS |= {form: True for form in ("true", "True", "TRUE")}
_WORDS |= {form: False for form in ("false", "False", "FALSE")}
_FIRST = frozenset("-+.0123456789~tTfFnN")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# What programs write that call it JSON; to YAML these are texts.
_NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})
_OF_VALUES: Any = (yaml.ScalarEvent, yaml.AliasEvent, yaml.CollectionStartEvent)
_PLAIN_TAGS = {None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


class Unreadable(Exception):
    """The text is no document; carries the problem."""

    def __init__(self, code: str, message: str, mark: Any = None) -> None:
        self.problem = _problem_at(mark, code, message)
        super().__init__(message)


@dataclass
class Document:
    """Plain data, the text that it came from, and what was wrong with that."""

    data: Any
    text: str = ""
    file: str | None = None
    problems: list[Problem] = field(default_factory=list)
    _places: dict[Path, Place] | None = field(default=None, repr=False)

    def locate(self, path: Path, *, key: bool = False) -> tuple[int, int] | None:
        """Return line and column, from 1, of the value at ``path`` or of its key; of what holds it where it is not."""
        if not self.text:
            return None
        if self._places is None:
            # Read a second time, and only now: most documents have nothing wrong with them.
            self._places = _places_in(self.text)
        for length in range(len(path), -1, -1):
            if (place := self._places.get(path[:length])) is not None:
                return place.key if key and length == len(path) else place.value
        return None


def read_document(text: str | bytes, file: str | None = None) -> Document:
    """Return the data of a YAML or JSON text; raises `Unreadable` where there is no reading on."""
    if len(text) > MAX_BYTES:
        raise Unreadable("too_large", f"the document has {len(text):,} bytes, and may have {MAX_BYTES:,}")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise Unreadable("syntax", f"the document is not UTF-8: {problem.reason} at byte {problem.start}") from None
    if (flaw := text_problem(text)) is not None:
        raise Unreadable("syntax", f"the document {flaw}")
    try:
        if is_json(text):
            with suppress(Peculiar):
                return Document(_plain(text), text, file)
        reader = _Reader(text)
        return Document(reader.read(), text, file, reader.problems)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise Unreadable("syntax", yaml_problem(problem.problem), mark) from None
    except yaml.reader.ReaderError as problem:
        raise Unreadable(
            "syntax", f"the document has a character that YAML does not allow, at {problem.position}"
        ) from None


def read_or_tell(text: str | bytes, file: str | None = None) -> tuple[Document, list[Problem]]:
    """Return the document in a text, or one without data and why it cannot be read."""
    try:
        with uncollected():
            return read_document(text, file), []
    except Unreadable as problem:
        document = Document(None, "", file)
        problems = placed([problem.problem], document)
        # Only now: a text that cannot be read has lines to show, and no places to look up.
        document.text = text if isinstance(text, str) else text.decode("utf-8-sig", "replace")
        return document, problems


def _plain(text: str) -> Any:
    """Return the data of JSON in which nothing is to be told of; raises `Peculiar`."""
    opened = text.count("{") + text.count("[")
    if "\\u0000" in text or opened + text.count(",") >= MAX_VALUES:
        raise Peculiar
    data = read_plain(text)
    if opened > MAX_DEPTH and depth_of(data) > MAX_DEPTH:
        raise Peculiar
    return data


def _parser_of(text: str) -> Any:
    """Return what gives the events of a text. YAML breaks lines where JSON does not, and knows no long keys."""
    return JsonEvents(text) if is_json(text) else Parser(text)


class Place(NamedTuple):
    """Line and column, from 1, of a key and of its value; they are the same for what has no key."""

    key: tuple[int, int]
    value: tuple[int, int]


class _Frame:
    """A mapping or a list that is being read."""

    __slots__ = ("anchor", "began", "container", "height", "is_merge", "key", "merges")

    def __init__(self, container: Any, anchor: str | None, began: int) -> None:
        self.container = container
        self.anchor = anchor
        self.began = began
        self.height = 1
        self.key: str | None = None
        self.is_merge = False
        self.merges: list[Any] = []


class _Reader:
    """Makes data of the events of a parser: one pass, no recursion, one count of all values."""

    def __init__(self, text: str) -> None:
        self.problems: list[Problem] = []
        self._parser = _parser_of(text)
        self._is_like_json = text.lstrip().startswith(("{", "["))
        self._count = 0
        self._repeated = 0
        # Of each anchor: what it stands for, how many values that is, and how deep they are nested.
        self._anchors: dict[str, tuple[Any, int, int]] = {}

    def read(self) -> Any:
        """Return the one document of the text."""
        self._parser.get_event()  # the start of the stream
        event = self._parser.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            raise Unreadable("syntax", "the document is empty")
        value = self._read_value()
        self._parser.get_event()  # the end of the document
        if isinstance(event := self._parser.get_event(), yaml.DocumentStartEvent):
            raise Unreadable(
                "syntax", "a file has one definition: put the second into a file of its own", event.start_mark
            )
        return value

    def _read_value(self) -> Any:
        next_event = self._parser.get_event
        frames: list[_Frame] = []
        frame: _Frame | None = None
        while True:
            event = next_event()
            kind = type(event)
            height = 0
            if kind is yaml.ScalarEvent:
                if frame is not None and frame.key is None and type(frame.container) is dict:
                    self._begin_entry(frame, event)
                    continue
                value = self._scalar(event)
                if event.anchor:
                    self._anchors[event.anchor] = value, 1, 0
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._refuse_tag(event)
                if frame is not None:
                    self._refuse_as_key(frame, event)
                    frames.append(frame)
                _refuse_depth(len(frames) + 1, event)
                frame = _Frame({} if kind is yaml.MappingStartEvent else [], event.anchor, self._count)
                self._count_one(event)
                continue
            elif kind is yaml.AliasEvent:
                if frame is not None:
                    self._refuse_as_key(frame, event)
                value, height = self._repeat(event)
                _refuse_depth(len(frames) + (frame is not None) + height, event)
            else:
                assert frame is not None
                value = frame.container
                for merged in frame.merges:
                    for key, entry in merged.items():
                        value.setdefault(key, entry)
                if frame.anchor:
                    self._anchors[frame.anchor] = value, self._count - frame.began, frame.height
                height = frame.height
                frame = frames.pop() if frames else None
            if frame is None:
                return value
            frame.height = max(frame.height, height + 1)
            if type(frame.container) is list:
                frame.container.append(value)
            else:
                self._end_entry(frame, value, event)

    def _begin_entry(self, frame: _Frame, event: Any) -> None:
        if event.tag is not None:
            self._refuse_tag(event)
        self._refuse_nul(event)
        frame.key = event.value
        frame.is_merge = event.value == "<<" and event.implicit[0]
        if event.value in frame.container:
            self._note("duplicate_key", f"the key {event.value!r} stands twice: one of them would be lost", event)

    def _end_entry(self, frame: _Frame, value: Any, event: Any) -> None:
        if frame.is_merge:
            merges = value if isinstance(value, list) else [value]
            if not all(isinstance(merge, dict) for merge in merges):
                self._note("syntax", "`<<` takes in a mapping, or a list of mappings", event)
            else:
                frame.merges += merges
        else:
            frame.container[frame.key] = value
        frame.key = None

    def _scalar(self, event: Any) -> Any:
        self._count_one(event)
        self._refuse_nul(event)
        text = event.value
        if not event.implicit[0]:
            if event.tag is not None:
                self._refuse_tag(event)
            return text
        if text in _NO_NUMBERS and self._is_like_json:
            self._note("bad_value", f"{text} is no number that JSON has; put it into quotes where it is text", event)
        try:
            return scalar_of(text)
        except ValueError as problem:
            self._note("bad_value", str(problem), event)
            return text

    def _refuse_nul(self, event: Any) -> None:
        if "\x00" in event.value:
            self._note("bad_value", "a text has a NUL character, which PostgreSQL cannot store", event)

    def _repeat(self, event: Any) -> tuple[Any, int]:
        if event.anchor not in self._anchors:
            raise Unreadable("syntax", f"*{event.anchor} stands for nothing that was read before it", event.start_mark)
        value, size, height = self._anchors[event.anchor]
        self._repeated += size
        if self._repeated > MAX_REPEATED:
            raise Unreadable("too_large", f"aliases repeat more than {MAX_REPEATED:,} values", event.start_mark)
        self._count += size
        return value, height

    def _refuse_tag(self, event: Any) -> None:
        if event.tag not in _PLAIN_TAGS:
            self._note(
                "syntax", f"tags such as {event.tag.replace('tag:yaml.org,2002:', '!!')} are not used here", event
            )

    def _refuse_as_key(self, frame: _Frame, event: Any) -> None:
        if frame.key is None and type(frame.container) is dict:
            raise Unreadable("syntax", "a key must be text", event.start_mark)

    def _count_one(self, event: Any) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise Unreadable("too_large", f"the document has more than {MAX_VALUES:,} values", event.start_mark)

    def _note(self, code: str, message: str, event: Any) -> None:
        self.problems.append(_problem_at(event.start_mark, code, message))


def scalar_of(text: str) -> str | int | float | bool | None:
    """Return what a text without quotes stands for; raises `ValueError` for a number that JSON does not have."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _FIRST:
        return text
    if _INT.fullmatch(text):
        number = int(text, 0) if text[:2] in ("0o", "0x") else int(text) if len(text) < 25 else 2**64
        # As params may be: what a patch or a program has put there can be shown and pushed again.
        if -(2**63) <= number < 2**64:
            return number
        raise ValueError(f"{text[:30]} is an integer beyond 64 bits; put it into quotes")
    if _FLOAT.fullmatch(text):
        real = float(text)
        if math.isfinite(real):
            return real
        raise ValueError(f"{text[:30]} is too large for a number; put it into quotes")
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is no number that JSON has")
    return text


def _refuse_depth(depth: int, event: Any) -> None:
    if depth > MAX_DEPTH:
        raise Unreadable("too_deep", f"the document is nested deeper than {MAX_DEPTH} levels", event.start_mark)


def _problem_at(mark: Any, code: str, message: str) -> Problem:
    return Problem(code, (), message, line=mark and mark.line + 1, column=mark and mark.column + 1)


def _places_in(text: str) -> dict[Path, Place]:
    """Return where each part of a readable text stands. What an alias repeats stands where the alias does."""
    parser = _parser_of(text)
    places: dict[Path, Place] = {}
    # For each open mapping or list: its path, and the key that waits for its value with its place, or the next index.
    frames: list[tuple[Path, list[Any]]] = []
    while True:
        event: Any = parser.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            return places
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            frames.pop()
            continue
        if not isinstance(event, _OF_VALUES):
            continue
        here = event.start_mark.line + 1, event.start_mark.column + 1
        path: Path = ()
        key = here
        if frames:
            above, state = frames[-1]
            if state[0] is None:
                state[:] = event.value, here
                continue
            path = (*above, state[0])
            if isinstance(state[0], int):
                state[0] += 1
            else:
                key = state[1]
                state[0] = None
        places.setdefault(path, Place(key, here))
        if isinstance(event, yaml.CollectionStartEvent):
            frames.append((path, [None if isinstance(event, yaml.MappingStartEvent) else 0, here]))
