"""Prints what commands found: JSON for programs, tables for people."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.root_options import QUIET
from weft.core.errors import WeftError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_COLOURS = {
    "green": "completed done active",
    "cyan": "running processing claimed dispatched",
    "blue": "ready",
    "yellow": "scheduled waiting pending paused",
    "red": "failed dead lost crashed",
    "magenta": "cancelled skipped",
}
_STYLES = {state: colour for colour, states in _COLOURS.items() for state in states.split()}
_GAP = 2
_answers: list[str] = []
_SHORT = 12
# What could move the cursor or change the terminal, had a task put it into a name or an error.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def complain(message: str) -> None:
    """Write one line to the standard error."""
    print("weft:", clean(" ".join(message.split())), file=sys.stderr)


def is_quiet() -> bool:
    """Whether nobody wants to see more than answers and errors."""
    return is_wished(QUIET)


def is_wished(name: str) -> bool:
    """Whether a flag of the environment is set; a word that is neither true nor false counts as a wish."""
    from weft.core.settings import parse_flag

    word = os.environ.get(name, "")
    try:
        return bool(word) and parse_flag(word)
    except ValueError:
        return True


def remark(message: str, *, lead: str = "weft: ") -> None:
    """Write one line to the standard error that is good to know, at once, unless nobody wants to."""
    if not is_quiet():
        print(f"{lead}{clean(' '.join(message.split()))}", file=sys.stderr, flush=True)


def print_complaints(problems: Sequence[object]) -> None:
    """Write each of several problems to the standard error; a single one is told by the error itself."""
    if len(problems) > 1:
        for problem in problems:
            print(one_line(str(problem)), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print one JSON document: on a terminal for eyes, else on one line."""
    import json

    import orjson

    options = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
    try:
        text = orjson.dumps(
            value, option=options | orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS, default=_jsonable
        ).decode()
    except TypeError:  # deeper than orjson goes, or with integers beyond 64 bits: not written by a client
        text = json.dumps(value, ensure_ascii=False, default=_jsonable)
    text = _escaped(text)
    _answers.append(text)
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # a terminal of another character set
        sys.stdout.write(json.dumps(json.loads(text)) + "\n")


def print_json_line(value: Any) -> None:
    """Print one of several JSON documents, on one line also on a terminal, at once."""
    import orjson

    text = _escaped(orjson.dumps(value, option=orjson.OPT_UTC_Z, default=_jsonable).decode())
    _answers.append(text)
    print(text, flush=True)


def _escaped(text: str) -> str:
    """Return JSON in which nothing plays tricks on a terminal: all that could stands in texts, which have escapes."""
    return text if text.isascii() and "\x7f" not in text else _CONTROL.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


def has_answered() -> bool:
    """Whether this process has begun to print its JSON document."""
    return bool(_answers)


