"""What the code as a whole promises: names, sizes, docstrings, and one vocabulary in SQL and Python."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
import types
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

import weft
from weft.core import states
from weft.db.statements import Statements

SOURCE = Path(weft.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 450

# The whole public interface; a change here is a change for users.
PUBLIC = [
    "Approval", "Artifact", "Attempt", "AuditEntry", "AuditFinding", "AuditSeals", "Backfill", "BisectStep", "Bisected",
    "BlobRepository", "BlobUnavailable", "CachedOutputs", "Checkpoint", "Checkpoints", "Client", "Collected",
    "CollectedData", "Column", "ColumnChange", "Context", "DagDefinition", "DagVersion", "DataUnavailable",
    "DatabaseUnavailable", "Dataset",
    "DatasetBusy", "DatasetDiff", "DatasetPlan", "DatasetState", "DatasetVersion", "DatasetWrite", "Datasets",
    "DeployConflict", "DeployPlan", "Explanation", "Finding", "Forbidden", "GraphEdge", "GraphGroup", "GraphItem",
    "GraphNode", "HandlerContext", "HandlerResult", "Health", "HealthCheck", "InputPlan", "InvalidDefinition",
    "InvalidInput", "InvalidQuery", "Job", "JobAttempt", "JobEvent", "JobEvents", "JobFailed", "JobGraph",
    "JobHandle", "JobNode", "JobPage", "JobPlan", "JobState", "JobSummary", "Jobs", "KeyLimit", "KeyReused",
    "LeaseLost", "Lineage", "LineageEdge", "LineagePlace", "Live", "LiveBackfill", "LiveContext", "LiveDag",
    "LiveJob", "LiveUnit", "Materialized", "MergeConflict", "Metric", "NewEvent", "NewTask", "NewToken", "NodeWhy",
    "NonRetryable", "NotFound", "OpenUnit", "OperatorState", "Orchestrator", "Org", "OrgRole", "Orgs", "OutboxRow",
    "Page", "Partition", "PartitionChange", "PermissionDenied", "Producer", "Pushed", "QueryAnswer",
    "QueryCancelled", "QueryCrashed", "QueryLimitReached", "QueueInfo", "Registry", "RemoteClient", "Rerun",
    "RerunAction", "RerunPlan", "RerunStep", "Retry", "Roles", "RolledBack", "RowChange", "RowDiff", "Sample",
    "Schedule", "Schedules", "SchemaOutdated", "SentEvent", "ServerUnavailable", "Settings", "SignIn", "Snooze",
    "SourceFull", "SpawnedTask", "StateConflict", "SubmittedJob", "Tag", "TagConflict", "TagMove", "Task",
    "TaskDataset", "TaskFailed", "TaskHandle", "TaskState", "TaskStep", "TaskSummary", "Token", "Tokens",
    "TooLarge", "Touched", "Unauthenticated", "UnknownQueue", "Untold", "User", "Users", "WaitTimeout", "WeftError",
    "Why", "Worker", "WorkerInfo", "Workflow", "WorkflowDefinition", "Workflows", "WriteConflict", "WriteResult",
    "__version__", "columns_of_query", "filtered", "group", "operator", "read_dag", "read_definition",
    "register_handler", "run", "submit", "task", "wait_for_approval", "wait_for_event", "when", "workflow",
]  # fmt: skip

CLIENT = [
    "actor", "add_effect", "audit", "because", "blobs", "cached_outputs", "cancel", "cancel_all", "clear_cache",
    "count_dead", "create_queue", "database", "datasets", "dead_letters", "enqueue", "enqueue_many", "explain",
    "follow_log", "get_task", "health", "in_one_transaction", "jobs", "limit_queue", "list_tasks", "live",
    "metrics", "of_org",
    "org_id", "orgs", "outbox", "pause_queue", "purge", "purge_outbox", "queues", "read_log", "replay", "replay_all",
    "replay_dead", "replay_outbox", "resume_queue", "roles", "schedules", "sees", "tokens", "users", "verify_audit",
    "wait", "why", "workers", "workflows",
]  # fmt: skip


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_the_public_names_are_these_and_sorted() -> None:
    assert weft.__all__ == PUBLIC
    assert weft.__all__ == sorted(weft.__all__)
    assert dir(weft) == PUBLIC


def test_type_checkers_and_programs_find_the_public_names_in_the_same_places() -> None:
    """They stand three times in the file: as imports for type checkers, with their modules, and as a list."""
    text = (SOURCE / "__init__.py").read_text(encoding="utf-8")
    imported, places, public = dict[str, str](), dict[str, str](), list[str]()
    for statement in ast.parse(text).body:
        match statement:
            case ast.If(test=ast.Name("TYPE_CHECKING"), body=body):
                for line in body:
                    assert isinstance(line, ast.ImportFrom)
                    imported |= {name.asname or name.name: str(line.module) for name in line.names}
            case ast.Assign(targets=[ast.Name("_HOMES")], value=value):
                places = ast.literal_eval(value)
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                public = ast.literal_eval(value)
    assert imported == places
    assert sorted([*places, "__version__"]) == public
    assert list(places) == sorted(places)


def test_each_public_name_can_be_imported_and_tells_what_it_is() -> None:
    for name in PUBLIC:
        found = getattr(weft, name)
        assert not isinstance(found, types.ModuleType), name
        assert found.__doc__ or name == "__version__", name


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = weft.nonsense


def test_the_verbs_of_the_client_are_these() -> None:
    assert [name for name in dir(weft.Client) if not name.startswith("_")] == CLIENT


def test_every_verb_of_the_client_and_the_worker_is_documented() -> None:
    for kind in (weft.Client, weft.Worker):
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") and callable(member):
                assert (member.__doc__ or "").strip(), f"{kind.__name__}.{name}"


def test_every_verb_of_the_client_has_an_example() -> None:
    verbs = [member for member in inspect.getmembers(weft.Client, inspect.iscoroutinefunction) if member[0][0] != "_"]
    assert [name for name, verb in verbs if "Example::" not in (verb.__doc__ or "")] == ["org_id"]


def test_each_module_begins_with_one_sentence() -> None:
    for path in MODULES:
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert doc, f"{_name(path)} has no docstring"
        first = doc.splitlines()[0]
        assert first.endswith("."), f"{_name(path)}: {first}"
        assert first[0].isupper() or first[0] in "`@", f"{_name(path)}: {first}"
        assert len(re.findall(r"\. +[A-Z]", first)) == 0, f"{_name(path)} says more than a sentence: {first}"


def test_no_module_grows_too_long() -> None:
    assert [_name(path) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST] == []


def test_each_target_makes_the_environment_first() -> None:
    makefile = (SOURCE.parents[1] / "Makefile").read_text(encoding="utf-8")
    needs = {target: rest.split() for target, rest in re.findall(r"^([a-z-]+):(.*)$", makefile, re.MULTILINE)}
    assert {target for target, before in needs.items() if "install" not in before} == {"install", "clean"}


def test_only_the_settings_read_files_in_core() -> None:
    """Nor does anything there open a connection or start a program."""
    readers = set()
    for path in (SOURCE / "core").glob("*.py"):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        imported = {
            name.partition(".")[0]
            for node in tree
            for name in (
                [alias.name for alias in node.names] if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
        }  # fmt: skip
        if imported & {"asyncio", "asyncpg", "io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile"}:
            readers.add(path.name)
    assert readers == {"settings.py"}


def test_contributors_are_told_of_every_room_in_the_order_in_which_they_may_be_imported() -> None:
    root = SOURCE.parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = [each["layers"] for each in settings["contracts"] if each["type"] == "layers"]
    wanted = [{room.strip().removeprefix("weft.") for room in layer.split("|")} for layer in reversed(layers)]
    told = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Rooms")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `")]
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == wanted


def test_nothing_is_called_utils_or_helpers() -> None:
    assert [path for path in MODULES if path.stem in ("utils", "util", "common", "helpers", "misc", "manager")] == []


def test_packages_hold_no_code_of_their_own() -> None:
    for path in MODULES:
        if path.name == "__init__.py" and path.parent != SOURCE:
            body = ast.parse(path.read_text(encoding="utf-8")).body
            assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign) for node in body), path


@pytest.mark.parametrize(
    ("enum", "name"),
    [(states.TaskState, "task_state"), (states.WorkerState, "worker_state"), (states.OutboxState, "outbox_state")],
)
async def test_states_are_the_same_in_sql_and_python(server_url: str, enum: type[StrEnum], name: str) -> None:
    conn = await asyncpg.connect(urlsplit(server_url)._replace(path="/weft_template").geturl())
    found = await conn.fetchval(f"select enum_range(null::weft.{name})::text[]")
    await conn.close()
    assert found == list(enum)


def test_verbs_that_write_states_are_named_in_the_table() -> None:
    """Each statement that moves a task names its from-states, and they are those of the table."""
    task, worker = Statements("weft.queue", "sql/task.sql").texts, Statements("weft.queue", "sql/worker.sql").texts
    guards = {
        "postpone": (task["postpone"], "retry_later"),
        "end_unsuccessfully": (task["end_unsuccessfully"], "bury"),
        "hand_back": (task["hand_back"], "hand_back"),
        "replay": (task["replay"], "replay"),
        "set_aside": (task["set_aside"], "set_aside"),
        "rescue": (worker["rescue"], "rescue"),
        "bury_crashed": (worker["bury_crashed"], "bury_crashed"),
    }
    for statement, (text, verb) in guards.items():
        match = re.search(r"\b[td]\.state in \(([^)]*)\)", text)
        assert match, statement
        assert {word.strip(" '") for word in match[1].split(",")} == states.sources_of(verb), statement


def test_sql_stands_in_sql_files() -> None:
    """No statement is put together from strings in Python, but where a name in it cannot be an argument."""
    allowed = {
        "db/copying.py", "db/embedded.py", "db/embedded_backup.py", "db/foreign.py", "db/migrate.py", "db/revisions.py",
        "queue/upkeep.py", "testing/database.py", "worker/line.py",
        # For DuckDB: the rows of any dataset, what an author's SQL is a part of, and an example.
        "sdk/datasets.py", "sdk/live_sql.py", "sdk/row_diff.py", "server/routes/query.py",
        "worker/operators/alert_evaluate.py", "worker/operators/range_aggregator.py",
    }  # fmt: skip
    verbs = re.compile(
        r"\s*(select|insert into|update|delete from|alter table|create database|drop|notify)\s", re.IGNORECASE
    )
    found = set()
    for path in MODULES:
        if _name(path).startswith("db/migrations"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        ]
        if any(verbs.match(text) for text in texts):
            found.add(_name(path))
    assert found == allowed


def test_each_statement_that_changes_a_state_says_what_guards_it() -> None:
    """A write without a comment hides its guard from whoever reads the file."""
    for path in sorted(SOURCE.rglob("queue/sql/*.sql")):
        for part in re.split(r"^-- name: *", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name, _, body = part.partition("\n")
            if re.search(r"\bset\s+(\w+ = [^,]+,\s*)*state = |delete from weft\.task(_done)? ", body):
                assert body.lstrip().startswith("--"), f"{path.name}: {name.strip()}"


async def test_kinds_of_effects_are_the_same_in_sql_and_python(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    constraint = "select pg_get_constraintdef(oid) from pg_constraint where conname = 'outbox_kind_check'"
    check = await conn.fetchval(constraint)
    source = await conn.fetchval("select prosrc from pg_proc where proname = 'add_effect'")
    known = re.search(r"kind not in \(([^)]*)\)", source)
    assert known
    assert re.findall(r"'(\w+)'", check) == re.findall(r"'(\w+)'", known[1]) == list(states.OutboxKind)


@pytest.mark.parametrize(
    ("loaded", "unneeded"),
    [
        ("weft", {"asyncio", "asyncpg", "pydantic"}),
        ("weft.worker.child", {"asyncpg", "jinja2", "pydantic", "yaml"}),
        ("weft.sdk.client", {"alembic", "jinja2", "pydantic", "rich", "sqlalchemy", "weft.flow", "yaml"}),
        ("weft.sdk.worker", {"alembic", "jinja2", "pydantic", "rich", "sqlalchemy", "weft.flow.model", "yaml"}),
        ("weft.sdk.jobs", {"alembic", "jinja2", "rich", "sqlalchemy"}),
        ("weft.sdk.workflows", {"alembic", "jinja2", "rich", "sqlalchemy"}),
        # Who writes, or asks by a query; pandas comes with the datasets of Arrow, where there is one.
        ("weft.worker.datasets, weft.worker.dataset_places, weft.data.fetching", {"duckdb", "pandas", "polars"}),
    ],
)
def test_what_every_start_waits_for_loads_nothing_that_it_can_do_without(loaded: str, unneeded: set[str]) -> None:
    asked = f"import sys, {loaded}; print(sorted({unneeded!r} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert found == "[]\n"
