"""Worker processes as an operator meets them: ready, stopped gently, stopped at once, replaced when they die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from apps.cli_scene import APPS, Cli, until

# For tests of what any worker does: they run with each kind.
with_and_without_a_database = pytest.mark.parametrize("cli", ["direct", "through a server"], indirect=True)


@pytest.fixture
def cli(request: pytest.FixtureRequest, url: str, home: Path) -> Iterator[Cli]:
    """The command line; its workers may be without a database, by the test's own wish or for the whole run."""
    is_far = request.config.getoption("--through-a-server") or getattr(request, "param", "") == "through a server"
    made = Cli(url, home)
    with made.with_far_workers() if is_far else contextlib.nullcontext(made) as lent:
        yield lent


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A named pipe: whoever reads it waits until the test writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@with_and_without_a_database
def test_a_worker_runs_what_was_enqueued_and_its_log_can_be_read(cli: Cli) -> None:
    with cli.worker() as worker:
        assert "queues default, held, 7 handlers" in worker.lines[0]
        task_id = cli.json("tasks", "enqueue", "cli:speak", "--params", '{"text": "good morning"}', "--wait")["id"]
        shown = cli.json("tasks", "show", task_id)
        assert (shown["state"], shown["params"], shown["id"]) == ("completed", {"text": "good morning"}, task_id)
        printed = cli("tasks", "logs", task_id)
        assert "good morning\nto stderr\n" in printed
        assert "INFO cli_app: logged" in printed
        assert not [line for line in worker.lines if "logged" in line]
        [known] = cli.json("workers", "list")["workers"]
        assert (known["pid"], known["queues"]) == (worker.process.pid, ["default", "held"])
        assert isinstance(known["id"], str)
        assert cli.json("workers", "list", "--state", known["state"])["workers"] != []
        assert cli.json("workers", "list", "--state", "stopped")["workers"] == []
    [stopped] = cli.json("workers", "list", "--state", "stopped")["workers"]
    assert (stopped["id"], stopped["state"]) == (known["id"], "stopped")
    assert cli.json("workers", "list", "--state", "active")["workers"] == []


@with_and_without_a_database
def test_a_signal_lets_running_tasks_end_and_claims_nothing_more(cli: Cli, gate: Path) -> None:
    with cli.worker() as worker:
        held = cli.enqueue("cli:hold", queue="held", gate=str(gate))
        cli.wait_until_logged(held, "holding")
        worker.signal(signal.SIGTERM)
        worker.line("stopping")
        late = cli.enqueue("cli:add", a=1)
        gate.write_text("opened", encoding="utf-8")
        assert worker.code() == 0
    assert cli.task(held).output == "opened"
    assert cli.task(late).state == "ready"
    assert cli.workers() == []


@with_and_without_a_database
def test_a_second_signal_ends_the_worker_at_once_and_hands_back_what_ran(cli: Cli) -> None:
    with cli.worker() as worker:
        task_id = cli.enqueue("cli:forever")
        cli.wait_until_logged(task_id, "waiting")
        worker.signal(signal.SIGTERM)
        worker.line("stopping")
        worker.signal(signal.SIGTERM)
        assert worker.code() == 128 + signal.SIGTERM
    task = cli.task(task_id)
    assert (task.state, task.failures, task.crashes) == ("ready", 0, 0)


def test_a_worker_does_not_wait_for_threads_that_handlers_have_left(url: str, home: Path) -> None:
    cli = Cli(url, home, WEFT_WORKER_SHUTDOWN_GRACE="1s")
    with cli.worker() as worker:
        task_id = cli.enqueue("cli:leave_a_thread")
        cli.wait_until_logged(task_id, "waiting in a thread")
        worker.signal(signal.SIGTERM)
        assert worker.code() == 0
    assert cli.task(task_id).state == "ready"


