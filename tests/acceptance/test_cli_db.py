"""The database through the command line: the embedded one's life, an outside one's safety, its schema, the settings."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from apps.cli_scene import Cli

from room import make_home


@pytest.fixture
def own_home() -> Iterator[Path]:
    """A home for a server of the test's own."""
    home = make_home("cli")
    yield home
    Cli(None, home)("db", "reset", "--yes")
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.long
def test_the_embedded_database_is_started_backed_up_reset_restored_and_stopped(own_home: Path, tmp_path: Path) -> None:
    cli = Cli(None, own_home)
    assert "PostgreSQL 18" in cli("db", "start")
    assert "runs already" in cli("db", "start")
    status = cli.json("db", "status")
    assert (status["kind"], status["running"], status["folder"]) == ("embedded", True, str(own_home / "pgdata"))
    task_id = cli.enqueue("cli:add", a=1)
    assert cli("db", "psql", "-Atc", "select id from weft.tasks").strip() == task_id
    assert cli("db", "url").startswith("postgresql://postgres@/weft?host=")
    file = tmp_path / "weft.dump"
    assert cli("db", "backup", str(file)).startswith(f"wrote {file}")
    cli.enqueue("cli:add", a="x" * 300_000)
    said = cli("db", "backup", str(tmp_path / "other.dump"))
    assert said.endswith(f"; large values are in {own_home / 'blobs'}, not in it: copy that folder too\n")
    cli.environment["WEFT_BLOB_URL"] = "s3://bucket/prefix"
    said = cli("db", "backup", str(tmp_path / "other.dump"))
    assert said.endswith("; large values are in s3://bucket/prefix, not in it: keep a copy of that bucket too\n")
    del cli.environment["WEFT_BLOB_URL"]
    assert "run it again with --yes" in cli("db", "reset", code=2)
    assert cli("db", "reset", "--yes").strip() == "reset"
    assert cli("tasks", "list").strip() == "no tasks"
    assert cli("db", "restore", str(file)).strip() == f"restored {file}"
    assert cli.task(task_id).state == "ready"
    later = cli.enqueue("cli:add", a=2)
    assert "run it again with --yes" in cli("db", "restore", str(file), code=2)
    (tmp_path / "cut.dump").write_bytes(file.read_bytes()[:-200])
    assert "cut.dump" in cli("db", "restore", str(tmp_path / "cut.dump"), "--yes", code=3)
    assert {task["id"] for task in cli.json("tasks", "list")["tasks"]} == {task_id, later}
    assert cli("db", "restore", str(file), "--yes").strip() == f"restored {file}"
    assert [task["id"] for task in cli.json("tasks", "list")["tasks"]] == [task_id]
    assert cli("db", "stop").strip() == "stopped"
    assert cli("db", "stop").strip() == "it does not run"
    assert cli.json("db", "status", code=1)["running"] is False


def test_what_was_done_to_the_embedded_database_is_told_to_programs(own_home: Path, tmp_path: Path) -> None:
    cli = Cli(None, own_home)
    began, again = cli.json("db", "start"), cli.json("db", "start")
    assert (began["started"], again["started"], again["pid"]) == (True, False, began["pid"])
    assert cli.json("db", "url") == {"url": cli("db", "url").strip()}
    file = tmp_path / "weft.dump"
    assert cli.json("db", "backup", str(file)) == {"file": str(file), "size": file.stat().st_size}
    foreign = file.with_name("foreign.txt")
    foreign.write_text("mine")
    assert "foreign.txt is not a backup of Weft" in cli("db", "backup", str(foreign), code=3)
    assert foreign.read_text() == "mine"
    assert cli.json("db", "restore", str(file), "--yes") == {"restored": str(file)}
    assert [cli.json("db", "stop", *way) for way in (["--immediate"], [])] == [{"stopped": True}, {"stopped": False}]
    assert cli.json("db", "reset", "--yes") == {"reset": str(own_home / "pgdata")}


@pytest.mark.parametrize("verb", [["start"], ["stop"], ["reset", "--yes"], ["backup", "f"], ["restore", "f"]])
def test_an_outside_database_is_neither_started_nor_stopped(home: Path, verb: list[str]) -> None:
    cli = Cli("postgresql://ada:hush@db.example.com/app", home)
    complaint = cli("db", *verb, code=2)
    assert "outside database (postgresql://ada@db.example.com/app)" in complaint
    assert "hush" not in complaint


