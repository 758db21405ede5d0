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
        (["enqueue"], 2, "there is no command weft enqueue. Did you mean `weft tasks enqueue`?"),
        (["backfill"], 2, "Did you mean `weft schedules backfill` or `weft live backfill`?"),
        (["tasks", "lst"], 2, "there is no command weft tasks lst. Did you mean 'list'?"),
        (["tasks", "list", "--queu", "x"], 2, "No such option: --queu"),
        (["tasks", "show"], 2, "Missing argument 'ID'"),
        (["worker", "--concurrency", "0"], 2, "--concurrency"),
        (["worker", "--queues", "a,,b"], 2, "queues: 'a,,b' has an empty name"),
        (["tasks", "show", "x"], 2, "id: 'x' is not an id"),
        (["tasks", "list", "--before", "-1"], 2, "before: '-1' is not an id"),
        (["jobs", "show", "x"], 2, "give a number as `weft jobs list` shows it"),
        (["events", "send", "told", "--payload", "{"], 2, "payload: is not JSON"),
        (["tasks", "enqueue", "h", "--params", "{"], 2, "params: is not JSON"),
        (["tasks", "enqueue", "h", "--params", "@nowhere"], 2, "params: cannot read nowhere"),
        (["tasks", "enqueue", "h", "--params", "[" * 100000], 2, "params: is nested too deeply"),
        (["tasks", "enqueue", "h", "--delay", "soon"], 2, "delay: 'soon' is not a duration"),
        (["tasks", "enqueue", "h", "--run-at", "soon"], 2, "run_at: 'soon' is not a moment"),
        (["dead", "replay"], 2, "id: name the tasks, or give --all"),
        (["tasks", "cancel"], 2, "id: name the tasks, or give --all"),
        (["dead", "replay", "1", "--all"], 2, "id: give either ids, or --all"),
        (["outbox", "replay"], 2, "id: name the effects, or give --all"),
        (["outbox", "purge"], 2, "id: name the effects, or give --all"),
        (["outbox", "list", "--state", "odd"], 2, "state: 'odd' is not one of pending"),
        (
            ["outbox", "list", "--kind", "odd"],
            2,
            "kind: 'odd' is not one of enqueue_task, route_event, callback, openlineage",
        ),
        (["workers", "list", "--state", "odd"], 2, "state: 'odd' is not one of active, idle, stopped, lost"),
        (["queues", "limit", "q", "--max", "-3"], 2, "Invalid value for '--max'"),
        (["queues", "limit", "q", "--max", "0"], 2, "Invalid value for '--max'"),
        (["worker", "--concurrency", "2147483648"], 2, "Invalid value for '--concurrency'"),
        (["queues", "limit", "q", "--max", "1", "--none"], 2, "max: give either --max or --none"),
        (["migrate", "downgrade", "base"], 2, "run it again with --yes"),
        (["migrate", "current", "0001"], 2, "revision: `weft migrate current` takes none"),
        (["query", "select 1", "-o", "x.xlsx"], 2, "x.xlsx ends in none of .json, .jsonl, .csv, .arrow, .parquet"),
        (["query", "select 1", "-o", "x.csv", "--format", "table"], 2, "--format: a table is only printed"),
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
    ):
        complaint = cli(*arguments, code=code)
        assert words in complaint
        assert "\n" not in complaint


def test_whoever_asked_for_json_has_the_error_as_json(cli: Cli, tmp_path: Path) -> None:
    for arguments, exit_code, code, field in (
        (["tasks", "show", "12"], 4, "not_found", None),
        (["tasks", "enqueue", "h", "--priority", "99999"], 2, "invalid_input", "priority"),
        (["tasks", "list", "--queu", "x"], 2, "usage", None),
        (["dead", "replay"], 2, "invalid_input", "id"),
    ):
        error = cli.json(*arguments, code=exit_code)["error"]
        assert (error["code"], error["field"]) == (code, field)
        assert error["message"]
    away = Cli("postgresql://weft:hush@127.0.0.1:1/weft", tmp_path)
    assert away.json("tasks", "list", code=3)["error"]["code"] == "database_unavailable"


def test_a_database_that_cannot_be_reached_is_told_without_its_password(tmp_path: Path) -> None:
    cli = Cli("postgresql://weft:hush@127.0.0.1:1/weft?password=hush", tmp_path)
    complaint = cli("tasks", "list", code=3)
    assert complaint.startswith("weft: cannot reach PostgreSQL at ")
    assert "hush" not in complaint
    assert "\n" not in complaint