def test_a_second_interrupt_ends_a_worker_whose_loop_is_blocked(cli: Cli) -> None:
    with cli.worker() as worker:
        task_id = cli.enqueue("cli:block_the_loop")
        cli.wait_until_logged(task_id, "blocking")
        worker.signal(signal.SIGINT)
        worker.line("stopping")
        worker.signal(signal.SIGINT)
        assert worker.code() == 128 + signal.SIGINT


@with_and_without_a_database
def test_a_worker_process_that_dies_is_replaced_and_all_stop_together(cli: Cli) -> None:
    with cli.worker("--processes", "2") as worker:
        worker.line("ready")
        first, second = cli.workers()
        os.kill(first.pid, signal.SIGKILL)
        worker.line("ended with signal SIGKILL")
        worker.line("ready")
        worker.signal(signal.SIGTERM)
        assert worker.code() == 0
    assert second.pid not in {known.pid for known in cli.workers()}


def test_worker_processes_stop_when_their_supervisor_is_killed(cli: Cli) -> None:
    with cli.worker("--processes", "2") as worker:
        worker.line("ready")
        worker.process.kill()
        until(lambda: not cli.workers())


def test_a_second_signal_ends_all_worker_processes_at_once(cli: Cli) -> None:
    with cli.worker("--processes", "2") as worker:
        worker.line("ready")
        task_id = cli.enqueue("cli:forever")
        cli.wait_until_logged(task_id, "waiting")
        worker.signal(signal.SIGINT)
        worker.line("stopping")
        worker.signal(signal.SIGINT)
        assert worker.code() == 128 + signal.SIGINT
    assert cli.task(task_id).state == "ready"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_module_that_is_not_there_is_told_in_one_line(cli: Cli, processes: str) -> None:
    complaint = cli("worker", "--app", "cli_nowhere", "--processes", processes, code=3)
    assert complaint.startswith("weft: cannot import 'cli_nowhere' given by --app: there is no module")
    assert "\n" not in complaint


def test_a_module_that_fails_is_told_with_its_error_and_its_line(cli: Cli) -> None:
    complaint = cli("worker", "--app", "cli_broken", code=3)
    assert complaint.endswith("ZeroDivisionError: integer division or modulo by zero (cli_broken.py, line 3)")


def test_a_worker_without_handlers_says_so(cli: Cli) -> None:
    """It would only give back what others could work."""
    said = cli("worker", "--queues", "default", code=2)
    assert said == (
        "weft: --app: there are no handlers: give modules that have functions with @weft.task; or --operators for live "
        "DAGs"
    )


def test_a_worker_is_stopped_while_it_waits_for_the_database(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cli = Cli(f"postgresql://weft@127.0.0.1:{silent.getsockname()[1]}/weft", home)
        with cli.start("worker", "--app", "cli_app") as worker:
            connection, _ = silent.accept()
            with connection:
                worker.signal(signal.SIGTERM)
                assert worker.code() == 0


@pytest.mark.parametrize("how", ["exit", "stop", "cancel"])
def test_a_task_that_ends_its_worker_in_an_orderly_way_is_lost_with_it_and_does_so_once(cli: Cli, how: str) -> None:
    with cli.worker("--app", "cli_leaving", "--processes", "2") as worker:
        task_id = cli.enqueue(f"leaving:{how}")
        worker.line("ended by one of its tasks")
        until(lambda: cli.task(task_id).state == "dead")
        assert cli.json("tasks", "enqueue", "cli:add", "--params", '{"a": 1}', "--wait")["state"] == "completed"
    task = cli.task(task_id)
    # The worker once; from then on it is tried in a process of its own, where it fails like any other.
    assert ([attempt.outcome for attempt in task.attempts], task.attempt) == (["lost", "failed", "failed"], 3)


def test_a_program_without_a_guard_is_not_run_again_in_the_processes_of_its_tasks(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "cli_unguarded.py"], cwd=APPS, env=cli.environment, capture_output=True, text=True, timeout=60
    )
    assert "put what the program does under `if __name__" in done.stderr
    assert done.returncode == 1
    assert len(cli.json("tasks", "list")["tasks"]) == 1
