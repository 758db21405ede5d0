"""Every command through a server: the same output, the same exit codes; and what needs the database says so."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apps.cli_scene import APPS, Cli
from docs.pages.cli import commands

import weft
import weft.cli
from warm import run_weft_each
from weft.contract.table import BY_CALL
from weft.server.app import make_app
from weft.server.notes import operations
from weft.server.paths import PREFIX
from writing import written

FLOW = """\
workflow_id: tiles
inputs:
  count: {type: integer, default: 3}
nodes:
  START: {type: start, next: scheme}
  scheme: {handler: tiles.scheme, params: {count: '{{ inputs.count }}'}, next: tiles}
  tiles:
    type: fan_out
    items: '{{ nodes.scheme.output }}'
    task: {handler: tiles.process, params: {tile: '{{ item }}'}}
    next: collect
  collect: {type: fan_in, next: END}
  END: {type: end, output: {areas: '{{ nodes.collect.output.results }}'}}
"""
DAG = """\
dag: market
description: "{about}"
jobs:
  ticks:
    {{activation: source, operator: take, source: {{kind: event, event: tick}}, outputs: [ticks]}}
  scaled:
    activation: reactive
    operator: scale
    execution_strategy: PerPartition
    inputs: [ticks]
    outputs: [scaled]
    config: {{by: {by}}}
