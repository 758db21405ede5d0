"""A job as it is drawn: it fits the terminal, whatever its size, and what matters is never left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from weft.cli.job_tree import draw
from weft.core.job_states import JobState
from weft.core.states import TaskState
from weft.jobs.model import Job, JobNode

NOW = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)


def _job(state: str = "running", **facts: Any) -> Job:
    known: dict[str, Any] = {
        "id": 1, "workflow_id": "etl", "state": JobState(state), "reason": None, "priority": 0, "created_at": NOW,
        "started_at": NOW - timedelta(seconds=10), "ended_at": None, "failed_id": None, "owner_id": None,
        "base_ref": None, "actor": None, "inputs": {}, "result": None, "error": None, "parent_id": None,
        "base_kind": "tag", "snapshot_id": None, "version_hash": None, "labels": {}, "end_id": 9,
        "rerun_of": None, "patch": None, "tag_positions": {}, "callback_url": None,
    }  # fmt: skip
    return Job(**{**known, **facts})


def _node(id: int, state: str, name: str | None = None, **facts: Any) -> JobNode:
    known: dict[str, Any] = {
        "id": id, "node": name or f"n{id}", "state": TaskState(state), "reason": None, "attempt": 1, "handler": "h",
        "claimed_at": NOW - timedelta(seconds=3), "ended_at": NOW if state == "completed" else None, "error": None,
        "items": {},
    }  # fmt: skip
    return JobNode(**{**known, **facts})


def _drawn(
    nodes: list[JobNode], width: int = 80, height: int = 24, footer: tuple[str, ...] = (), **facts: Any
) -> list[str]:
    lines = draw(_job(**facts), nodes, {}, footer, width, height, NOW)
    return [line.plain.rstrip() for line in lines]


def test_each_node_of_a_small_job_has_a_line() -> None:
    items = {"completed": 40, "running": 8, "dead": 2, "pending": 50}
    error = {"type": "ValueError", "message": "no rows", "traceback": ""}
    assert _drawn([
        _node(1, "completed", "scheme"),
        _node(2, "completed", "tiles", items=items),
        _node(3, "scheduled", "load", attempt=2, due_at=NOW + timedelta(seconds=5), error=error),
        _node(4, "pending", "all", claimed_at=None),
    ]) == [
        "etl  job 1  running  10 s",
        "✓ scheme  completed  3 s",
        "● tiles   running    3 s      ██████░░░░░░░░░░ 42 of 100 items, 2 failed",
        "↻ load    scheduled           attempt 2, next in 5 s  ValueError: no rows",
        "· all     pending",
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10), (20, 5)])
def test_two_hundred_nodes_fit_the_terminal(width: int, height: int) -> None:
    states = ["completed"] * 120 + ["running"] * 40 + ["dead"] + ["waiting"] + ["pending"] * 38
    nodes = [_node(n, state, "a-long-name-of-a-node" * (n % 3 + 1) + str(n)) for n, state in enumerate(states)]
    lines = _drawn(nodes, width, height, ("answer it: `weft jobs approve 123456 review`",))
    assert len(lines) <= height
    assert all(len(line) < width for line in lines)
    text = "\n".join(lines)
    assert "120 completed" in text
    assert "✗" in text, "what went wrong is never left out"
    if height >= 24:
        assert "38 pending" in text
        assert "more: ● " in text


def test_a_command_to_type_is_folded_between_words_and_never_cut() -> None:
    command = "answer it: `weft jobs approve 380896933557841920 review --set limit=…`, or with --reject"
    lines = _drawn([_node(1, "waiting", "review")], 60, footer=(command,))
    assert " ".join(line.strip() for line in lines[2:]) == command


def test_a_fan_out_runs_until_its_last_item_has_ended() -> None:
    shown = {
        items: _drawn([_node(1, "completed", "tiles", items=dict(items))])[1].split()[:3]
        for items in ((("completed", 2), ("pending", 1)), (("completed", 3),), (("completed", 2), ("dead", 1)))
    }
    assert [line[2] for line in shown.values()] == ["running", "completed", "failed"]
    allowed = _drawn([_node(1, "completed", "tiles", items={"completed": 2, "dead": 1}, allow_failure=True)])[1]
    assert allowed.split() == ["✓", "tiles", "completed", "3", "s", "3", "of", "3", "items,", "1", "failed"]


def test_control_characters_of_names_and_errors_are_made_visible() -> None:
    error = {"type": "E", "message": "\x1b[2J gone", "traceback": ""}
    lines = _drawn([_node(1, "dead", "a\x1b[31m", error=error)])
    assert "\x1b" not in "".join(lines)


def test_who_owns_a_job_is_shown_while_it_goes_on() -> None:
    assert _drawn([], owner_id=7)[0] == "etl  job 1  running  10 s  owner 7"
    assert _drawn([], owner_id=7, state="completed", ended_at=NOW)[0] == "etl  job 1  completed  10 s"
