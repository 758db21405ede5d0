"""``weft dev``: everything in one command, its parts restarted, replaced and stopped in order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from apps.cli_scene import Cli, Command, until

from room import make_home
from weft.core.settings import Settings
from weft.db import embedded

GREET = """\
import weft

@weft.task(name="shop:greet")
async def greet() -> str:
    return "{word}"
"""

SLOW = """\
import asyncio, pathlib, weft

@weft.task(name="shop:slow")
async def slow() -> None:
    pathlib.Path("began").touch()
    await asyncio.sleep(600)
"""


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def cli(url: str, home: Path, tmp_path: Path) -> Cli:
    cli = Cli(url, home)
    cli.folder = tmp_path / "shop"
    cli.folder.mkdir()
    _write(cli, "hello")
    return cli


def _write(cli: Cli, word: str) -> None:
    (cli.folder / "shop.py").write_text(GREET.format(word=word), encoding="utf-8")


def _greeted(cli: Cli) -> str:
    return str(cli.json("tasks", "enqueue", "shop:greet", "--wait")["output"])


@contextlib.contextmanager
def _dev(cli: Cli, *arguments: str) -> Iterator[Command]:
    with cli.start("dev", "--port", "0", *arguments) as command:
        command.line("weft dev is ready")
        yield command


def test_one_command_starts_everything_and_stops_it_in_order(cli: Cli) -> None:
    with _dev(cli, "--app", "shop") as dev:
        address = dev.line("address").split()[1].rstrip(",")
        link = dev.line("sign in").split()[-1]
        assert httpx.get(f"{address}/api/v1/tasks").status_code == 401
        with httpx.Client() as browser:
            assert browser.get(link).status_code == 303
            assert browser.get(f"{address}/api/v1/tasks").json()["items"] == []
        assert httpx.get(link).status_code == 401
        assert any("`weft tokens sign-in --role admin` makes another" in line for line in dev.lines)
        another = cli("tokens", "sign-in", "--role", "admin").strip()
        assert another.startswith(f"{address}/sign-in?code=")
        assert httpx.get(another).status_code == 303
        assert _greeted(cli) == "hello"
        second = cli("dev", code=5)
        assert f"process {dev.process.pid} answers at {address}" in second
        dev.signal(signal.SIGINT)
        assert dev.code() == 0
        told = [line.partition("│ ")[2] for line in dev.lines if line.startswith("weft  ")]
        assert [line.split(" may ")[0] for line in told] == [
            "stopping", "the workers", "the orchestrator", "all of it has stopped"
        ]  # fmt: skip
    assert cli.workers() == []
    assert cli("tokens", "sign-in").startswith("/sign-in?code=")
    cli.environment["WEFT_PUBLIC_URL"] = "https://weft.example.com/"
    assert cli("tokens", "sign-in").startswith("https://weft.example.com/sign-in?code=")


def test_handlers_change_with_their_files_and_those_that_are_broken_are_told_and_not_taken(cli: Cli) -> None:
    with _dev(cli, "--app", "shop") as dev:
        _write(cli, "hi")
        dev.line(r"shop.py changed: new workers")
        dev.line("worker .* ready")
        until(lambda: _greeted(cli) == "hi")
        (cli.folder / "shop.py").write_text("x = (", encoding="utf-8")
        dev.line("SyntaxError: '\\(' was never closed .shop.py, line 1")
        dev.line("the one before goes on")
        assert _greeted(cli) == "hi"
        _write(cli, "good day")
        dev.line("worker .* ready")
        until(lambda: _greeted(cli) == "good day")


def test_what_cannot_be_imported_from_the_beginning_is_taken_when_it_is_mended(cli: Cli) -> None:
    (cli.folder / "shop.py").write_text("1 / 0", encoding="utf-8")
    assert "ZeroDivisionError" in cli("dev", "--port", "0", "--app", "shop", "--no-reload", code=3)
    with _dev(cli, "--app", "shop") as dev:
        assert any("waits for a change of your files" in line for line in dev.lines)
        _write(cli, "hello")
        dev.line("worker .* ready")
        assert _greeted(cli) == "hello"


def test_a_part_that_dies_is_told_and_started_anew_and_all_end_with_the_parent(cli: Cli) -> None:
    with _dev(cli, "--app", "shop", "--workers", "2") as dev:
        first = next(worker for worker in cli.workers() if "shop:greet" in worker.handlers)
        os.kill(first.pid, signal.SIGKILL)
        name = re.split(r"\s*│", dev.line("ended with signal SIGKILL; starting it anew in 0.5 s"))[0]
        dev.line(f"{name} .* ready")
        assert _greeted(cli) == "hello"
        others = {worker.id for worker in cli.workers()} - {first.id}
        os.kill(dev.process.pid, signal.SIGKILL)
        until(lambda: not others & {worker.id for worker in cli.workers()})


def test_operators_of_live_dags_need_no_module(cli: Cli) -> None:
    rates = {"activation": "source", "operator": "sql_transform", "source": {"kind": "event", "event": "sale"}}
    rates |= {"config": {"sql": "select id from changes"}, "outputs": ["sales"]}
    (cli.folder / "sales.json").write_text(json.dumps({"dag": "sales", "jobs": {"sales": rates}}), encoding="utf-8")
    with _dev(cli, "--operators") as dev:
        dev.line("1 process for operators of live DAGs")
        assert cli.json("deploy", "sales.json")["warnings"] == []
        cli("events", "send", "sale", "--payload", '{"id": 7}')
        until(lambda: cli.json("datasets", "show", "sales")["rows"] == 1)


def test_a_port_that_is_taken_is_told_before_anything_starts(cli: Cli) -> None:
    with _dev(cli) as dev:
        port = dev.line("address").split()[1].rstrip(",").rpartition(":")[2]
        dev.line("none: give --app MODULE")
        other = Cli(cli.environment["WEFT_DATABASE_URL"], Path(cli.environment["WEFT_HOME"]).with_name("other"))
        said = other("dev", "--port", port, code=3)
        assert said == (
            f"weft: cannot listen at 127.0.0.1:{port}: Address already in use: "
            "give another --port, or stop what listens there"
        )


def test_what_cannot_start_is_told_in_a_line_and_nothing_goes_on(cli: Cli) -> None:
    cli.environment["WEFT_DATABASE_URL"] = "postgresql://weft@127.0.0.1:1/weft"
    for command in (("dev", "--port", "0"), ("server", "--port", "0")):
        said = cli(*command, code=3)
        assert "cannot reach PostgreSQL at postgresql://weft@127.0.0.1:1/weft" in said
        assert "Traceback" not in said


def test_as_json_each_line_is_an_object_that_names_its_part(cli: Cli) -> None:
    with _dev(cli, "--app", "shop", "--log-format", "json") as dev:
        _write(cli, "hi")
        dev.line("worker .* ready, ")
        dev.signal(signal.SIGTERM)
        assert dev.code() == 0
    lines = [json.loads(line) for line in dev.lines if line.startswith("{")]
    assert {line["part"] for line in lines} == {"orchestrator", "worker", "weft"}
    assert all(line["level"] and line["time"] for line in lines)
    ready = [line for line in lines if line["part"] == "worker" and " ready, " in line["message"]]
    assert len({line["worker_id"] for line in ready}) == len(ready) == 2
    assert lines[-1]["message"] == "all of it has stopped"
    told = [line for line in dev.lines if not line.startswith("{")]
    assert all(line.startswith(("weft dev is ready", "  ")) for line in told)


def test_a_second_signal_ends_what_runs_and_starts_nothing_anew(cli: Cli) -> None:
    (cli.folder / "shop.py").write_text(SLOW, encoding="utf-8")
    with _dev(cli, "--app", "shop") as dev:
        cli("tasks", "enqueue", "shop:slow")
        until(lambda: (cli.folder / "began").exists())
        dev.signal(signal.SIGINT)
        dev.line("the workers may end")
        dev.signal(signal.SIGINT)
        assert dev.code() == 130
    assert not any("anew" in line for line in dev.lines)
    assert cli.workers() == []
    assert [task["state"] for task in cli.json("tasks", "list")["tasks"]] == ["ready"]


@pytest.mark.embedded
def test_the_embedded_database_is_started_kept_going_and_stopped_with_everything_else() -> None:
    home = make_home("dev")
    cli = Cli(None, home)
    try:
        with _dev(cli) as dev:
            address = dev.line("address").split()[1].rstrip(",")
            before = cli.json("db", "status")
            assert before["running"] is True
            os.kill(before["pid"], signal.SIGKILL)
            dev.line("the database has died: starting it anew")
            until(lambda: httpx.get(f"{address}/readyz").status_code == 200)
            assert cli("db", "stop").strip() == "stopped"
            assert not embedded.has_died(Settings(home=home)), "what somebody has stopped stays so"
            dev.signal(signal.SIGTERM)
            assert dev.code() == 0
        assert cli.json("db", "status", code=1)["running"] is False
    finally:
        cli("db", "reset", "--yes")
        shutil.rmtree(home, ignore_errors=True)
