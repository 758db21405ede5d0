"""What a line of the log has in it, and what not."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from weft.core.log_lines import JsonLines, add_to_lines, lines_about


def _line(message: str, *args: object, exc_info: Any = None, **extra: Any) -> Any:
    record = logging.LogRecord("weft.worker", logging.WARNING, __file__, 1, message, args, exc_info)
    vars(record).update(extra)
    text = JsonLines(worker_id=lambda: "7").format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_has_what_is_known_by_name_and_nothing_else() -> None:
    with lines_about({"request_id": "r"}):
        add_to_lines(actor="ada")
        line = _line("%s\nand more", "one", job_id="5", password="x", reason=None)
    assert line.pop("time")
    assert line == {
        "level": "warning", "logger": "weft.worker", "message": "one\nand more", "job_id": "5", "worker_id": "7",
        "request_id": "r", "actor": "ada",
    }  # fmt: skip
    assert "request_id" not in _line("outside")


def test_an_error_is_told_with_its_place() -> None:
    try:
        raise ValueError("as drawn")
    except ValueError:
        error = _line("fell", exc_info=sys.exc_info())["error"]
    assert (error["type"], error["message"]) == ("ValueError", "as drawn")
    assert "test_json_lines.py" in error["traceback"]
