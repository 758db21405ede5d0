"""How a job goes, from the command line: watched, left, explained, its events and logs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from apps.cli_scene import Cli

from warm import run_weft

APP = ("--app", "apps.cli_tiles")


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def _write(folder: Path, **nodes: Any) -> str:
    first, *_ = nodes
    whole = {"START": {"type": "start", "next": first}, **nodes, "END": {"type": "end", "output": "done"}}
    path = folder / "flow.json"
    path.write_text(json.dumps({"workflow_id": "watched", "nodes": whole}), encoding="utf-8")
    return str(path)


def test_what_a_job_has_printed_and_what_happened_in_it_can_be_read(cli: Cli, folder: Path) -> None:
    flow = _write(
        folder,
        flaky={"handler": "tiles.flaky", "next": "each"},
        each={"type": "fan_out", "items": [1, 2], "task": {"handler": "tiles.say", "params": {"lines": "{{ item }}"}},
              "next": "END"},
    )  # fmt: skip
    job_id = cli.json("run", flow, *APP)["id"]
    printed = cli("jobs", "logs", job_id).splitlines()
    assert printed[:2] == ["flaky | attempt 1", "flaky | attempt 2"]
    assert sorted(printed[2:]) == ["each[0] | line 0", "each[1] | line 0", "each[1] | line 1"]
    followed = cli("jobs", "logs", job_id, "--follow").splitlines()
    assert [line for line in followed if "[weft:" not in line and line != "flaky | "] == printed
    assert cli("jobs", "logs", job_id, "flaky").splitlines() == printed[:2]
    lines = [json.loads(line) for line in cli("jobs", "logs", job_id, "flaky", "--json").splitlines()]
    assert [(line["node"], line["attempt"], line["line"]) for line in lines] == [
        ("flaky", 1, "attempt 1"), ("flaky", 2, "attempt 2"),
    ]  # fmt: skip
    assert "there is no node 'eachh'" in cli("jobs", "logs", job_id, "eachh", code=4)
    events = [json.loads(line) for line in cli("jobs", "events", job_id, "--json").splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("job.submitted", "job.completed")
    assert [json.loads(line) for line in cli("jobs", "events", job_id, "--follow", "--json").splitlines()] == events
    shown = cli("jobs", "events", job_id).splitlines()
    assert len(shown) == len(events)
    assert "attempt failed (attempt 1)  ConnectionResetError: the other side hung up" in "\n".join(shown)
    assert cli("jobs", "events", job_id, "--after", "nonsense", code=2).startswith("weft: after: is no cursor")


def test_a_job_that_failed_shows_the_end_of_its_log_and_ends_with_its_code(cli: Cli, folder: Path) -> None:
    flow = _write(folder, broken={"handler": "tiles.break", "params": {"lines": 12}, "next": "END"})
    told = cli("run", flow, *APP, code=1)
    assert "weft: broken dead in" in told
    assert "weft: the last 10 lines broken has printed, in attempt 1:\n  broken line 2\n" in told
    assert "END" not in told
    job_id = cli.json("jobs", "list")["jobs"][0]["id"]
    assert "broken line 11" in cli("jobs", "watch", job_id, code=1)
    assert cli.json("jobs", "watch", job_id, code=1)["state"] == "failed"
    assert cli("jobs", "why", job_id) == "the job has ended: failed (task_failed)\n"
    assert cli("jobs", "watch", "1", code=4).startswith("weft: there is no job 1")


def test_whoever_leaves_a_job_finds_it_again(cli: Cli, folder: Path) -> None:
    flow = _write(folder, review={"type": "wait", "for": "approval", "next": "END"})
    with cli.start("run", flow, *APP) as running:
        told = running.line("weft jobs approve")
        job_id = told.split()[7]
        assert told == f"weft: review: answer it: `weft jobs approve {job_id} review`, or with --reject"
        running.signal(signal.SIGINT)
        assert f"`weft jobs watch {job_id}`" in running.line("goes on without you")
        assert running.code() == 130
    why = cli.json("jobs", "why", job_id)["nodes"]
    assert [(each["node"], each["cause"]) for each in why] == [("review", "approval")]
    assert cli("jobs", "why", job_id, "END").startswith("END pending: it waits for review (waiting)")
    with cli.start("jobs", "watch", job_id) as watching, cli.start("orchestrator") as orchestrator:
        watching.line("weft jobs approve")
        cli("jobs", "approve", job_id)
        watching.line("review completed")
        assert watching.code() == 0
        assert '"done"' in watching.lines
        orchestrator.signal(signal.SIGTERM)
        assert orchestrator.code() == 0


def test_the_second_ctrl_c_cancels_the_job(cli: Cli, folder: Path) -> None:
    flow = _write(folder, slow={"handler": "tiles.wait", "next": "END"})
    with cli.start("run", flow, *APP) as running:
        job_id = cli_job(cli)
        with cli.start("jobs", "logs", job_id, "--follow") as logs:
            logs.line("slow | waiting")
            running.signal(signal.SIGINT)
            running.line("Ctrl-C again cancels the job")
            running.signal(signal.SIGINT)
            running.line("cancelling job")
            assert running.code() == 6
            assert logs.code() == 0
    assert cli.json("jobs", "show", job_id)["state"] == "cancelled"


def cli_job(cli: Cli) -> str:
    """Return the job that a command is about to submit."""
    while True:
        if found := cli.json("jobs", "list")["jobs"]:
            return str(found[0]["id"])


def test_whoever_leaves_a_job_of_which_only_the_end_is_printed_is_told_its_id(cli: Cli, folder: Path) -> None:
    with cli.start("run", _write(folder, slow={"handler": "tiles.wait", "next": "END"}), *APP, "--json") as running:
        job_id = cli_job(cli)
        with cli.start("jobs", "logs", job_id, "--follow") as logs:
            logs.line("slow | waiting")
            running.signal(signal.SIGINT)
            running.line(f"job {job_id} goes on without you")
            assert running.code() == 130
            cli("jobs", "cancel", job_id)


def test_whoever_only_watches_leaves_at_once(cli: Cli, folder: Path) -> None:
    flow = _write(folder, slow={"handler": "tiles.wait", "next": "END"})
    job_id = cli.json("run", flow, "--detach")["id"]
    with cli.start("jobs", "watch", job_id) as watching:
        told = watching.line("no live worker serves queue 'default'")
        assert told.startswith("weft: slow: ")
        watching.signal(signal.SIGINT)
        watching.line("goes on without you")
        assert watching.code() == 130
    assert cli.json("jobs", "show", job_id)["state"] == "pending"


def test_metrics_and_health_are_printed(cli: Cli, folder: Path) -> None:
    cli("run", _write(folder, say={"handler": "tiles.say", "params": {"lines": 1}, "next": "END"}), *APP)
    found = {metric["name"]: metric for metric in cli.json("metrics")["metrics"]}
    assert found["jobs_completed_total"]["samples"][0]["value"] == 1
    assert "weft_jobs_completed_total 1\n" in cli("metrics", "--prometheus")
    assert "jobs_completed_total" in cli("metrics")
    assert "not both" in cli("metrics", "--prometheus", "--json", code=2)
    health = cli.json("health", code=1)
    assert (health["ok"], [check["ok"] for check in health["checks"]]) == (False, [True, False, True, True])
    away = Cli("postgresql://127.0.0.1:1/weft", folder)
    assert [check["ok"] for check in away.json("health", code=1)["checks"]] == [False] * 4


def test_whoever_wants_quiet_gets_answers_and_errors_only(cli: Cli, folder: Path) -> None:
    flow = _write(folder, say={"handler": "tiles.say", "params": {"lines": 1}, "next": "END"})
    for words in (("--quiet", "run", flow, *APP), ("run", flow, *APP, "-q")):
        assert _run(cli, *words) == (0, '"done"\n', "")
    broken = _write(folder, broken={"handler": "tiles.break", "params": {"lines": 3}, "next": "END"})
    code, answer, said = _run(cli, "-q", "run", broken, *APP)
    job_id = cli.json("jobs", "list")["jobs"][0]["id"]
    assert (code, answer, said) == (1, "", f"weft: job {job_id} failed: see `weft jobs show {job_id}`\n")
    again = _run(cli, "jobs", "rerun", job_id, "-q")
    assert (again[0], again[2]) == (0, "")
    assert _run(cli, "jobs", "list", "--limit", "1")[2].startswith("more with --before ")
    assert _run(cli, "jobs", "list", "--limit", "1", "-q")[2] == ""
    cli.environment["WEFT_QUIET"] = "false"
    assert _run(cli, "jobs", "list", "--limit", "1")[2].startswith("more with --before ")


def _run(cli: Cli, *words: str) -> tuple[int, str, str]:
    done = run_weft(words, environment=cli.environment, folder=cli.folder, text=None, timeout=60)
    return done.returncode, done.stdout, done.stderr
