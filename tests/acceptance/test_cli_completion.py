"""What a shell is offered when a person presses the tab key: real processes, asked as the shells ask."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from apps.cli_scene import Cli

from weft.cli.apps import COMMANDS
from weft.core.states import TaskState

NOBODY = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def _asked(cli: Cli, line: str) -> list[str]:
    """Ask as Bash does, with all words of the line and the number of the one under the cursor."""
    words = line.split(" ")
    cli.environment.update(_WEFT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    try:
        return cli().split()
    finally:
        del cli.environment["_WEFT_COMPLETE"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("weft ", list(COMMANDS)),
        ("weft wor", ["worker", "workers", "workflows"]),
        ("weft nonsense", []),
        ("weft queues ", ["list", "create", "pause", "resume", "limit"]),
        ("weft tasks re", ["replay"]),
        ("weft tasks list --st", ["--state"]),
        ("weft queues limit q --", ["--max", "--none", "--per-key", "--key", "--reason", "--json", "--help"]),
        ("weft tasks list --state ", list(TaskState)),
        ("weft tasks list --state c", ["claimed", "completed", "cancelled"]),
        ("weft tasks list --state dead --state fa", ["failed"]),
    ],
)
def test_commands_options_and_states_are_offered_without_a_database(
    tmp_path: Path, line: str, offered: list[str]
) -> None:
    found = _asked(Cli(NOBODY, tmp_path), line)
    assert sorted(found) == sorted(offered)


@pytest.mark.parametrize(
    "line",
    [
        "weft queues pause e",
        "weft queues limit e",
        "weft tasks list --queue e",
        "weft tasks enqueue h --queue e",
        "weft worker --queues e",
        "weft audit list --queue e",
        "weft dead list --queue e",
    ],
)
def test_queues_are_offered_by_the_names_they_have(cli: Cli, line: str) -> None:
    for name in ("emails", "exports", "reports"):
        cli("queues", "create", name)
    assert _asked(cli, line) == ["emails", "exports"]
    assert _asked(cli, line[:-1]) == ["default", "emails", "exports", "reports"]


def test_tags_are_offered_where_one_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "etl.yaml"
    file.write_text("workflow_id: etl\nnodes: {START: {type: start, next: END}, END: {type: end}}\n", encoding="utf-8")
    for tag in ("etl/main", "etl/prod", "other/main"):
        cli("workflows", "push", str(file), "--tag", tag)
    cli("workflows", "delete", "etl/prod")
    assert _asked(cli, "weft workflows undo ") == ["etl/main", "other/main"]
    assert _asked(cli, "weft workflows merge other --into e") == ["etl/main"]
    assert _asked(cli, "weft workflows show etl/main") == ["etl/main"]
    assert _asked(cli, "weft workflows undelete e") == ["etl/prod"]
    assert _asked(cli, "weft run e") == ["etl/main"]
    assert _asked(cli, "weft diff other e") == ["etl/main"]


def test_no_queue_is_offered_and_nothing_told_when_no_database_answers(tmp_path: Path) -> None:
    assert _asked(Cli(NOBODY, tmp_path), "weft queues pause ") == []


def test_a_key_press_starts_no_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert _asked(Cli(None, home), "weft queues pause ") == []
    assert not home.exists()


@pytest.mark.parametrize(
    ("shell", "offer"), [("zsh", """_arguments '*: :(("failed"))'"""), ("fish", "failed")], ids=["zsh", "fish"]
)
def test_other_shells_are_answered_in_their_own_form(tmp_path: Path, shell: str, offer: str) -> None:
    cli = Cli(
        NOBODY, tmp_path, _WEFT_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_ARGS="weft tasks list --state f",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )  # fmt: skip
    assert cli().strip() == offer


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no Bash here")
def test_a_bash_that_has_read_the_script_of_the_command_completes_its_line(tmp_path: Path) -> None:
    program = tmp_path / "weft"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m weft "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    typed = """
      eval "$(weft --show-completion)"
      complete -p weft
      COMP_WORDS=(weft tasks list --state f); COMP_CWORD=4
      _weft_completion weft f --state
      echo "offers ${COMPREPLY[*]}"
    """
    # It asks its parent process which shell to write for.
    told = subprocess.run(
        ["bash", "--norc", "-c", typed], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WEFT_DATABASE_URL": NOBODY},
    )  # fmt: skip
    assert told.stdout.splitlines() == ["complete -o default -F _weft_completion weft", "offers failed"], told.stderr
