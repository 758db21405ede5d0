"""What goes wrong on the command line is told in one line that names the field, with a code of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from apps.cli_scene import Cli


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["taks"], 2, "there is no command weft taks. Did you mean 'tasks'?"),
        (["tasks", "lst"], 2, "there is no command weft tasks lst. Did you mean 'list'?"),
        (["tasks", "list", "--queu", "x"], 2, "No such option: --queu"),
        (["tasks", "show"], 2, "Missing argument 'ID'"),
        (["worker", "--concurrency", "0"], 2, "--concurrency"),
        (["worker", "--queues", "a,,b"], 2, "queues: 'a,,b' has an empty name"),
        (["tasks", "show", "x"], 2, "id: 'x' is not an id"),
        (["tasks", "list", "--before", "-1"], 2, "before: '-1' is not an id"),
        (["tasks", "enqueue", "h", "--params", "{"], 2, "params: is not JSON"),
        (["tasks", "enqueue", "h", "--params", "@nowhere"], 2, "params: cannot read nowhere"),
        (["tasks", "enqueue", "h", "--params", "[" * 100000], 2, "params: is nested too deeply"),
        (["tasks", "enqueue", "h", "--delay", "soon"], 2, "delay: 'soon' is not a duration"),
        (["tasks", "enqueue", "h", "--run-at", "soon"], 2, "run_at: 'soon' is not a moment"),
        (["dead", "replay"], 2, "id: name the tasks to replay, or give --all"),
        (["dead", "replay", "1", "--all"], 2, "id: give either ids, or --all"),
        (["outbox", "replay"], 2, "id: name the effects to replay, or give --all"),
        (["outbox", "list", "--state", "odd"], 2, "state: 'odd' is not one of pending"),
        (["queues", "limit", "q", "--max", "1", "--none"], 2, "max: give either --max or --none"),
        (["migrate", "downgrade", "base"], 2, "run it again with --yes"),
        (["migrate", "current", "0001"], 2, "revision: `weft migrate current` takes none"),
    ],
)
def test_what_cannot_be_read_is_refused_without_a_database(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    cli = Cli("postgresql://nobody@127.0.0.1:1/none", tmp_path)
    complaint = cli(*arguments, code=code)
    assert complaint.startswith("weft: ")
    assert words in complaint
    assert "\n" not in complaint


def test_what_the_queue_refuses_names_the_field(cli: Cli) -> None:
    for arguments, code, words in (
        (["tasks", "show", "12"], 4, "there is no task 12"),
        (["tasks", "enqueue", "h", "--queue", "defualt"], 4, "no queue 'defualt'. Did you mean 'default'?"),
        (["tasks", "enqueue", "h", "--params", '{"a": NaN}'], 2, "params.a: is nan"),
        (["tasks", "enqueue", "h", "--params", "[1]"], 2, "params: must be"),
        (["tasks", "enqueue", "h", "--params", '{"a": 123456789012345678901}'], 2, "params.a: is an integer beyond"),
        (["tasks", "enqueue", "h", "--priority", "99999"], 2, "priority: must be a whole number"),
        (["tasks", "list", "--state", "odd"], 2, "state: 'odd' is not one of pending"),
        (["queues", "limit", "default", "--max", "0"], 2, "must be a whole number"),
    ):
        complaint = cli(*arguments, code=code)
        assert words in complaint
        assert "\n" not in complaint


def test_a_database_that_cannot_be_reached_is_told_without_its_password(tmp_path: Path) -> None:
    cli = Cli("postgresql://weft:hush@127.0.0.1:1/weft?password=hush", tmp_path)
    complaint = cli("tasks", "list", code=3)
    assert complaint.startswith("weft: cannot reach PostgreSQL at ")
    assert "hush" not in complaint
    assert "\n" not in complaint


def test_an_unknown_setting_is_told_with_a_suggestion(tmp_path: Path) -> None:
    complaint = Cli(None, tmp_path, WEFT_DATABSE_URL="x")("tasks", "list", code=3)
    assert complaint == "weft: setting WEFT_DATABSE_URL: there is no such setting. Did you mean 'database_url'?"


def test_help_and_version_load_nothing_that_is_slow(tmp_path: Path) -> None:
    for option, words in (("--help", "Usage: weft"), ("--version", "weft ")):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "weft", option],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout.startswith(words)
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "typer" in loaded
        assert loaded.isdisjoint({"rich", "asyncio", "asyncpg", "pydantic", "sqlalchemy", "alembic", "weft.sdk.client"})


def test_no_command_at_all_prints_help(tmp_path: Path) -> None:
    cli = Cli(None, tmp_path)
    assert "Commands:\n  worker" in cli()
    assert "Commands:\n  list" in cli("tasks")


def test_the_shell_completes_commands_states_and_queues(cli: Cli) -> None:
    cli("queues", "create", "emails")
    for words, position, offered in (
        ("weft ", 1, {"worker", "tasks", "demo"}),
        ("weft tasks list --state r", 4, {"ready", "running"}),
        ("weft queues pause e", 3, {"emails"}),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "weft"], capture_output=True, text=True, check=False,
            env={
                **cli.environment, "_WEFT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)
            },
        )  # fmt: skip
        assert offered <= set(done.stdout.split())


def test_a_reader_that_goes_away_causes_no_traceback(cli: Cli) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "weft", "tasks", "list"],
        stdout=writing, stderr=subprocess.PIPE, text=True, env=cli.environment, check=False,
    )  # fmt: skip
    os.close(writing)
    assert "Traceback" not in done.stderr
