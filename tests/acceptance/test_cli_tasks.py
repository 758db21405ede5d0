"""Tasks through the command line: enqueued, looked at, cancelled, sent round again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from apps.cli_scene import Cli, until


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def test_a_new_task_is_shown_with_its_fields_and_its_id_as_text(cli: Cli) -> None:
    created = cli.json(
        "tasks", "enqueue", "cli:add", "--params", '{"a": 2}', "--priority", "7", "--max-attempts", "5",
        "--timeout", "90s", "--concurrency-key", "k",
    )  # fmt: skip
    assert created["created"] is True
    shown = cli.json("tasks", "show", created["id"])
    expected = {
        "id": created["id"], "state": "ready", "queue": "default", "handler": "cli:add", "priority": 7,
        "params": {"a": 2}, "max_attempts": 5, "concurrency_key": "k", "output": None, "attempts": [],
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected
    text = cli("tasks", "show", created["id"])
    assert "state       ready" in text
    assert "queue       default, priority 7" in text


async def test_the_policy_of_retries_and_the_heartbeat_are_told_on_the_command_line(cli: Cli, conn: Any) -> None:
    cli(
        "tasks", "enqueue", "cli:add", "--max-attempts", "5", "--backoff", "linear", "--retry-delay", "10s",
        "--max-retry-delay", "1m", "--heartbeat-timeout", "30s",
    )  # fmt: skip
    row = await conn.fetchrow("select max_attempts, retry, heartbeat_timeout from weft.task")
    policy = json.loads(row["retry"])
    assert (policy["backoff"], policy["initial_delay"], policy["max_delay"]) == ("linear", 10, 60)
    assert (row["max_attempts"], row["heartbeat_timeout"].total_seconds()) == (5, 30)
    said = cli("tasks", "enqueue", "cli:add", "--backoff", "steep", code=2)
    assert said == "weft: retry.backoff: 'steep' is not one of exponential, linear, fixed"


def test_params_are_read_from_the_standard_input_and_from_a_file(cli: Cli, tmp_path: Path) -> None:
    from_input = cli("tasks", "enqueue", "cli:add", "--params", "-", text='{"a": "ü"}').strip()
    file = tmp_path / "params.json"
    file.write_text('{"a": [1, 2]}', encoding="utf-8")
    from_file = cli("tasks", "enqueue", "cli:add", "--params", f"@{file}").strip()
    assert [cli.task(key).params for key in (from_input, from_file)] == [{"a": "ü"}, {"a": [1, 2]}]


def test_a_known_idempotency_key_creates_nothing(cli: Cli) -> None:
    first = cli.json("tasks", "enqueue", "cli:add", "--idempotency-key", "once")
    again = cli.json("tasks", "enqueue", "cli:add", "--idempotency-key", "once")
    assert again == {"id": first["id"], "created": False}


def test_a_task_waits_for_its_time(cli: Cli) -> None:
    delayed = cli("tasks", "enqueue", "cli:add", "--delay", "10m").strip()
    timed = cli("tasks", "enqueue", "cli:add", "--run-at", "2080-01-02T03:04:05+01:00").strip()
    assert [cli.task(key).state for key in (delayed, timed)] == ["scheduled", "scheduled"]
    assert cli.json("tasks", "show", timed)["due_at"] == "2080-01-02T02:04:05Z"
    assert "due in 9m" in cli("tasks", "list", "--state", "scheduled")


def test_wait_prints_the_output_or_fails_with_the_error(cli: Cli) -> None:
    with cli.worker():
        answer = cli.json("tasks", "enqueue", "cli:add", "--params", '{"a": 41}', "--wait")
        assert (answer["state"], answer["output"]) == ("completed", 42)
        assert cli("tasks", "enqueue", "cli:add", "--params", '{"a": 1}', "--wait").splitlines()[1] == "2"
        complaint = cli("tasks", "enqueue", "cli:fail", "--max-attempts", "1", "--wait", code=1)
        assert complaint.endswith("is dead: ValueError: no luck")
        complaint = cli("tasks", "enqueue", "cli:forever", "--wait-timeout", "100ms", code=6)
        assert "did not end within 0.1 s" in complaint
        cli("tasks", "cancel", complaint.split()[2])


def test_a_task_that_failed_is_shown_with_its_attempts_and_runs_again_when_replayed(cli: Cli) -> None:
    with cli.worker():
        answer = cli.json(
            "tasks", "enqueue", "cli:fail", "--max-attempts", "1", "--wait", "--params",
            json.dumps({"message": "a \x1b[31mred\x1b[0m error"}), code=1,
        )  # fmt: skip
        task_id = answer["id"]
        [attempt] = cli.json("tasks", "show", task_id)["attempts"]
        assert (attempt["outcome"], attempt["error"]["type"]) == ("failed", "ValueError")
        text = cli("tasks", "show", task_id)
        assert "attempt 1: failed" in text
        # What a task puts into its error cannot change the terminal.
        assert "\x1b" not in text
        assert "\\x1b[31mred" in text
        assert cli("tasks", "replay", task_id).strip() == f"replayed {task_id}"


def test_cancelling_goes_on_after_a_refusal_and_ends_with_its_code(cli: Cli) -> None:
    first, second = cli.enqueue("cli:add", a=1), cli.enqueue("cli:add", a=2)
    assert cli("tasks", "cancel", first, "--reason", "not needed").strip() == f"cancelled {first}"
    answer = cli.json("tasks", "cancel", first, second, code=5)
    assert (answer["cancelled"], answer["found"], answer["ids"]) == (1, 2, [second])
    assert [(item["id"], item["code"]) for item in answer["refused"]] == [(first, "state_conflict")]
    task = cli.task(first)
    assert (task.state, task.reason) == ("cancelled", "not needed")
    third = cli.enqueue("cli:add", a=3)
    assert cli.json("tasks", "cancel", third, third) == {"cancelled": 1, "found": 1, "ids": [third], "refused": []}
    assert "cannot replay task" in cli("tasks", "replay", cli.enqueue("cli:add", a=3), code=5)


def test_all_tasks_that_have_not_ended_are_cancelled_or_those_that_the_options_name(cli: Cli) -> None:
    cli("queues", "create", "other")
    here = [cli.enqueue("cli:add", a=number) for number in range(3)]
    there = cli.enqueue("cli:add", queue="other", a=1)
    named = cli.enqueue("cli:fail")
    later = cli("tasks", "enqueue", "cli:add", "--delay", "1h").strip()
    assert cli("tasks", "cancel", "--all", "--dry-run").strip() == "would cancel 6"
    assert cli.json("tasks", "cancel", "--all", "--handler", "cli:fail") == {"cancelled": 1, "found": 1}
    assert cli.json("tasks", "cancel", "--all", "--state", "scheduled", "--reason", "late") == {
        "cancelled": 1, "found": 1,
    }  # fmt: skip
    assert cli("tasks", "cancel", "--all", "--queue", "default").strip() == "cancelled 3"
    assert [cli.task(key).state for key in (*here, named, later)] == ["cancelled"] * 5
    assert (cli.task(later).reason, cli.task(there).state) == ("late", "ready")
    assert "'dead' is an end" in cli("tasks", "cancel", "--all", "--state", "dead", code=2)
    assert "give either ids, or --all" in cli("tasks", "cancel", there, "--queue", "other", code=2)
    assert cli.json("tasks", "cancel", "--all") == {"cancelled": 1, "found": 1}
    assert cli("tasks", "replay", "--all", "--state", "cancelled", "--dry-run").strip() == "would replay 6"
    assert cli.json("tasks", "replay", "--all", "--queue", "other") == {"replayed": 1, "found": 1}
    assert cli("tasks", "replay", "--all").strip() == "replayed 5"
    assert cli.task(later).state == "ready"
    assert "'ready' is not one of" in cli("tasks", "replay", "--all", "--state", "ready", code=2)


def test_a_terminal_shows_how_far_a_long_command_is(cli: Cli) -> None:
    cli.enqueue_many("cli:add", 1200)
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "weft", "tasks", "cancel", "--all"],
            stdout=subprocess.PIPE, stderr=theirs, env=cli.environment, check=True, text=True,
        )  # fmt: skip
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == "cancelled 1200\n"
    assert re.fullmatch(r"(\rcancelled [█░]{30} [\d,]+/1,200\x1b\[K)+\r\x1b\[K", shown), shown
    assert f"cancelled {'█' * 30} 1,200/1,200" in shown


def test_what_was_enqueued_is_told_although_whoever_waits_is_interrupted(cli: Cli) -> None:
    with cli.start("tasks", "enqueue", "cli:add", "--wait", "--json") as waiting:
        waiting.line("waits: ")
        waiting.signal(signal.SIGINT)
        assert waiting.code() == 130
    answer = json.loads(waiting.lines[-1])
    assert cli.task(answer["id"]).state == "ready"


def test_what_was_enqueued_is_told_although_nobody_has_worked_it_in_time(cli: Cli) -> None:
    answer = cli.json("tasks", "enqueue", "cli:add", "--wait-timeout", "50ms", code=6)
    assert answer == {"id": answer["id"], "created": True}
    assert cli.task(answer["id"]).state == "ready"


def test_lists_are_filtered_and_paged(cli: Cli) -> None:
    cli("queues", "create", "other")
    ids = [cli.enqueue("cli:add", a=number) for number in range(3)]
    other = cli.enqueue("cli:speak", queue="other", text="x")
    assert [task["id"] for task in cli.json("tasks", "list", "--queue", "other")["tasks"]] == [other]
    assert [task["id"] for task in cli.json("tasks", "list", "--handler", "cli:add")["tasks"]] == ids[::-1]
    page = cli.json("tasks", "list", "--limit", "3")
    assert page["next_before"] == ids[1]
    rest = cli.json("tasks", "list", "--limit", "3", "--before", page["next_before"])
    assert ([task["id"] for task in rest["tasks"]], rest["next_before"]) == ([ids[0]], None)
    assert cli.json("tasks", "list", "--state", "failed", "--state", "running")["tasks"] == []
    lines = cli("tasks", "list").splitlines()
    assert lines[0].split() == ["ID", "STATE", "QUEUE", "HANDLER", "FAILED", "CREATED", "TIME"]
    assert [line.split()[0] for line in lines[1:]] == [other, *ids[::-1]]


def test_failures_are_shown_against_their_limit_and_attempts_apart(cli: Cli) -> None:
    """Attempts that count for nothing, here those that a worker without the handler declines, may be more."""
    task_id = cli("tasks", "enqueue", "cli:nobody", "--max-attempts", "1").strip()
    with cli.worker():
        until(lambda: cli.task(task_id).attempt > 1)
    attempts = cli.task(task_id).attempt
    row = next(line for line in cli("tasks", "list").splitlines() if line.startswith(task_id))
    assert "0 of 1" in row
    shown = cli("tasks", "show", task_id)
    assert f"attempts    {attempts}\n" in shown
    assert "failed      0 of 1\n" in shown
    assert shown.count(": declined (no_handler)") == 1


def test_a_task_without_a_log_has_none(cli: Cli) -> None:
    task_id = cli.enqueue("cli:add", a=1)
    assert cli("tasks", "logs", task_id) == ""


def test_the_log_of_one_attempt_is_printed(url: str, home: Path) -> None:
    cli = Cli(url, home, WEFT_LOG_UPLOAD="true")
    with cli.worker():
        answer = cli.json("tasks", "enqueue", "cli:speak", "--params", '{"text": "hello"}', "--wait")
    assert "hello" in cli("tasks", "logs", answer["id"], "--attempt", "1")
    assert "there is no log of attempt 2" in cli("tasks", "logs", answer["id"], "--attempt", "2", code=4)
    assert "attempt: must" in cli("tasks", "logs", answer["id"], "--attempt", "0", code=2)


def test_a_task_whose_params_are_missing_in_the_blob_storage_is_shown_all_the_same(url: str, home: Path) -> None:
    cli = Cli(url, home, WEFT_INLINE_LIMIT="1KiB")
    task_id = cli("tasks", "enqueue", "cli:add", "--params", json.dumps({"a": "x" * 2000})).strip()
    (blob,) = [path for path in (home / "blobs").glob("??/*") if path.is_file()]
    blob.unlink()
    text = cli("tasks", "show", task_id)
    assert "state       ready" in text
    assert f"cannot be read: blob {blob.name} is missing in" in text
    shown = cli.json("tasks", "show", task_id)
    assert (shown["state"], shown["params"]) == ("ready", None)
    assert shown["unavailable"]["params"].startswith(f"blob {blob.name} is missing in")


def test_an_unknown_org_is_not_explained_by_the_retention(url: str, home: Path) -> None:
    complaint = Cli(url, home, WEFT_ORG="nope")("queues", "list", code=4)
    assert "there is no org nope" in complaint
    assert "retention" not in complaint
    assert "WEFT_ORG" in complaint


def test_whoever_waits_is_told_why_nothing_happens(cli: Cli) -> None:
    with cli.start("tasks", "enqueue", "cli:add", "--params", '{"a": 41}', "--wait") as waiting:
        key = waiting.line(r"^\d+$")
        said = waiting.line("waits: ")
        assert (
            said
            == "waits: no live worker serves queue 'default'; start one: `weft worker --app MODULE --queues default`"
        )
        assert cli("tasks", "why", key).startswith("no live worker serves queue 'default'; start one")
        assert cli.json("tasks", "why", key)["cause"] == "no_worker"
        assert cli.json("tasks", "show", key)["why"]["cause"] == "no_worker"
        assert "why         no live worker" in cli("tasks", "show", key)
        with cli.worker():
            assert waiting.code() == 0
        assert waiting.lines[-1] == "42"
    assert "why " not in cli("tasks", "show", key)


def test_only_a_dead_letter_is_replayed_as_one(cli: Cli) -> None:
    task_id = cli("tasks", "enqueue", "cli:add", "--delay", "1h").strip()
    cli("tasks", "cancel", task_id)
    assert cli("dead", "replay", task_id, code=5).endswith("it is cancelled, and must be dead or failed")
    assert cli.task(task_id).state == "cancelled"
    assert cli("tasks", "replay", task_id).strip() == f"replayed {task_id}"


def test_many_tasks_are_enqueued_from_lines_and_those_with_known_keys_once(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    lines = [{"handler": "h", "params": {"n": n}, "idempotency_key": str(n), "delay": "2h"} for n in range(3)]
    file.write_text("\n\n".join(json.dumps(line) for line in lines))
    assert cli("tasks", "enqueue-many", str(file)) == "enqueued 3\n"
    assert cli("tasks", "enqueue-many", str(file)) == "enqueued 0, 3 known by their idempotency keys\n"
    assert len(cli.json("tasks", "list", "--state", "scheduled")["tasks"]) == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: is not JSON"),
        ("[]", "line 2: must be an object"),
        ('{"params": {}}', "line 2, handler: is missing"),
        ('{"handler": "h", "prams": {}}', "line 2, prams: is no field of a task. Did you mean 'params'?"),
        ('{"handler": "h", "delay": "soon"}', "line 2, delay:"),
        ('{"handler": "h", "priority": 1e9}', "line 2, priority:"),
        ('{"handler": "h", "queue": "nowhere"}', "line 2, queue: there is no queue"),
    ],
)
def test_a_line_that_cannot_be_a_task_is_named_and_nothing_is_enqueued(
    cli: Cli, tmp_path: Path, line: str, told: str
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"handler": "h"}\n' + line + "\n")
    assert told in cli("tasks", "enqueue-many", str(file), code=4 if "nowhere" in line else 2)
    assert cli.json("tasks", "list")["tasks"] == []
