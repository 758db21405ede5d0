"""Commands that go on through a server go on when it is started anew."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from apps.cli_scene import Cli, serving

import weft

APP = ("--app", "apps.cli_tiles")
FLOW = """
workflow_id: watched
nodes:
  START: {type: start, next: first}
  first: {handler: tiles.say, params: {lines: 2, word: before}, next: review}
  review: {type: wait, for: approval, next: last}
  last: {handler: tiles.say, params: {lines: 1, word: after}, next: END}
  END: {type: end, output: done}
"""


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


def test_a_job_is_watched_and_its_logs_are_followed_over_a_restart_of_the_server(
    url: str, home: Path, tmp_path: Path
) -> None:
    direct, flow = Cli(url, home), tmp_path / "flow.yaml"
    flow.write_text(FLOW, encoding="utf-8")
    settings = weft.Settings.load(environ=direct.environment)
    job_id = direct.json("run", str(flow), "--detach")["id"]
    token = direct.json("tokens", "create", "cli", "--role", "reader")["secret"]
    kept = {name: value for name, value in direct.environment.items() if name != "WEFT_DATABASE_URL"}
    with direct.start("worker", *APP, "--fast"), direct.start("orchestrator", "--fast"), ExitStack() as first:
        remote, address = Cli(None, home), first.enter_context(serving(settings))
        remote.environment = {**kept, "WEFT_SERVER": address, "WEFT_TOKEN": token}
        with (
            remote.start("jobs", "logs", job_id, "-f", "--json") as following,
            remote.start("jobs", "watch", job_id) as watching,
        ):
            following.line("before 1")
            watching.line("review: answer it")
            first.close()
            with serving(settings, int(address.rpartition(":")[2])):
                direct("jobs", "approve", job_id, "review")
                following.line("after 0")
                watching.line("last completed")
                assert (following.code(), watching.code()) == (0, 0)
    lines = [json.loads(line) for line in following.lines]
    assert [(line["node"], line["line"]) for line in lines] == [
        ("first", "before 0"), ("first", "before 1"), ("last", "after 0"),
    ], "nothing twice"  # fmt: skip
