"""Python workflows by the command line as any other, and by one call in a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from apps.cli_scene import APPS, Cli

from warm import run_weft


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def test_a_python_workflow_is_checked_drawn_run_and_pushed_like_a_file(cli: Cli) -> None:
    assert cli("validate", "apps.cli_flows:areas") == "1 file without a problem\n"
    assert "⇉ process  flows.process for each" in cli("graph", "apps.cli_flows:areas")
    assert json.loads(cli("run", "apps.cli_flows:areas", "-i", "count=4")) == [0, 1, 4, 9]
    pushed = cli.json("workflows", "push", "apps.cli_flows:areas")
    assert pushed["tag"] == "areas/main"
    job = cli.json("run", "areas", "-i", "count=2", "--app", "apps.cli_flows")
    assert (job["result"], job["version_hash"]) == ([0, 1], pushed["version_hash"])


def test_what_is_wrong_with_a_python_workflow_is_shown_in_its_source(cli: Cli) -> None:
    checked = ["validate", "apps.cli_flows:broken"]
    told = run_weft(checked, environment=cli.environment, folder=APPS, text=None, timeout=60).stdout
    lines = (APPS / "cli_flows.py").read_text(encoding="utf-8").splitlines()
    number = next(place for place, line in enumerate(lines, 1) if "if count > 3" in line)
    assert f"cli_flows.py:{number}:" in told
    assert lines[number - 1].strip() in told
    assert "weft.when" in told
    assert "cannot_compile" in cli("run", "apps.cli_flows:broken", "-i", "count=1", code=2)
    assert "Did you mean 'areas'?" in cli("run", "apps.cli_flows:area", code=2)
    for file in ("apps/cli_flows.py", "apps/cli_flows.py:areas"):
        for command in (["run"], ["validate"], ["graph"], ["workflows", "push"]):
            assert "name the module, not its file: apps.cli_flows:" in cli(*command, file, code=2)
    assert "no module 'apps.no_flows'" in cli("run", "apps.no_flows:area", code=3)


def test_a_script_runs_workflows_by_one_call_and_so_does_a_running_loop(url: str, home: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "POSTGRES_", "PG"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(APPS / "cli_flows.py")], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False, env={**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["[0, 1, 4] [0]", "9 16"]
    assert lines[2].startswith("JobFailed job ")
    assert "of areas failed at 'process': ValueError: tile 7 is broken" in lines[2]
    assert lines[3] == "InvalidInput inputs: counts: there is no input 'counts'. Did you mean 'count'?"
    assert lines[4].startswith("InvalidDefinition")
    assert "there is no handler 'flows.sceme'. Did you mean 'flows.scheme'?" in lines[4]
    assert lines[5].startswith("NotFound there is no tag 'no/such/tag'")
    assert lines[6:] == ["[0, 1]", "True pending"]
