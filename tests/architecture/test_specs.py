"""The map of the specs is complete, and what it calls built exists."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import asyncpg
import pytest
from spec_items import COLUMNS, items

import weft
import weft.orchestration
from weft.core.settings import Settings
from weft.core.states import TRANSITIONS, OutboxState, TaskState, WorkerState

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from docs.pages import cli, errors  # noqa: E402

# What is not built yet; whoever builds a part takes it from here, and no row may wait for it any more.
PARTS = {"gateway", "data", "runtimes"}
DATABASE_KINDS = ("table", "view", "column", "index", "constraint", "enum", "function", "schema")
REFERENCE = re.compile(
    r"(?P<kind>table|view|column|index|constraint|enum|function|schema|outbox state|worker state|state|verb|reason"
    r"|python|setting|variable|command|error|route) `(?P<name>[^`]+)`"
)


class Row(NamedTuple):
    spec: int
    kind: str
    item: str
    status: str
    text: str

    @property
    def references(self) -> list[tuple[str, str]]:
        return [(match["kind"], match["name"]) for match in REFERENCE.finditer(self.text)]


def read_rows() -> list[Row]:
    rows, spec = [], 0
    for line in (ROOT / "docs" / "reference" / "specs.md").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"## Spec (\d):", line):
            spec = int(found[1])
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and cells[0] not in ("kind", "---"):
            kind, item, status, *text = (cell.strip("| ") for cell in cells)
            rows.append(Row(spec, kind, item.strip("`"), status, " | ".join(text)))
    return rows


ROWS = read_rows()


@pytest.mark.parametrize("spec", sorted(COLUMNS))
def test_every_item_of_a_spec_has_one_row(spec: int) -> None:
    counted = Counter((row.kind, row.item) for row in ROWS if row.spec == spec)
    assert {item: count for item, count in counted.items() if count > 1} == {}
    assert items(spec) - counted.keys() == set()
    assert counted.keys() - items(spec) == set()


def test_every_row_says_what_becomes_of_its_item() -> None:
    for row in ROWS:
        if row.status == "built":
            assert row.references, f"{row} names nothing that exists"
        elif row.status == "dropped":
            assert row.text.startswith("because "), f"{row} does not say why"
        else:
            word, _, part = row.status.partition(": ")
            assert (word, part in PARTS) == ("later", True), f"{row} names no part"


async def names_in_database(conn: asyncpg.Connection[asyncpg.Record]) -> dict[str, set[str]]:
    async def names(query: str) -> set[str]:
        return {row[0] for row in await conn.fetch(query)}

    return {
        "table": await names(
            "select relname from pg_class where relnamespace = 'weft'::regnamespace and relkind in ('r', 'p')"
        ),
        "view": await names("select table_name from information_schema.views where table_schema = 'weft'"),
        "column": await names(
            "select table_name || '.' || column_name from information_schema.columns where table_schema = 'weft'"
        ),
        "index": await names("select indexname from pg_indexes where schemaname = 'weft'"),
        "constraint": await names("select conname from pg_constraint where connamespace = 'weft'::regnamespace"),
        "enum": await names("select typname from pg_type where typnamespace = 'weft'::regnamespace and typtype = 'e'"),
        "function": await names("select 'weft.' || proname from pg_proc where pronamespace = 'weft'::regnamespace"),
        "schema": await names("select nspname from pg_namespace"),
    }


async def test_what_the_map_calls_built_is_in_the_schema(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    known = await names_in_database(conn)
    wrong = [
        (row, kind, name)
        for row in ROWS
        for kind, name in row.references
        if kind in DATABASE_KINDS and name not in known[kind]
    ]
    assert wrong == []


def has_command(name: str) -> bool:
    for path, function in cli.commands():
        if path == name or path.startswith(f"{name} "):
            return True
        if name.startswith(f"{path} "):
            words = {word for parameter in cli.parameters(function) for word in parameter.choices}
            return name.removeprefix(f"{path} ") in words
    return False


def is_public(name: str) -> bool:
    is_of_graphs = name.startswith("weft.orchestration.")
    place: ModuleType = weft.orchestration if is_of_graphs else weft
    package, first, *rest = name.replace("weft.orchestration.", "weft.").split(".")
    if package != "weft" or first not in place.__all__:
        return False
    if not rest:
        return True
    kind = getattr(place, first)
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return hasattr(kind, rest[0]) or rest[0] in fields | inspect.signature(kind).parameters.keys()


def is_variable(name: str) -> bool:
    without = Settings.load(environ={"POSTGRES_HOST": "h"}).database_url
    return Settings.load(environ={"POSTGRES_HOST": "h", name: "7"}).database_url != without


REASONS = set(
    re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/states.md").read_text(encoding="utf-8"), re.MULTILINE)
)
ROUTES = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
EXISTS = {
    "state": lambda name: name in set(TaskState),
    "worker state": lambda name: name in set(WorkerState),
    "outbox state": lambda name: name in set(OutboxState),
    "verb": lambda name: name in {step.verb for step in TRANSITIONS},
    "reason": lambda name: name in REASONS,
    "python": is_public,
    "setting": lambda name: name in {f"WEFT_{field.name.upper()}" for field in dataclasses.fields(Settings)},
    "variable": is_variable,
    "command": has_command,
    "error": lambda name: name in {kind.code for kind in errors.all_errors()},
    "route": lambda name: f"`{name}`" in ROUTES,
}


def test_no_verb_of_a_later_part_is_called_built() -> None:
    later = {step.verb for step in TRANSITIONS if not step.is_built}
    assert [row for row in ROWS if row.status == "built" and later & {name for _, name in row.references}] == []


@pytest.mark.parametrize("kind", EXISTS)
def test_what_the_map_calls_built_exists(kind: str) -> None:
    named = {name for row in ROWS for found, name in row.references if found == kind}
    assert {name for name in named if not EXISTS[kind](name)} == set()
