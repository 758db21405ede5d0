"""Jobs run again from the command line, changed for one job, labelled, and the change found that broke a workflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apps.cli_scene import Cli

FLOW = """\
workflow_id: gates
inputs:
  notes: {type: string, required: true}
  gate: {type: string, required: true}
nodes:
  START: {type: start, next: prepare}
  prepare: {handler: gate.prepare, params: {notes: '{{ inputs.notes }}', size: 1}, next: enter}
  enter: {handler: gate.pass, params: {gate: '{{ inputs.gate }}', size: 2}, next: END}
  END: {type: end, output: '{{ nodes.enter.output }}'}
"""
APP = ("--app", "apps.cli_gate")


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


class Scene:
    """The workflow, pushed, with the files that its handlers look at."""

    def __init__(self, folder: Path) -> None:
        self.flow = folder / "gates.yaml"
        self.flow.write_text(FLOW, encoding="utf-8")
        self.notes, self.gate = folder / "notes", folder / "gate"
        self.inputs = ("-i", f"notes={self.notes}", "-i", f"gate={self.gate}")

    @property
    def prepared(self) -> int:
        return self.notes.read_text(encoding="utf-8").count("prepared")


@pytest.fixture
def scene(cli: Cli, tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    cli("workflows", "push", str(scene.flow))
    return scene


def test_a_job_is_run_again_and_keeps_what_it_can(cli: Cli, scene: Scene) -> None:
    job = cli.json("run", "gates", *scene.inputs, *APP, "--label", "team=data", code=1)
    plan = cli.json("jobs", "rerun", job["id"], "--failed", "--plan")
    assert [(step["node"], step["action"]) for step in plan["steps"]] == [
        ("prepare", "keep"),
        ("enter", "run"),
        ("END", "run"),
    ]
    shown = cli("jobs", "rerun", job["id"], "--plan")
    assert "nothing about it has changed" in shown
    assert "it was dead (error)" in shown
    scene.gate.touch()
    again = cli.json("jobs", "rerun", job["id"], "--failed", *APP)
    assert (again["state"], again["result"], again["rerun_of"], scene.prepared) == ("completed", 2, job["id"], 1)
    assert again["labels"] == {"team": "data"}
    nodes = {node["node"]: node for node in cli.json("jobs", "show", again["id"])["nodes"]}
    assert nodes["prepare"]["kept_id"] == plan["steps"][0]["task_id"]
    assert nodes["prepare"]["code_version"] not in (None, nodes["enter"]["code_version"])
    task = cli.json("tasks", "show", nodes["enter"]["id"])
    assert task["code_version"] == nodes["enter"]["code_version"]
    refused = cli("tasks", "replay", job["failed_id"], code=5)
    assert f"`weft jobs rerun {job['id']} --failed`" in refused
    text = cli("jobs", "rerun", again["id"], "--from", "prepare", *APP)
    assert (text.strip(), scene.prepared) == ("2", 2)
    made = cli.json("jobs", "rerun", again["id"], "--set", f"gate={scene.notes}")
    assert made["plan"]["steps"][1]["why"] == "it takes the input gate, which has changed"


def test_many_are_counted_and_then_run_again(cli: Cli, scene: Scene) -> None:
    for team in ("data", "data", "web"):
        cli("run", "gates", *scene.inputs, *APP, "--label", f"team={team}", code=1)
    assert cli("jobs", "rerun", "--where", "status=failed", "--workflow", "gates") == (
        "would run again 3: give --yes to do it\n"
    )
    found = cli.json(
        "jobs", "rerun", "--where", "state=failed", "--where", "label.team=data", "--since", "1h", "--plan"
    )
    assert found == {"rerun": 0, "found": 2}
    done = cli.json("jobs", "rerun", "--where", "state=failed", "--where", "label.team=data", "--failed", "--yes")
    assert done == {"rerun": 2, "found": 2}
    assert cli.json("jobs", "rerun", "--where", "state=failed", "--yes", "--limit", "5") == {"rerun": 1, "found": 1}
    assert len(cli.json("jobs", "list", "--label", "team=data")["jobs"]) == 4
    assert "is given twice" in cli("jobs", "list", "--label", "team=data", "--label", "team=web", code=2)
    for wrong, told in (
        (("--where", "colour=red"), "there is no field 'colour'"),
        (("--where", "state=running"), "only what has ended is run again"),
        (("--where", "state"), "must be FIELD=VALUE"),
        ((), "give either the id of a job, or --where"),
        (("1", "--yes"), "go with it"),
        (("--where", "state=failed", "--wait"), "goes with one job"),
    ):
        assert told in cli("jobs", "rerun", *wrong, code=2)


def test_a_patch_is_for_one_job_only(cli: Cli, scene: Scene, tmp_path: Path) -> None:
    scene.gate.touch()
    ops = tmp_path / "ops.json"
    ops.write_text(json.dumps([{"op": "replace", "path": "/nodes/enter/params/size", "value": 4}]), encoding="utf-8")
    before = cli.json("workflows", "show", "gates")
    job = cli.json("run", "gates", *scene.inputs, *APP, "--patch", str(ops))
    assert (job["result"], job["base_ref"], len(job["patch"])) == (4, "gates/main", 1)
    assert job["tag_positions"]["gates/main"]["version"] == 1
    other = cli.json("run", "gates", *scene.inputs, *APP, "--set", "nodes.enter.params.size=5")
    assert other["result"] == 5
    grown = tmp_path / "grown.json"
    added = {"op": "add", "path": "/inputs/day", "value": {"type": "string"}}
    grown.write_text(json.dumps([{"op": "remove", "path": "/nodes/enter/params/size"}, added]), encoding="utf-8")
    changed = "-i", "day=7", "--patch", str(grown), "--set", "nodes.enter.params.size=3"
    both = cli.json("run", "gates", *scene.inputs, *APP, *changed)
    assert (both["result"], [op["op"] for op in both["patch"]]) == (3, ["remove", "add", "add"])
    assert both["inputs"]["day"] == "7", "as what the patch declares"
    assert cli.json("workflows", "show", "gates") == before
    assert cli.json("run", "gates", *scene.inputs, *APP)["result"] == 2
    again = cli.json("jobs", "rerun", job["id"], *APP)
    assert (again["result"], again["patch"], again["snapshot_id"]) == (4, job["patch"], job["snapshot_id"])
    assert "there is no /nodes/lost" in cli("run", "gates", "--patch", _lost(tmp_path), code=2)
    assert "must be NAME=VALUE" in cli("run", "gates", "--label", "team", code=2)
    assert "labels: 'a b' is no name" in cli("run", "gates", *scene.inputs, "--label", "a b=c", code=2)


def _lost(folder: Path) -> str:
    path = folder / "lost.json"
    path.write_text('[{"op": "replace", "path": "/nodes/lost/params", "value": {}}]', encoding="utf-8")
    return str(path)


def test_the_change_that_broke_a_workflow_is_found(cli: Cli, scene: Scene) -> None:
    scene.gate.touch()
    good = cli.json("workflows", "show", "gates")["artifact_id"]
    for size in (3, 4, 5, 6, 7):
        cli("workflows", "patch", "gates", "--set", f"nodes.enter.params.size={size}", "-m", f"size {size}")
    found = cli.json("bisect", "gates", "--good", good, *scene.inputs, *APP)
    assert found["bad"]["message"] == "size 6"
    assert found["diff"]["patch"] == [{"op": "replace", "path": "/nodes/enter/params/size", "value": 6}]
    assert scene.prepared == 1
    assert [step["kept"] for step in found["steps"][1:]] == [["prepare"]] * (len(found["steps"]) - 1)
    text = cli("bisect", "gates", "--good", good, *scene.inputs, *APP)
    assert "size 6" in text
    assert "nodes.enter" in text or "~ enter" in text
    assert "does not lead to" in cli("bisect", "gates", "--good", found["bad"]["id"], "--bad", good, code=2)
