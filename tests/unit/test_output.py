"""What commands print plays no tricks on a terminal, and programs read in it what was said."""

from __future__ import annotations

import json

import pytest

from weft.cli import live, outbox
from weft.cli.output import clean, print_json, print_json_line

TRICKS = "a\x1b[2J\x7f\x9b31m\u061c\u200e\u200f\u2028\u202eb\u2066\ufeff"


@pytest.mark.parametrize("prints", [print_json, print_json_line])
def test_json_has_escapes_for_what_could_change_a_terminal(prints: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(prints)
    prints({TRICKS: [TRICKS, "é\t\n😀"]})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {TRICKS: [TRICKS, "é\t\n😀"]}
    assert not set(TRICKS) & set(printed) - set("a[2J31mb")
    assert "é" in printed


def test_text_shows_what_could_change_a_terminal() -> None:
    assert clean(TRICKS).isprintable()


def test_an_error_that_may_be_past_is_called_the_last_one() -> None:
    assert [columns[-1] for columns in (outbox._COLUMNS, live._JOBS.columns)] == ["LAST ERROR~"] * 2
