"""Every command that changes something can be told why; a new one that cannot fails here."""

from __future__ import annotations

import inspect

from docs.pages import cli

# They change nothing that is kept as an act: they look, start processes, are about this machine, or make tasks and
# effects, which have who made them with them.
_NOT_ACTS = {
    "audit list", "audit verify", "bisect", "cache list", "config", "context delete", "context list", "context show",
    "context use", "datasets diff", "datasets list", "datasets partitions", "datasets sample", "datasets show",
    "datasets state", "datasets versions", "datasets writes", "db backup", "db psql", "db reset", "db restore",
    "db start", "db status", "db stop", "db url", "dead list", "demo", "deploy history", "dev", "diff", "explain",
    "graph", "health", "jobs approvals", "jobs events", "jobs graph", "jobs list", "jobs logs", "jobs result",
    "jobs show", "jobs watch", "jobs why", "lineage", "live backfills", "live jobs", "live list", "live show",
    "live state", "live units", "login", "logout", "metrics", "orchestrator", "orgs list", "orgs show",
    "outbox add", "outbox list", "query", "queues list", "roles list", "roles show", "schedules backfills",
    "schedules list", "schedules show", "schedules ticks", "schema", "server", "tasks enqueue",
    "tasks enqueue-many", "tasks list", "tasks logs", "tasks output", "tasks show", "tasks why", "tokens list",
    "tokens show", "users list", "users show", "validate", "whoami", "worker", "workers list",
    "workflows artifacts", "workflows blame", "workflows diff",
    "workflows list", "workflows log", "workflows moves", "workflows show",
}  # fmt: skip


def test_every_command_that_acts_takes_a_reason_or_a_message() -> None:
    without = {
        path.removeprefix("weft ")
        for path, command in cli.commands()
        if not {"reason", "message"} & inspect.signature(command).parameters.keys()
    }
    assert without - {"migrate", "migrate upgrade", "migrate downgrade", "migrate status"} == _NOT_ACTS
