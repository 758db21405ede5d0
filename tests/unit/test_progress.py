"""How far a long command is: shown on a terminal, and nowhere else."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout

import pytest

from weft.cli.dev_lines import Lines
from weft.cli.output import is_quiet, print_line, print_table, state, styled
from weft.cli.progress import counted


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("WEFT_QUIET", raising=False)
    return Terminal()


def test_a_count_is_shown_and_wiped(terminal: Terminal) -> None:
    with redirect_stderr(terminal), counted("replayed") as show:
        assert show is not None
        show(12_000)
    assert terminal.getvalue() == "\rreplayed 12,000 …\x1b[K\r\x1b[K"


def test_a_bar_is_shown_where_it_is_known_how_many_there_are_and_its_end_is_never_left_out(terminal: Terminal) -> None:
    with redirect_stderr(terminal), counted("applied", 4) as show:
        assert show is not None
        for number in range(1, 5):
            show(number)
    assert f"applied {'█' * 8}{'░' * 22} 1/4" in terminal.getvalue()
    assert "2/4" not in terminal.getvalue()  # so soon after the first that nobody could read it
    assert f"applied {'█' * 30} 4/4" in terminal.getvalue()


def test_a_count_becomes_a_bar_when_it_is_known_how_many_there_are(terminal: Terminal) -> None:
    with redirect_stderr(terminal), counted("removed") as show:
        assert show is not None
        show.total = 2
        show(2)
    assert terminal.getvalue() == f"\rremoved {'█' * 30} 2/2\x1b[K\r\x1b[K"


@pytest.mark.parametrize("wish", ["quiet", "dumb", "no terminal"])
def test_nothing_is_shown_to_whoever_does_not_look(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, wish: str
) -> None:
    stream: io.StringIO = terminal
    if wish == "quiet":
        monkeypatch.setenv("WEFT_QUIET", "1")
    elif wish == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    else:
        stream = io.StringIO()
    with redirect_stderr(stream), counted("replayed") as show:
        assert show is None
    assert stream.getvalue() == ""


@pytest.mark.parametrize("wish", ["", "1"])
def test_whoever_wants_no_colours_gets_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv("NO_COLOR", wish)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with redirect_stdout(terminal), redirect_stderr(terminal):
        print_line(styled("done", "green"))
        print_table(("STATE",), [(state("failed"),)], empty="")
        Lines().say("worker", "a line")
    assert ("\x1b[32m" in terminal.getvalue(), "\x1b[31m" in terminal.getvalue()) == (not wish, not wish)
    assert bool(re.search(r"\x1b\[(3|9)\d", terminal.getvalue())) == (not wish)


@pytest.mark.parametrize(("word", "wish"), [("1", True), ("true", True), ("false", False), ("0", False), ("", False)])
def test_a_flag_that_says_false_is_no_wish_for_quiet(monkeypatch: pytest.MonkeyPatch, word: str, wish: bool) -> None:
    monkeypatch.setenv("WEFT_QUIET", word)
    assert is_quiet() == wish
