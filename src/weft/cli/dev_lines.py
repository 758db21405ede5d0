"""Writes what the parts of ``weft dev`` say: each line under the name of its part, or as one JSON object."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress

import orjson

from weft.cli.output import clean
from weft.core.log_lines import JsonLines

_COLOURS = {"server": 36, "orchestrator": 35, "worker": 32}


class Lines:
    """The lines of all parts, on the standard error; with ``as_json`` each is an object that names its part."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._format = JsonLines().format

    def say(self, part: str, line: str) -> None:
        """Write one line of a part."""
        shown = self._object(part, line) if self._as_json else f"{_mark(part)} {clean(line)}"
        with suppress(OSError, ValueError):  # whoever read this has gone, which is no reason to stop
            print(shown, file=sys.stderr, flush=True)

    def teller(self, part: str) -> Callable[[str], None]:
        """Return what writes the lines of a part."""
        return lambda line: self.say(part, line)

    def take_log(self, level: str) -> None:
        """Write what this process logs as lines of the server, which is the part that it is."""
        handler = _PartLog(self, level.upper())
        plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        handler.setFormatter(JsonLines() if self._as_json else plain)
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        for chatty in ("alembic", "httpx", "uvicorn"):  # they tell of each step
            logging.getLogger(chatty).setLevel(logging.WARNING)

    def _object(self, part: str, line: str) -> str:
        """Return a line as an object: what a part logs is one already, what it prints is not."""
        with suppress(ValueError):
            match orjson.loads(line):
                case {"level": _, "message": _} as found:
                    return orjson.dumps({"part": part, **found}).decode()
        record = logging.LogRecord(
            f"weft.dev.{part.split(maxsplit=1)[0]}", logging.INFO, "", 0, clean(line), None, None
        )
        return orjson.dumps({"part": part, **orjson.loads(self._format(record))}).decode()


class _PartLog(logging.Handler):
    """Writes what this process logs under the name of the part that it is."""

    def __init__(self, lines: Lines, level: str) -> None:
        super().__init__(level)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._lines.say("server", self.format(record))


def _mark(part: str) -> str:
    mark = f"{part:<12} │"
    colour = _COLOURS.get(part.partition(" ")[0])
    if colour is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[{colour}m{mark}\x1b[0m"
    return mark