def test_the_address_is_printed_without_its_password_unless_asked_for(home: Path) -> None:
    url = "postgresql://ada:hu%40sh@db.example.com/app?sslmode=require"
    cli = Cli(url, home)
    assert cli("db", "url").strip() == "postgresql://ada@db.example.com/app?sslmode=require"
    assert cli("db", "url", "--show-password").strip() == url
    hidden = Cli("postgresql:///app?host=h&user=ada&password=hush", home)("db", "url").strip()
    assert hidden == "postgresql:///app?host=h&user=ada"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3c/ret@localhost:1/db",
        "postgresql://ada:12/ret@localhost:1/db",
        "postgresql://ada:12?x=ret@localhost:1/db",
        "postgresql://ada:a#ret@localhost:1/db",
        "postgres//ada:s3cret@localhost/db",
        "host=localhost password=s3cret",
    ],
)
def test_an_address_that_cannot_be_read_is_hidden_whole(home: Path, url: str) -> None:
    """Its password may reach anywhere."""
    cli = Cli(url, home, WEFT_LISTEN_URL=url)
    shown = [cli("config"), cli("config", "--json"), cli("db", "url"), cli("db", "stop", code=2)]
    shown += [cli(*command, code=3) for command in (["db", "psql"], ["db", "status"], ["tasks", "list"], ["migrate"])]
    for text in shown:
        assert "ret" not in text.replace("retention", "").replace("RETENTION", "").replace("secret", "")
        assert "ada" not in text


def test_psql_gets_the_password_by_its_environment_alone(url: str, home: Path) -> None:
    cli = Cli(url.replace("postgres@", "postgres:hush@"), home)
    assert cli("db", "psql", "-Atc", "select 1").strip() == "1"
    if Path("/proc").is_dir():
        arguments = cli("db", "psql", "-c", r"\! tr '\0' ' ' < /proc/$PPID/cmdline")
        assert "psql" in arguments
        assert "hush" not in arguments
        assert "PGPASSWORD=hush" in cli("db", "psql", "-c", r"\! tr '\0' '\n' < /proc/$PPID/environ")


def test_the_state_of_an_outside_database_is_told(url: str, home: Path) -> None:
    cli = Cli(url, home)
    status = cli.json("db", "status")
    version = cli("db", "psql", "-Atc", "show server_version").strip()
    assert (status["kind"], status["running"], status["version"]) == ("outside", True, version)
    status = Cli("postgresql://ada:hush@127.0.0.1:1/app", home).json("db", "status", code=1)
    assert (status["running"], status["version"], status["url"]) == (False, None, "postgresql://ada@127.0.0.1:1/app")
    assert status["problem"].endswith("check that it runs, and the host and the port")


@pytest.mark.own_database
def test_the_schema_is_taken_down_and_up_again(url: str, home: Path) -> None:
    cli = Cli(url, home)
    found = cli.json("migrate", "current")
    assert found["current"] == found["head"]
    assert found["head"] in {step["revision"] for step in cli.json("migrate", "history")["revisions"]}
    head = found["head"]
    assert cli("migrate").strip() == f"at revision {head} already"
    assert cli.json("migrate", "upgrade") == {"before": head, "current": head}
    assert cli.json("migrate", "downgrade", "base", "--yes") == {"before": head, "current": None}
    assert cli.json("migrate", "upgrade") == {"before": None, "current": head}
    assert cli("migrate", "downgrade", "base", "--yes").strip() == f"downgraded from {found['head']} to nothing"
    assert cli("tasks", "list", code=3).endswith("run `weft migrate upgrade`")
    assert cli("migrate", "upgrade").strip() == f"upgraded from nothing to {found['head']}"
    assert cli("tasks", "list").strip() == "no tasks"


@pytest.mark.own_database
def test_the_sql_of_an_upgrade_begins_at_the_revision_of_the_database(url: str, home: Path) -> None:
    cli = Cli(url, home)
    head = cli.json("migrate", "current")["head"]
    assert cli("migrate", "upgrade", "--sql") == f"-- at revision {head} already: nothing to do for {head}\n"
    cli("migrate", "downgrade", "base", "--yes")
    printed = cli("migrate", "upgrade", "--sql")
    assert cli.json("migrate", "current")["current"] is None
    assert cli.json("migrate", "upgrade", "--sql") == {"sql": printed.rstrip("\n")}
    cli("db", "psql", "-qv", "ON_ERROR_STOP=1", text=printed)
    assert cli.json("migrate", "current")["current"] == head


def test_without_a_database_the_whole_upgrade_is_printed_and_none_is_made(tmp_path: Path) -> None:
    for cli in (Cli("postgresql://nobody@127.0.0.1:1/none", tmp_path), Cli(None, tmp_path / "home")):
        printed = cli("migrate", "upgrade", "--sql")
        assert "create table weft.task" in printed.lower()
        assert "schema_revision" in printed
    assert not (tmp_path / "home").exists()


def test_the_settings_in_force_are_printed_without_passwords(home: Path) -> None:
    cli = Cli("postgresql://ada:hush@db.example.com/app", home, WEFT_WORKER_CONCURRENCY="7", WEFT_RETENTION="2d")
    values = cli.json("config")
    assert (values["worker_concurrency"], values["retention"]) == (7, 172800)
    assert values["database_url"] == "postgresql://ada@db.example.com/app"
    assert values["log_dir"] == str(home / "logs")
    text = cli("config")
    assert re.search(r"WEFT_WORKER_CONCURRENCY +\*  7", text)
    assert "hush" not in text
