"""How far a long command is: shown on a terminal, and nowhere else."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

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