def test_an_unknown_setting_is_told_with_a_suggestion(tmp_path: Path) -> None:
    complaint = Cli(None, tmp_path, WEFT_DATABSE_URL="x")("tasks", "list", code=3)
    assert complaint == "weft: setting WEFT_DATABSE_URL: there is no such setting. Did you mean 'WEFT_DATABASE_URL'?"


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
    assert "Commands:\n  dev" in cli()
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


def test_a_folder_that_cannot_be_used_is_told_with_the_setting_that_names_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    large = tmp_path / "large.json"
    large.write_text(f'{{"text": "{"x" * 300_000}"}}')
    cli.environment["WEFT_BLOB_URL"] = str(tmp_path / "file" / "blobs")
    complaint = cli("tasks", "enqueue", "h", "--params", f"@{large}", code=3)
    assert complaint.startswith(f"weft: cannot use {tmp_path / 'file' / 'blobs'}")
    assert complaint.endswith("or set WEFT_BLOB_URL to another folder")
    assert "\n" not in complaint


@pytest.mark.skipif("not os.path.exists('/dev/full')", reason="there is no disk that is always full")
@pytest.mark.parametrize("arguments", [["config"], ["config", "--json"], ["--version"]])
def test_output_that_finds_no_space_is_told_in_one_line(cli: Cli, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "weft", *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
            env=cli.environment, check=False,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("weft: No space left on device: ")
    assert done.stderr.count("\n") == 1


def test_a_role_without_a_right_is_told_which_one_and_where_to_read_on(cli: Cli) -> None:
    cli("db", "psql", "-qc", "create role narrow login", "-c", "grant usage on schema weft to narrow")
    cli("db", "psql", "-qc", "grant select on weft.schema_revision, weft.org, weft.queue, weft.worker to narrow")
    try:
        cli.environment["WEFT_DATABASE_URL"] = cli.environment["WEFT_DATABASE_URL"].replace("postgres@", "narrow@")
        complaint = cli("queues", "create", "mail", code=3)
    finally:
        cli.environment["WEFT_DATABASE_URL"] = cli.environment["WEFT_DATABASE_URL"].replace("narrow@", "postgres@")
        cli("db", "psql", "-qc", "drop owned by narrow", "-c", "drop role narrow")
    assert complaint.startswith(
        "weft: permission denied for table queue (role narrow lacks insert, update, delete there"
    )
    assert "docs/how-to/use-your-own-postgres.md" in complaint
    assert "\n" not in complaint


@pytest.mark.own_database
def test_what_nobody_expected_is_one_line_with_a_code_of_its_own_and_the_way_to_its_traceback(cli: Cli) -> None:
    """Somebody has put a condition of their own on a table of ours."""
    cli("db", "psql", "-qc", "alter table weft.queue add constraint odd check (name <> 'odd')")
    complaint = cli("queues", "create", "odd", code=7)
    assert complaint.startswith("weft: unexpected CheckViolationError (23514): ")
    assert "WEFT_DEBUG=1 shows the traceback" in complaint
    assert "\n" not in complaint
    done = subprocess.run(
        [sys.executable, "-m", "weft", "queues", "create", "odd"], capture_output=True, text=True,
        env={**cli.environment, "WEFT_DEBUG": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert done.stderr.splitlines()[-1] == complaint


@pytest.mark.own_database
def test_a_statement_that_postgresql_ends_is_told_with_what_to_do(cli: Cli) -> None:
    cli("db", "psql", "-qc", "alter table weft.queue rename to queue_of_another_release")
    assert cli("queues", "create", "mail", code=3).endswith(
        "the schema is not what this release needs, see `weft migrate current`"
    )


def test_a_reader_that_has_seen_enough_is_no_error(cli: Cli) -> None:
    """More than a pipe holds is printed to one that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "weft", "migrate", "upgrade", "--sql"],
        stdout=writing, stderr=subprocess.PIPE, text=True, env=cli.environment, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_sql_that_a_deploy_finds_wrong_is_told_with_its_file_and_line(cli: Cli, tmp_path: Path) -> None:
    job = "{activation: reactive, operator: sql_transform, execution_strategy: PerUpdate, inputs: [ticks],"
    (tmp_path / "dag.yaml").write_text(
        f"""dag: market
jobs:
  spent:
    {job} outputs: [spent], config: {{sql: selec 1}}}}
  doubled:
    {job} outputs: [doubled], config: {{sql: select * from tick}}}}
"""
    )
    for flags in ([], ["--plan"]):
        told = cli("deploy", str(tmp_path / "dag.yaml"), *flags, code=2)
        for line, words in ((4, 'syntax error at or near "selec"'), (6, "Did you mean 'ticks'?")):
            assert any(each.startswith(f"{tmp_path}/dag.yaml:{line}:") and words in each for each in told.splitlines())
    assert cli.json("live", "list")["dags"] == []
