"""Workflows executed from the command line, looked at, paused, approved and cancelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apps.cli_scene import Cli

TILES = """\
workflow_id: tiles
inputs:
  count: {type: integer, default: 3}
nodes:
  START: {type: start, next: scheme}
  scheme: {handler: tiles.scheme, params: {count: '{{ inputs.count }}'}, next: route}
  route:
    type: conditional
    condition_field: '{{ nodes.scheme.output | length }}'
    branches:
      - {condition: '> 100', next: review}
      - {default: true, next: tiles}
  review: {type: wait, for: approval, form: {limit: {type: integer, required: true}}, next: tiles}
  tiles:
    type: fan_out
    items: '{{ nodes.scheme.output }}'
    task: {handler: tiles.process, params: {tile: '{{ item }}'}}
    next: collect
  collect: {type: fan_in, next: END}
  END: {type: end, output: {areas: '{{ nodes.collect.output.results }}'}}
"""
APP = ("--app", "apps.cli_tiles")


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


@pytest.fixture
def flow(tmp_path: Path) -> str:
    path = tmp_path / "tiles.yaml"
    path.write_text(TILES, encoding="utf-8")
    return str(path)


def test_a_workflow_is_run_and_its_result_printed(cli: Cli, flow: str) -> None:
    assert json.loads(cli("run", flow, *APP)) == {"areas": [0, 1, 4]}
    cli("workflows", "push", flow)
    job = cli.json("run", "tiles", "-i", "count=0", *APP)
    assert (job["state"], job["result"], job["base_ref"]) == ("completed", {"areas": []}, "tiles/main")
    assert [job["workflow_id"] for job in cli.json("jobs", "list")["jobs"]] == ["tiles", "tiles"]
    nodes = {node["node"]: node["state"] for node in cli.json("jobs", "show", job["id"])["nodes"]}
    assert (nodes["review"], nodes["tiles"], nodes["END"]) == ("skipped", "completed", "completed")
    cli("workflows", "patch", "tiles", "--set", "nodes.tiles.max_parallel=2")
    changed = cli.json("diff", job["id"], "tiles", code=1)["patch"]
    assert changed == [{"op": "add", "path": "/nodes/tiles/max_parallel", "value": 2}]
    assert "took" in cli("jobs", "list", "--workflow", "tiles", "--state", "completed")


def test_a_job_that_fails_says_why_and_ends_with_a_code(cli: Cli, flow: str) -> None:
    job = cli.json("run", flow, "-i", "count=9", *APP, code=1)
    assert (job["state"], job["error"]["message"]) == ("failed", "tile 7 is broken")
    assert cli("run", flow, "-i", "count=many", code=2).startswith("weft: inputs: count: must be of type integer")
    assert cli("run", flow, "-i", "counts=1", code=2).startswith("weft: inputs: counts: there is no input 'counts'")
    assert cli("run", "no/such/tag", code=4).startswith("weft: there is no tag")
    assert len(cli.json("jobs", "list")["jobs"]) == 1


def test_a_job_is_detached_paused_resumed_and_cancelled(cli: Cli, flow: str) -> None:
    job_id = cli.json("run", flow, "--detach", "--idempotency-key", "once")["id"]
    assert cli.json("run", flow, "--detach", "--idempotency-key", "once") == {"id": job_id, "created": False}
    assert cli("jobs", "pause", job_id) == f"paused {job_id}\n"
    assert cli.json("jobs", "show", job_id)["state"] == "paused"
    assert cli("jobs", "resume", job_id) == f"resumed {job_id}\n"
    assert cli("jobs", "cancel", job_id) == f"cancelled {job_id}\n"
    assert cli("jobs", "resume", job_id, code=5).startswith(f"weft: cannot resume job {job_id}")
    assert cli("jobs", "show", "1", code=4).startswith("weft: there is no job 1")
    sent = cli.json("events", "send", "file.arrived", "--payload", '{"path": "a"}')
    assert sent == {"name": "file.arrived", "id": sent["id"], "answered": 0, "created": True, "sources": 0}
    assert cli("jobs", "approve", job_id, code=4).startswith(
        f"weft: there is no approval that job {job_id} waits for; see"
    )
    assert cli("jobs", "approve", "1", code=4).startswith("weft: there is no job 1")
    assert cli("jobs", "why", job_id, "rout", code=4).endswith(f"see `weft jobs show {job_id}`. Did you mean 'route'?")
    assert "give a number as `weft jobs list` shows it" in cli("jobs", "cancel", "one", code=2)
    assert cli("events", "send", "x", "--payload", "{", code=2).startswith("weft: payload: is not JSON")
    assert [job["id"] for job in cli.json("jobs", "list", "--state", "CANCELLING")["jobs"]] == [job_id]
    assert "is not one of pending, running" in cli("jobs", "list", "--state", "bogus", code=2)
    assert cli.json("jobs", "approvals") == {"approvals": [], "next_after": None}


def test_every_queue_of_a_workflow_is_worked_where_it_is_run(cli: Cli, flow: str) -> None:
    queues = ("--set", "nodes.scheme.queue=light", "--set", "nodes.tiles.task.queue=heavy")
    assert "there is no queue" in cli("run", flow, *queues, "--detach", code=4)
    assert "must be of type integer" in cli("run", flow, *queues, "-i", "count=x", *APP, code=2)
    assert [each["name"] for each in cli.json("queues", "list")["queues"]] == ["default"]
    assert json.loads(cli("run", flow, *queues, *APP)) == {"areas": [0, 1, 4]}
    job_id = cli.json("jobs", "list")["jobs"][0]["id"]
    assert cli.json("jobs", "rerun", job_id, "--from", "scheme", *APP)["state"] == "completed"
