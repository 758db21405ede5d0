"""Steps, metrics, callbacks and requests as the command line shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apps.cli_scene import Cli

FLOW = """\
workflow_id: phased
nodes:
  START: {type: start, next: work}
  work: {handler: multi_phase, params: {phases: 2}, next: END}
  END: {type: end, output: '{{ nodes.work.output.phases }}'}
"""


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def test_steps_and_metrics_of_a_task_are_shown_and_the_callback_of_its_job_is_listed(cli: Cli, tmp_path: Path) -> None:
    flow = tmp_path / "phased.yaml"
    flow.write_text(FLOW, encoding="utf-8")
    url = "http://127.0.0.1:9/hooks"
    job = cli.json("run", str(flow), "--app", "weft.handlers", "--callback-url", url)
    assert (job["state"], job["result"]) == ("completed", 2)
    (node,) = [each for each in cli.json("jobs", "show", job["id"])["nodes"] if each["node"] == "work"]
    task = cli.json("tasks", "show", node["id"])
    assert [(step["name"], step["bytes"], step["attempt"]) for step in task["steps"]] == [
        ("phase_1", 10, 1),
        ("phase_2", 10, 1),
    ]
    assert task["metrics"] == {"ran": 2}
    shown = cli("tasks", "show", node["id"])
    assert "phase_2" in shown
    assert '"ran": 2' in shown
    (effect,) = cli.json("outbox", "list", "--kind", "callback")["effects"]
    assert (effect["payload"]["job_id"], effect["payload"]["status"]) == (job["id"], "completed")
    assert effect["has_sink"] is True


def test_a_secret_is_not_shown_among_the_settings(url: str, home: Path) -> None:
    secret, allowed = "a-secret-of-24-characters-or-more", "10.0.0.0/8, hooks.internal"
    cli = Cli(url, home, WEFT_CALLBACK_SECRET=secret, WEFT_CALLBACK_ALLOWED=allowed)
    for shown in (cli("config"), json.dumps(cli.json("config"))):
        assert "a-secret" not in shown
        assert "10.0.0.0/8" in shown
        assert "hooks.internal" in shown
