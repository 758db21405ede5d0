"""Queues, dead letters and the outbox through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apps.cli_scene import Cli

import weft


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def test_a_queue_is_made_once_and_listed(cli: Cli) -> None:
    assert cli("queues", "create", "emails").strip() == "created emails"
    assert cli("queues", "create", "emails").strip() == "emails is there already"
    cli.enqueue("cli:add", queue="emails", a=1)
    found = {queue["name"]: queue for queue in cli.json("queues", "list")["queues"]}
    assert found["emails"]["depth"] == 1
    assert found["emails"]["tasks"] == {"ready": 1}
    assert cli("queues", "list").splitlines()[0].split()[0] == "QUEUE"


def test_nothing_is_claimed_from_a_paused_queue(cli: Cli) -> None:
    cli("queues", "limit", "default", "--max", "7")
    assert cli.json("queues", "pause", "default") == {"queue": "default", "paused": True}
    assert cli("queues", "list").splitlines()[1].endswith("  7 at once  paused")
    cli("queues", "create", "other")
    with cli.worker("--queues", "default,other"):
        paused = cli.enqueue("cli:add", a=1)
        cli("tasks", "enqueue", "cli:add", "--queue", "other", "--params", '{"a": 1}', "--wait")
        assert cli.task(paused).state == "ready"
        assert cli.json("queues", "resume", "default") == {"queue": "default", "paused": False}
        with cli.start("tasks", "logs", "-f", paused) as following:
            assert following.code() == 0
        assert cli.task(paused).state == "completed"


def test_limits_are_set_shown_and_lifted(cli: Cli) -> None:
    assert cli("queues", "limit", "default").strip() == "default: no limit"
    assert cli("queues", "limit", "default", "--max", "3").strip() == "default: 3 at once"
    shown = cli.json("queues", "limit", "default", "--max", "2", "--per-key")
    assert (shown["max_running"], shown["max_running_per_key"]) == (3, 2)
    assert "3 at once, 2 per key" in cli("queues", "list")
    assert cli("queues", "limit", "default", "--none").strip() == "default: 2 per key"
    assert cli("queues", "limit", "default", "--none", "--per-key").strip() == "default: no limit"
    assert "no queue 'nowhere'" in cli("queues", "limit", "nowhere", "--max", "1", code=4)


def test_the_limit_of_a_single_key_is_set_shown_and_lifted(cli: Cli) -> None:
    limit = ("queues", "limit", "default")
    shown = "default: 1 at once for the key ada, 0 ready or running"
    assert cli(*limit, "--key", "ada", "--max", "1").strip() == shown
    assert cli(*limit, "--key", "ada").strip() == shown
    for _ in range(2):
        cli("tasks", "enqueue", "cli:add", "--params", '{"a": 1}', "--concurrency-key", "ada")
    assert cli(*limit, "--key", "ada").strip() == "default: 1 at once for the key ada, 1 ready or running"
    [queue] = cli.json("queues", "list")["queues"]
    assert queue["key_limits"] == [{"key": "ada", "max_running": 1, "held": 1}]
    assert cli.json(*limit, "--key", "ada") == queue
    for key in ("bob", "cid", "dan", "eve"):
        cli(*limit, "--key", key, "--max", "2")
    assert cli(*limit).strip() == "default: 1 for ada, 2 for bob, 2 for cid, 2 more keys"
    assert "1 for ada, 2 for bob" in cli("queues", "list")
    assert cli(*limit, "--key", "ada", "--none").strip() == "default: no limit of its own for the key ada"
    assert [found["key"] for found in cli.json(*limit)["key_limits"]] == ["bob", "cid", "dan", "eve"]


def test_dead_letters_are_listed_replayed_and_purged(cli: Cli) -> None:
    with cli.worker():
        for number in range(2):
            cli.json("tasks", "enqueue", "cli:fail", "--max-attempts", "1", "--wait", "--params",
                     f'{{"message": "reason {number}"}}', code=1)  # fmt: skip
        dead = cli.json("dead", "list")["tasks"]
        assert [task["error"]["message"] for task in dead] == ["reason 1", "reason 0"]
        assert "ValueError: reason 1" in cli("dead", "list")
        assert cli.json("dead", "list", "--limit", "1")["next_before"] == dead[0]["id"]
    assert cli.json("dead", "replay", dead[0]["id"]) == {
        "replayed": 1, "found": 1, "ids": [dead[0]["id"]], "refused": [],
    }  # fmt: skip
    assert cli.json("dead", "replay", "--all", "--handler", "cli:add", "--dry-run") == {"replayed": 0, "found": 0}
    assert cli("dead", "replay", "--all", "--handler", "cli:fail", "--dry-run") == "would replay 1\n"
    assert cli.json("dead", "replay", "--all", "--queue", "default") == {"replayed": 1, "found": 1}
    assert cli("dead", "list").strip() == "no dead letters"


async def test_a_purge_says_what_it_would_do_before_it_does_it(cli: Cli, conn: Any) -> None:
    with cli.worker():
        for _ in range(2):
            cli.json("tasks", "enqueue", "cli:fail", "--max-attempts", "1", "--wait", code=1)
    old = cli.json("dead", "list")["tasks"][1]["id"]
    await conn.execute("update weft.task_done set ended_at = ended_at - interval '8 days' where id = $1", int(old))
    refusal = "weft: --yes: this removes 1 dead letter for good; run it again with --yes to do it"
    assert cli("dead", "purge", "--older-than", "7d", code=2) == refusal
    assert cli.json("dead", "purge", "--older-than", "7d", code=2) == {"purged": 0, "found": 1}
    assert len(cli.json("dead", "list")["tasks"]) == 2
    assert cli.json("dead", "purge", "--older-than", "7d", "--yes") == {"purged": 1, "found": 1}
    assert cli("dead", "purge", "--yes").strip() == "purged 1"


async def test_effects_that_failed_are_purged(cli: Cli, client: weft.Client, conn: Any) -> None:
    keys = [
        row["id"] for row in await conn.fetch(
            "insert into weft.outbox (org_id, kind, payload, state)"
            " select $1, 'callback', '{}', s::weft.outbox_state from unnest(array['failed', 'failed', 'pending']) s"
            " returning id",
            await client.org_id(),
        )
    ]  # fmt: skip
    assert cli("outbox", "purge", str(keys[0])).strip() == f"purged {keys[0]}"
    assert cli("outbox", "purge", str(keys[0]), code=4).startswith(f"weft: there is no effect {keys[0]};")
    assert "it is pending, and must be failed" in cli("outbox", "purge", str(keys[2]), code=5)
    for verb in ("purge", "replay"):
        assert "give a number as `weft outbox list` shows it" in cli("outbox", verb, "x", code=2)
    assert "run it again with --yes" in cli("outbox", "purge", "--all", code=2)
    assert cli.json("outbox", "purge", "--all", "--yes") == {"purged": 1, "found": 1}
    assert [effect["id"] for effect in cli.json("outbox", "list")["effects"]] == [str(keys[2])]


async def test_effects_of_the_outbox_are_listed_and_those_that_failed_go_round_again(
    cli: Cli, client: weft.Client, conn: Any
) -> None:
    key = await conn.fetchval(
        "insert into weft.outbox (org_id, kind, payload, state, last_error)"
        " values ($1, 'callback', '{\"to\": 1}', 'failed', 'it hung up') returning id", await client.org_id()
    )  # fmt: skip
    [effect] = cli.json("outbox", "list", "--state", "failed")["effects"]
    assert (effect["id"], effect["kind"], effect["payload"]) == (str(key), "callback", {"to": 1})
    assert "it hung up" in cli("outbox", "list")
    assert cli("outbox", "replay", str(key)).strip() == f"replayed {key}"
    assert cli.json("outbox", "list", "--kind", "callback")["effects"][0]["state"] == "pending"
    assert (
        cli("outbox", "replay", str(key), code=5)
        == f"weft: cannot replay effect {key}: it is pending, and must be failed"
    )
    assert cli("outbox", "replay", "5", code=4).startswith("weft: there is no effect 5;")
    refused = cli.json("outbox", "replay", "5", code=4)
    assert (refused["replayed"], refused["ids"], refused["refused"][0]["code"]) == (0, [], "not_found")
    assert cli.json("outbox", "replay", "--all") == {"replayed": 0, "found": 0}