"""
APP = ("--app", "apps.cli_tiles")
# What is true of the moment, or of whoever asks.
_FLEETING = {"last_used_at", "last_heartbeat", "until", "text", "age", "server", "token", "context", "target", "why"}

# Commands that only look, by what they look at; {job}, {task} and the like stand for what the scene has made.
LOOKS = {
    "jobs": """
        jobs list | jobs list --state failed --workflow tiles | jobs list --state bogus | jobs show {job}
        jobs show 1 | jobs why {job} | jobs events {job} | jobs logs {job} | jobs watch {job} | jobs approvals
        jobs result {job} | jobs graph {job} | jobs graph {job} --svg | jobs graph {job} --mermaid
        jobs events {job} --follow | jobs rerun {job} --plan | jobs rerun --where state=failed --since 1h
        diff {job} tiles | jobs why {job} rout
        """,
    "tasks": """
        tasks list | tasks list --state completed --limit 1 | tasks show {task} | tasks show x | tasks why {task}
        tasks logs {task} --follow | tasks output {task} | tasks output 1 | explain {task} | explain 1 | explain x
        dead list | queues list | workers list | outbox list | cache list | health | metrics
        """,
    "workflows": """
        workflows list | workflows show tiles | workflows show tiles~1 | workflows show nothing | workflows log tiles
        workflows artifacts | workflows artifacts --workflow tiles --limit 1 | workflows artifacts --before x
        workflows moves tiles | workflows blame tiles | workflows diff tiles~1 tiles | workflows fsck
        workflows gc --dry-run | graph tiles | validate {flow} | schema | diff {flow} tiles
        """,
    "schedules": """
        schedules list | schedules list --tag tiles | schedules list --limit 1 | schedules show daily
        schedules show nothing | schedules ticks daily -n 3 | schedules ticks nothing | schedules backfills daily
        schedules backfills daily --before x | schedules add tiles --cron @weekly --timezone Asia/Tokyo --dry-run
        schedules add tiles --cron @weekly --timezone Mars/Base --dry-run | schedules delete daily
        """,
    "datasets": """
        datasets gc --dry-run | datasets list | datasets list --limit 1 | datasets show orders | datasets show nothing
        datasets versions orders | datasets versions orders --before 1 | datasets writes orders
        datasets writes orders@1 --limit 1 | datasets writes orders@7
        datasets partitions orders | datasets partitions orders --latest
        datasets state orders | datasets state orders@1.1 | datasets state orders@x
        datasets state orders --as-of 2026-01-01 | datasets rollback orders@1.1 | datasets rollback orders
        datasets sample orders | datasets sample orders@1.1 --limit 1 | datasets sample nothing
        datasets diff orders | datasets diff orders@1.2 orders@1.1 --rows --key value | datasets diff orders@1.1
        datasets diff orders --key value | datasets diff orders --rows --key x | datasets diff nothing
        datasets sample prices | datasets diff prices --rows | query select/**/*/**/from/**/prices
        lineage orders | lineage orders --up --svg | lineage orders --down --mermaid | lineage orders.value
        lineage orders@1.1 --depth 1 | lineage nothing | lineage orders.x | lineage orders --svg --mermaid
        datasets delete orders | datasets delete nothing | datasets register theirs /etc | datasets undelete nothing
        datasets register theirs {outside} --range x | datasets hand-over orders --to nobody
        query select/**/value/**/from/**/orders | query select/**/x | query select/**/1 --format xml
        """,
    "live": """
        live list | live list --limit 1 | live show market | live show nothing | live jobs market
        live jobs market --limit 1 | live jobs markt | live units market ticks | live units market ticks --state held
        live units market ticks --state bogus | live units market tick | live units market ticks --after x
        live units market ticks@1 | live units market ticks@x | live state market scaled | live backfills market
        live drain market | deploy history market | deploy history market --before 2 | deploy history nothing
        deploy {dag} --plan | deploy apply {other} --plan | deploy nothing.yaml | deploy {flow} --plan
        deploy rollback market --plan | deploy rollback market --to 1 --plan | deploy rollback market --to 9 --plan
        deploy rollback nothing --plan | live rematerialize market scaled --all --dry-run
        live rematerialize market scaled --partitions a --dry-run | live rematerialize market ticks --range : --dry-run
        live rematerialize market nothing --all --dry-run | live rematerialize market scaled --dry-run
        workflows show market/live | workflows log market/live | run market/live | schema --live | validate {dag}
        """,
    "people": """
        orgs list | orgs show default | orgs show nobody | tokens show 12345678901234
        users list | users show ada | users show bob | roles list | roles show nothing | tokens list | audit list
        audit list --verb push | audit verify
        """,
}
# Commands that change something, in an order in which each can; each with its exit code where that is not 0.
CHANGES = {
    "tasks": """
        queues create mail | queues create mail | queues limit mail --max 3 | queues pause mail | queues resume mail
        queues pause nothing =4 | tasks enqueue h --queue mail --params {{"a":1}} | tasks enqueue h --queue nothing =4
        tasks cancel --queue mail --all | tasks replay --queue mail --state cancelled --all
        dead replay --all | dead purge --older-than 1d --yes | outbox replay --all | cache clear --all
        outbox purge --all --yes
        tasks enqueue-many {tasks} | outbox add enqueue_task --payload {{"handler":"h"}}
        outbox add nothing --payload 1 =2
        events send file.arrived --payload {{}} | events send x --payload {{ =2
        events send-many [{{"name":"file.arrived","idempotency_key":"k"}}] | events send-many [1] =2
        """,
    "jobs": """
        run tiles --detach --label day=1 | run tiles --detach --refresh | run tiles --refresh --no-cache =2
        jobs pause {job} =5 | jobs resume {job} =5 | jobs cancel {job} =5
        jobs approve {job} =4 | jobs rerun {job} | jobs submit-graph pair {graph} | jobs submit-graph pair [] =2
        jobs add {job} {graph} =5 | jobs add {job} {{"items":[{{"handlr":"h"}}]}} =2
        """,
    "workflows": """
        workflows patch tiles --set nodes.tiles.max_parallel=2 | workflows undo tiles | workflows redo tiles
        workflows branch tiles/next tiles | workflows patch tiles/next --set nodes.tiles.max_parallel=4
        workflows merge tiles/next --into tiles | workflows revert tiles {patch} | workflows tag tiles/kept tiles
        workflows delete tiles/kept | workflows undelete tiles/kept | workflows protect tiles/kept
        workflows compact tiles | workflows snapshot tiles | workflows push {flow} -m again
        """,
    "schedules": """
        schedules add tiles --every 1h --input count=2 --overlap skip | schedules add tiles --every 1h =2
        schedules add tiles --every 1h --input count=2 --replace
        schedules add tiles --name wrong --every 1h --input count=x =2 | schedules add nothing --every 1h =4
        schedules add tiles --name none =2 | schedules change tiles --every 2h | schedules change tiles =2
        schedules pause tiles | schedules pause tiles =5 | schedules resume tiles | schedules trigger tiles
        schedules backfill tiles --since 1d --at-once 2 --dry-run | schedules backfill tiles --since 1d
        schedules backfill tiles --since x =2 | schedules cancel-backfill {backfill}
        schedules cancel-backfill {backfill} =4 | schedules delete tiles --yes | schedules delete tiles --yes =4
        """,
    "datasets": """
        datasets create new | datasets create new | datasets create a@1 =2 | datasets describe new words
        datasets describe nothing words =4 | roles create finance | datasets grant orders finance
        datasets grant orders nobody =2 | datasets grant orders | datasets rollback orders@1.1 --yes
        datasets rollback orders --yes =2 | datasets rollback orders =2 | datasets rollback orders@1.9 --yes =4
        datasets create rows --storage postgres | datasets create odd --storage tape =2
        datasets register theirs {outside} --glob *.parquet --range 1:2 | datasets register theirs {outside} --replace
        datasets register theirs /etc =2 | datasets hand-over orders --to tiles/scheme
        datasets hand-over orders --to @task/import | datasets hand-over orders --to nobody =2
        datasets hand-over nothing --to a/b =4 | datasets delete orders --yes | datasets delete orders --yes =4
        datasets undelete orders | datasets undelete orders =4
        """,
    "live": """
        deploy {other} -m more | deploy {other} | deploy abandon market | deploy abandon market =5
        deploy rollback market =4 | deploy {dag} --seen 0 =5 | deploy rollback market --to 9 =4
        deploy apply {words} --wait | deploy rollback market --plan | deploy rollback market --to 1
        deploy rollback market --to 3 --plan | deploy rollback market --to 3
        live pause market | live pause market =5 | live resume market | live pause market ticks
        live resume market ticks | live retry market ticks | live retry market ticks --unit {unit} =5
        live skip market ticks {unit} | live skip market ticks {unit} =5 | live skip market ticks 1 =4
        live rematerialize market scaled --partitions a =2 | live rematerialize market scaled =2
        live rematerialize market scaled --range a =2 | live rematerialize market scaled --all --dry-run
        live rematerialize market scaled --all
        live backfill market scaled --dry-run =2 | live backfill market ticks =2
        live cancel-backfill 12345678901234 =4
        workflows undo market/live --force =5 | live drain market --yes | live drain market --yes =5
        """,
    "people": """
        orgs create acme --admin ada | orgs token acme --user ada | orgs rename acme Acme
        users add bob --role writer | users change bob --role admin
        users deactivate bob | users activate bob | roles create finance | roles grant finance bob
        roles revoke finance bob | roles delete finance --yes | tokens create nightly
        tokens sign-in | tokens revoke 1 =4
        """,
}
# Commands that work on the database itself, or on this machine alone.
LOCAL = {
    "weft dev", "weft server", "weft orchestrator", "weft worker", "weft migrate", "weft demo", "weft db start",
    "weft db stop", "weft db status", "weft db psql", "weft db url", "weft db backup", "weft db restore",
    "weft db reset", "weft config", "weft login", "weft logout", "weft whoami", "weft context list",
    "weft context use", "weft context show", "weft context delete",
}  # fmt: skip


# How commands call the parts of a client.
_KINDS = {"jobs": ("jobs", "_jobs"), "workflows": ("workflows", "w", "_workflows")}
# Calls that no command makes by their names, and how they are made.
IN_OTHER_WORDS = {
    "dead_letters": "`dead list`, which goes through the pages",
    "jobs.page": "`jobs list`, which goes through the pages",
    "jobs.queues": "`run`, which works in those of them whose handlers it knows",
    "workflows.artifact": "a line of `workflows artifacts`",
    "workflows.diff": "`diff`, which compares files too",
    "workflows.redo": "`workflows redo`, made like `undo`",
    "workflows.tag": "a line of `workflows list`",
    "workflows.undo": "`workflows undo`",
}


# The commands by which routes are reached that are no calls of the client.
OTHER_ROUTES = {
    "GET /api/v1/datasets/{name}/diff/rows": "weft datasets diff",
    "GET /api/v1/datasets/{name}/sample": "weft datasets sample",
    "GET /api/v1/jobs/stream": "weft jobs list",
    "GET /api/v1/jobs/{job_id}/result": "weft jobs result",
    "GET /api/v1/jobs/{job_id}/stream": "weft jobs events",
    "GET /api/v1/me": "weft whoami",
    "GET /api/v1/tasks/{task_id}/log/stream": "weft tasks logs",
    "GET /api/v1/tasks/{task_id}/output": "weft tasks output",
    "GET /api/v1/workflows/{which}/graph": "weft graph",
    "GET /healthz": "weft health",
    "GET /metrics": "weft metrics",
    "GET /readyz": "weft health",
    # Of those who have no token, and so no command.
    "POST /api/v1/hooks": "weft events send",
    "POST /api/v1/jobs/graph": "weft jobs submit-graph",
    "POST /api/v1/query": "weft query",
    "POST /api/v1/jobs/{job_id}/add": "weft jobs add",
    "POST /api/v1/workflows/validate": "weft validate",
}


class Scene(NamedTuple):
    """Two ways to one database, and what is in it."""

    direct: Cli
    remote: Cli
    names: dict[str, str]

    def words(self, text: str) -> list[str]:
        return [word.format(**self.names) for word in text.split()]


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def scene(url: str, home: Path, tmp_path: Path, kind: str) -> Iterator[Scene]:
    """What commands of a kind look at, and no more: each is a process that has to start."""
    outside = tmp_path / "theirs"
    outside.mkdir()
    pq.write_table(pa.table({"id": [1]}), outside / "1.parquet")
    direct, flow = Cli(url, home, WEFT_DATA_OUTSIDE=str(outside)), tmp_path / "tiles.yaml"
    flow.write_text(FLOW, encoding="utf-8")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"handler": "h"}\n', encoding="utf-8")
    names = {
        "flow": str(flow),
        "tasks": str(tasks),
        "outside": str(outside),
        "graph": '{"items":[{"handler":"h"},{"handler":"h"}],"pairs":[[0,1]]}',
    }
    if kind == "people":
        direct("users", "add", "ada", "--role", "writer")
    else:
        direct("workflows", "push", str(flow))
        patched = direct.json("workflows", "patch", "tiles", "--set", "nodes.scheme.params.count=8")
        names["patch"] = patched["artifact_id"]
    if kind == "schedules":
        for name, cron in (("daily", "@daily"), ("weekly", "@weekly")):
            direct("schedules", "add", "tiles", "--name", name, "--cron", cron)
        names["backfill"] = direct.json("schedules", "backfill", "daily", "--since", "3d")["id"]
    if kind == "live":
        for name, change in (("dag", {}), ("other", {"by": 3}), ("words", {"by": 2})):
            path = tmp_path / f"{name}.yaml"
            path.write_text(
                DAG.format(by=change.get("by", 2), about="words" if name == "words" else ""), encoding="utf-8"
            )
            names[name] = str(path)
        direct("deploy", names["dag"])
        direct("events", "send", "tick", "--payload", "{}")
        names["unit"] = direct.json("live", "units", "market", "ticks")["units"][0]["id"]
    if kind == "datasets":
        asyncio.run(_written(url, home))
    if kind in ("jobs", "tasks"):
        names["job"] = direct.json("run", "tiles", *APP, code=1)["id"]
        names["task"] = direct.json("tasks", "list")["tasks"][0]["id"]
    with direct.through_server() as remote:
        yield Scene(direct, remote, names)


async def _written(url: str, home: Path) -> None:
    async with weft.Client(settings=weft.Settings.load(environ={}, database_url=url, home=home)) as client:
        await written(client, "orders", 1, 2)
        await written(client, "prices", 0.5, 1.5)


def _listed(text: str) -> list[str]:
    return [line.strip() for part in text.splitlines() for line in part.split("|") if line.strip()]


def _answers(cli: Cli, commands: list[list[str]]) -> list[subprocess.CompletedProcess[str]]:
    return run_weft_each(commands, environment=cli.environment, folder=APPS, timeout=100)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _scrubbed(each) for name, each in value.items() if name not in _FLEETING}
    return [_scrubbed(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", LOOKS)
def test_what_looks_prints_the_same_through_a_server(scene: Scene, kind: str) -> None:
    commands = [[*scene.words(command), "--json"] for command in _listed(LOOKS[kind])]
    for near, far in zip(_answers(scene.direct, commands), _answers(scene.remote, commands), strict=True):
        assert (far.returncode, far.stderr) == (near.returncode, near.stderr), near.args
        assert "this is an error in Weft" not in near.stderr, near.args
        documents = [[_scrubbed(json.loads(line)) for line in way.stdout.splitlines() if line] for way in (far, near)]
        assert documents[0] == documents[1], near.args


@pytest.mark.parametrize("kind", CHANGES)
def test_what_changes_something_does_so_through_a_server(scene: Scene, kind: str) -> None:
    commands = [command.partition(" =") for command in _listed(CHANGES[kind])]
    answers = _answers(scene.remote, [[*scene.words(text), "--json"] for text, _, _ in commands])
    for done, (_, _, expected) in zip(answers, commands, strict=True):
        assert done.returncode == int(expected or 0), done
        assert isinstance(json.loads(done.stdout), dict), done
    if kind == "people":
        acts = scene.direct.json("audit", "list", "--limit", "5")["entries"]
        assert {each["actor"] for each in acts} == {"token:cli"}


@pytest.mark.parametrize("kind", ["jobs"])
def test_a_job_runs_where_the_workers_are_and_is_watched_from_here(scene: Scene) -> None:
    handlers = (*APP, "--app", "apps.cli_nested", "--fast")
    with scene.direct.start("worker", *handlers) as worker, scene.direct.start("orchestrator", "--fast") as other:
        worker.line("ready")
        other.line("ready")
        assert json.loads(scene.remote("run", "tiles~1", "-i", "count=2")) == {"areas": [0, 1]}
        assert "leave it out" in scene.remote("run", "tiles", *APP, code=2)
        again = scene.remote.json("jobs", "rerun", scene.names["job"], "--on", "tiles~1", "--wait")
        assert again["result"] == {"areas": [0, 1, 4]}
        assert json.loads(scene.remote("jobs", "result", again["id"])) == again["result"]
        found = scene.remote.json("bisect", "tiles", "--good", "tiles~1")
        assert found["diff"]["patch"] == [{"op": "replace", "path": "/nodes/scheme/params/count", "value": 8}]
        task = scene.remote.json("tasks", "enqueue", "tiles.say", "--params", '{"lines": 2}', "--wait")
        assert scene.remote("tasks", "logs", "-f", task["id"]) == "line 0\nline 1\n"
        assert json.loads(scene.remote("run", "apps.cli_nested:outer", "-i", "x=2")) == 8
        for command in (worker, other):
            command.signal(signal.SIGTERM)
            assert command.code() == 0


def test_every_call_that_has_a_route_has_a_command() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(weft.cli.__path__[0]).glob("*.py"))
    called = set(re.findall(r"\b(\w+\.\w+)\(", sources))
    # `client.jobs` is often at hand by a name of its own.
    names = {
        call: {f"{kind}.{name}" for kind in _KINDS.get(group, (group or "client",))}
        for call in BY_CALL
        for group, _, name in [call.rpartition(".")]
    }
    assert {call for call, ways in names.items() if not ways & called} == IN_OTHER_WORDS.keys()


def test_every_other_route_has_a_command() -> None:
    calls = {f"{each.method} {PREFIX}{each.path.replace(':name}', '}')}" for each in BY_CALL.values()}
    told = {name for name, _ in operations(make_app(weft.Settings.load(environ={})).openapi())}
    others = {name for name in told - calls if not name.split()[1].startswith(("/v1/", "/internal/"))}
    assert others == OTHER_ROUTES.keys()
    assert set(OTHER_ROUTES.values()) <= {path for path, _ in commands()}


def test_every_command_is_tried_through_a_server_or_told_to_need_none() -> None:
    tried = {"weft run", "weft bisect", "weft tasks logs"}
    for listed in (*LOOKS.values(), *CHANGES.values()):
        for command in _listed(listed):
            first, second = ["weft", *command.split(), ""][1:3]
            tried |= {f"weft {first}", f"weft {first} {second}"}
    assert {path for path, _ in commands()} - tried - LOCAL == set()
