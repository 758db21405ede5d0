"""Who did what, through the command line; and rows that no client could have written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
from apps.cli_scene import Cli

import weft


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def test_a_task_shows_who_made_cancelled_and_replayed_it(cli: Cli) -> None:
    def by(actor: str, *command: str) -> str:
        cli.environment["WEFT_ACTOR"] = actor
        return cli(*command)

    id = by("ann", "tasks", "enqueue", "cli:add", "--delay", "1h").strip()
    by("bob", "tasks", "cancel", id, "--reason", "too late")
    by("cid", "tasks", "replay", id)
    by("dan", "queues", "pause", "default", "--reason", "ticket 4711")
    lines = cli("tasks", "show", id).splitlines()
    assert next(line for line in lines if line.startswith("created")).endswith(" by ann")
    assert next(line for line in lines if line.startswith("cancelled ")).endswith(" by bob (reason: too late)")
    assert next(line for line in lines if line.startswith("replayed ")).endswith(" by cid")
    shown = cli.json("tasks", "show", id)
    assert (shown["actor"], [entry["actor"] for entry in shown["audit"]]) == ("ann", ["bob", "cid"])
    entries = cli.json("audit", "list")["entries"]
    assert [(entry["actor"], entry["verb"]) for entry in entries] == [
        ("dan", "pause"), ("cid", "replay"), ("bob", "cancel"),
    ]  # fmt: skip
    assert entries[1]["subject_ids"] == [id]
    assert [entry["reason"] for entry in entries] == ["ticket 4711", None, "too late"]
    assert [entry["actor"] for entry in cli.json("audit", "list", "--verb", "cancel")["entries"]] == ["bob"]
    assert [entry["actor"] for entry in cli.json("audit", "list", "--queue", "default")["entries"]] == ["dan"]
    first = cli.json("audit", "list", "--task", id, "--limit", "1")
    assert [entry["actor"] for entry in first["entries"]] == ["cid"]
    rest = cli.json("audit", "list", "--task", id, "--before", first["next_before"])
    assert [entry["actor"] for entry in rest["entries"]] == ["bob"]
    assert "queue default" in cli("audit", "list")
    assert "is not one of" in cli("audit", "list", "--verb", "fly", code=2)


ODD = {
    "lone": '{"a":"\\ud800 x"}',
    "deep": '{"a":' * 3000 + "1" + "}" * 3000,
    "deepish": '{"a":' * 400 + "1" + "}" * 400,
    "big": '{"a":' + "9" * 30 + "}",
    "endless": '{"a":1e400}',
    "no object": "[5]",
    "reference": '{"$blob":"../../etc/passwd"}',
}


def test_whatever_stands_in_a_row_it_can_be_shown_and_listed(cli: Cli, url: str) -> None:
    async def write() -> dict[str, int]:
        conn = await asyncpg.connect(url)
        ids = {}
        for n, (name, params) in enumerate(ODD.items()):
            ids[name] = int(await conn.fetchval("select id from weft.enqueue('h')"))
            await conn.execute(
                """update weft.task set params = $2::text::json, retry = '"nonsense"',
                     timeout = interval '20000 days', due_at = 'infinity' where id = $1""",
                ids[name], params,
            )  # fmt: skip
            await conn.execute(
                """insert into weft.attempt (task_id, attempt, org_id, outcome, ended_at, error)
                   values ($1, 1, 1, 'failed', weft.now(), $2::text::json)""",
                ids[name], params if n % 2 else "7",
            )  # fmt: skip
        await conn.execute("insert into weft.outbox (org_id, kind, payload) values (1, 'callback', '\"\\ud800\"')")
        await conn.close()
        return ids

    ids = asyncio.run(write())
    for name, id in ids.items():
        assert str(id) in cli("tasks", "show", str(id)), name
        json.loads(cli("tasks", "show", str(id), "--json"))
    assert "9" * 30 in cli("tasks", "show", str(ids["big"]))
    assert "\ufffd x" in cli("tasks", "show", str(ids["lone"]))
    assert len(cli.json("tasks", "list")["tasks"]) == len(ODD)
    assert "callback" in cli("outbox", "list")


def test_effects_of_the_engine_are_not_added_by_others(cli: Cli, url: str) -> None:
    async def write() -> None:
        async with weft.Client(url) as client:
            with pytest.raises(weft.InvalidInput, match="kind: 'pigeon' is not one of"):
                await client.add_effect("pigeon", {})
            with pytest.raises(weft.InvalidInput, match="a callback is added by the engine"):
                await client.add_effect("callback", {})
            with pytest.raises(weft.InvalidInput, match="route_event is added by the engine"):
                await client.add_effect("route_event", {})
            await client.add_effect("enqueue_task", {"handler": "cli:add", "params": {"a": 4}})
            await client.jobs.send_event("file.arrived")

    asyncio.run(write())
    assert "carries" not in cli("outbox", "list")
    assert [(row["kind"], row["has_sink"]) for row in cli.json("outbox", "list")["effects"]] == [
        ("route_event", True), ("enqueue_task", True),
    ]  # fmt: skip
