"""Real processes behind a transaction pooler: workers that poll or listen, migrations, a setting that was forgotten."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from apps.cli_scene import Cli

from pooler import Pooler, pooler_to

ADVICE = "set WEFT_POOLER=transaction"


def cli_through(pooler: Pooler, home: Path, **variables: str) -> Cli:
    return Cli(pooler.url, home, WEFT_POOLER="transaction", **variables)


def enqueued(cli: Cli, *arguments: str) -> Any:
    """Enqueue by the command and wait for the end of the task."""
    return cli.json("tasks", "enqueue", *arguments, "--wait")


def test_a_worker_that_only_polls_works_tasks_to_their_end_and_stops_well(pooler: Pooler, home: Path) -> None:
    cli = cli_through(pooler, home, WEFT_WORKER_POLL_INTERVAL="50ms")
    with cli.worker() as worker:
        assert enqueued(cli, "cli:add", "--params", '{"a": 1, "b": 2}')["output"] == 3
        assert "no luck" in cli("tasks", "enqueue", "cli:fail", "--wait", code=1)
        assert [task["handler"] for task in cli.json("dead", "list")["tasks"]] == ["cli:fail"]
        held = cli.enqueue("cli:forever")
        cli.wait_until_logged(held, "waiting")
        cli("tasks", "cancel", held)
        assert [task["id"] for task in cli.json("tasks", "list", "--state", "cancelled")["tasks"]] == [held]
        last = cli.enqueue("cli:forever")
        cli.wait_until_logged(last, "waiting")
        worker.signal(signal.SIGTERM)
        worker.line("stopping")
        worker.signal(signal.SIGTERM)
        assert worker.code() == 128 + signal.SIGTERM
    assert cli.task(last).state == "ready"
    assert cli.workers() == []
    assert not pooler.saw("listen")


def test_a_worker_with_a_direct_line_claims_because_it_is_told(pooler: Pooler, url: str, home: Path) -> None:
    """It looks by itself once in an hour, and a task's outcome goes with a claim that finds the queue empty."""
    cli = cli_through(pooler, home, WEFT_LISTEN_URL=url, WEFT_WORKER_POLL_INTERVAL="1h")
    with cli.worker() as worker:
        for a in (1, 2, 3):
            assert enqueued(cli, "cli:add", "--params", f'{{"a": {a}}}')["output"] == a + 1
        worker.signal(signal.SIGTERM)
        assert worker.code() == 0
    assert not pooler.saw("listen")


@pytest.mark.own_database
@pytest.mark.parametrize("has_direct_way", [False, True])
def test_the_schema_is_taken_down_and_up_again_by_the_direct_way_if_there_is_one(
    pooler: Pooler, url: str, home: Path, has_direct_way: bool
) -> None:
    cli = cli_through(pooler, home, **({"WEFT_LISTEN_URL": url} if has_direct_way else {}))
    head = cli.json("migrate", "current")["head"]
    assert cli("migrate", "downgrade", "base", "--yes").strip() == f"downgraded from {head} to nothing"
    assert cli("tasks", "list", code=3).endswith("run `weft migrate upgrade`")
    assert cli("migrate").strip() == f"upgraded from nothing to {head}"
    assert cli("tasks", "list").strip() == "no tasks"
    assert pooler.saw("create table weft.task (") != has_direct_way
    assert cli.json("db", "status")["kind"] == "outside"


@pytest.mark.parametrize("command", [["tasks", "list"], ["worker", "--app", "cli_app"], ["migrate"], ["db", "status"]])
def test_a_pooler_that_nobody_told_of_is_recognised_by_its_refusal(
    pooler: Pooler, home: Path, command: list[str]
) -> None:
    complaint = Cli(pooler.url, home)(*command, code=3)
    assert complaint.startswith("weft: setting WEFT_POOLER: ")
    assert ADVICE in complaint
    assert "\n" not in complaint


def test_a_worker_that_would_hear_nothing_does_not_start_and_says_which_setting_to_use(url: str, home: Path) -> None:
    with pooler_to(url, ignores_settings=True) as pooler:
        complaint = Cli(pooler.url, home)("worker", "--app", "cli_app", code=3)
        assert complaint.endswith(
            "setting WEFT_POOLER: WEFT_DATABASE_URL leads through a pooler (no notification arrives): "
            f"{ADVICE}, or let the pooler keep sessions and ignore unknown startup parameters"
        )
        through = Cli(pooler.url, home, WEFT_POOLER="transaction", WEFT_LISTEN_URL=f"{pooler.url}&connect_timeout=9")
        complaint = through("worker", "--app", "cli_app", code=3)
        assert "setting WEFT_LISTEN_URL: leads through a pooler (no notification arrives)" in complaint