def tell(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print what a command has done: as facts for programs, in words for people."""
    if as_json:
        print_json(facts)
    else:
        print(clean(text))


def as_record(thing: Any) -> dict[str, Any]:
    """Return a dataclass as a mapping for JSON, its ids as text."""
    return {field.name: _jsonable_field(field.name, getattr(thing, field.name)) for field in fields(thing)}


def _jsonable_field(name: str, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and (name in ("id", "rerun_of") or name.endswith("_id")):
        return str(value)
    if isinstance(value, tuple):
        if name.endswith("_ids"):
            return [str(item) for item in value]
        return [as_record(item) if is_dataclass(item) else item for item in value]
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _jsonable(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (Path, WeftError)):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} is not JSON")


def console() -> Console:
    """Return what prints to people: colours on a terminal only, and no cut lines when there is none."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False, width=wide)


def print_line(text: Text | str) -> None:
    """Print one line, however long, with its styles where there is a terminal."""
    console().print(text if not isinstance(text, str) else clean(text), soft_wrap=True, markup=False, highlight=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print a table without lines.

    A column whose name ends in ``>`` is aligned to the right, one that ends in ``~`` is cut on a narrow terminal.
    """
    from rich.table import Table

    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        print(empty)
        return
    names = [column.rstrip(">~") for column in columns]
    shown = console()
    widths = [max(len(name), *(row[index].cell_len for row in cells)) for index, name in enumerate(names)]
    gaps = _GAP * (len(widths) - 1)
    _fit(widths, [column.endswith("~") for column in columns], shown.width - gaps)
    # What is still too wide is for the terminal to wrap: an id is never cut. Rich before 14.3 counts a gap at the end.
    shown.width = sum(widths) + gaps + _GAP
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_header=any(names))
    for name, column, width in zip(names, columns, widths, strict=True):
        justify: Any = "right" if column.endswith(">") else "left"
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
    for row in cells:
        table.add_row(*row)
    _print_trimmed(shown, table)


def _fit(widths: list[int], is_elastic: list[bool], room: int) -> None:
    """Narrow the elastic columns, the widest first, until all have room; none becomes narrower than a short word."""
    elastic = [index for index, yes in enumerate(is_elastic) if yes]
    while elastic and sum(widths) > room:
        widest = max(elastic, key=lambda index: widths[index])
        if widths[widest] <= _SHORT:
            return
        widths[widest] -= 1


def _print_trimmed(shown: Console, table: Any) -> None:
    """Print without the blanks at the ends of lines, which make copied text ragged."""
    with shown.capture() as capture:
        shown.print(table, crop=False, soft_wrap=False)
    for line in capture.get().splitlines():
        print(line.rstrip())


def _cell(value: Any) -> Text:
    from rich.text import Text

    return value if isinstance(value, Text) else Text(one_line("" if value is None else str(value)))


def styled(text: str, style: str) -> Text:
    """Return text in a style, for a cell."""
    from rich.text import Text

    return Text(clean(text), style=style)


def state(name: str, reason: str | None = None) -> Text:
    """Return a state in its colour, with its reason."""
    text = styled(name, _STYLES.get(name, ""))
    if reason and reason != name:
        text.append(f" ({clean(reason)})", style="dim")
    return text


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values one under the other; what is None is left out."""
    from rich.text import Text

    shown = console()
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None:
            shown.print(Text.assemble((f"{name:<{width}}  ", "dim"), _cell(value)), overflow="fold")


def clean(text: str) -> str:
    """Return text with control characters made visible, so that it cannot play tricks on a terminal."""
    return _CONTROL.sub(_visible, text.replace("\r\n", "\n"))


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Return text on one line, blanks for its breaks and tabs, control characters made visible."""
    return re.sub(r"[\n\t]+", " ", clean(text.strip("\r\n")))


def print_more(option: str, value: object) -> None:
    """Say how the next page is asked for, where somebody looks."""
    if sys.stdout.isatty() and not is_quiet():
        print_line(styled(f"more: {option} {value}", "dim"))


def span(seconds: float | timedelta) -> str:
    """Return a span of time in its two greatest units at most: ``3.2 s``, ``5m 10s``, ``2h 3m``, ``4d 1h``."""
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if value < 0.001:
        return f"{value * 1e6:.0f} µs" if value > 0 else "0 s"
    if value < 1:
        return f"{value * 1000:.{0 if value >= 0.1 else 1}f} ms"
    if value < 60:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f" {rest}{small}" if rest else "")
    raise AssertionError("unreachable")


def when(moment: datetime | None) -> str:
    """Return how long ago a moment was, or how far it is off, in its greatest unit."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    whole = int(abs(seconds))
    if whole == 0:
        return "now"
    text = f"{whole}s" if whole < 60 else span(whole).partition(" ")[0]
    return f"{text} ago" if seconds > 0 else f"in {text}"


def moment_text(moment: datetime | None) -> str | None:
    """Return a moment in the machine's time zone, with how long ago it was."""
    if moment is None:
        return None
    try:
        own = moment.astimezone()
    except OverflowError:  # the end of time in another zone
        own = moment
    return f"{own:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"{own:%z} ({when(moment)})"


def plural(count: int, noun: str) -> str:
    """Return a number of things in words: ``1 patch``, ``2 patches``, ``1,000 blobs``."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def size_text(size: int) -> str:
    """Return a number of bytes for people."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
