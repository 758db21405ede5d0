"""The list of guards is in step with the code, and tests miss a guard that is taken away (all of them: `make mutate`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import asyncpg
import pytest
from guards import FILES, GUARDS, REDUNDANT, SUPERSEDED, Guard

from depth import daily

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutation.__main__ import PACKAGE, ROOT, run_against

# One of each kind, with the test that should notice at once.
SHORT = {
    "step.finish_and_claim: and coalesce(t.worker_id, 0) = me": "test_fences.py::test_another_worker_writes_nothing",
    "task.postpone: and t.attempt = r.attempt": "test_fences.py::test_an_earlier_attempt_of_the_same_worker_writes_nothing",
    "worker.rescue: and coalesce(t.worker_id, 0) = $1": "test_rescue.py::test_rescue_and_burial_write_only_what_the_lost_worker_still_holds",
    "queue.lock_queue: for no key update": "test_queue_slots.py::test_two_who_lease_at_once_do_not_both_get_the_last",
    "outbox.done: and o.state = 'processing'": "test_outbox_rows.py::test_only_its_holder_settles_a_row_and_only_while_it_is_processing",
}  # fmt: skip


def _guard(name: str) -> Guard:
    (guard,) = [guard for guard in GUARDS if guard.name == name]
    return guard


def test_each_guard_of_the_list_is_in_the_code() -> None:
    for guard in [*GUARDS, *(guard for guard, _ in REDUNDANT)]:
        path, text = guard.removed_from(PACKAGE)
        assert text != path.read_text(encoding="utf-8"), guard.name


def test_no_guard_is_listed_twice() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(set(names)) == len(names)
    assert all(reason for _, reason in REDUNDANT)


def test_each_statement_that_changes_a_state_or_asks_for_an_org_has_guards_in_the_list() -> None:
    listed = {guard.statement for guard in GUARDS}
    # Statements in which there is nothing to guard: they change what they are given, or what only they change.
    bare = SUPERSEDED | {"task.lock_live", "worker.set_saturated", "worker.refresh_handlers", "function.free_slots"}
    for file, path in FILES.items():
        parts = re.split(r"^-- name: *", (PACKAGE / path).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        for part in parts:
            name, _, body = part.partition("\n")
            statement = f"{file}.{name.strip()}"
            guarded = r"\bset (\w+ = [^,]+, )*state = |\bfor update|\bfor share|\borg_id = \$1"
            if re.search(guarded, body) and statement not in bare:
                names = listed | {guard.statement for guard, _ in REDUNDANT}
                assert statement in names, (
                    f"{statement} changes a state, locks or asks for an org, and none of its guards is listed"
                )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", daily(SHORT, 2))
def test_a_guard_that_is_taken_away_is_missed(name: str) -> None:
    test = str(ROOT / "tests" / "store" / SHORT[name])
    killed, line = run_against(_guard(name), [test])
    assert killed, line


async def test_each_mutant_is_a_statement_that_could_be_called(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """With the same parameters as the original: one that PostgreSQL refuses would be missed by any test."""

    async def parameters(statement: str) -> list[str]:
        return [parameter.name for parameter in (await conn.prepare(statement)).get_parameters()]

    for guard in [*GUARDS, *(guard for guard, _ in REDUNDANT)]:
        path, text = guard.removed_from(PACKAGE)
        original, mutant = guard.body_in(path.read_text(encoding="utf-8")), guard.body_in(text)
        if guard.is_python:
            compile(text, path, "exec")
        elif guard.statement.startswith("function."):
            await _made(conn, mutant, guard.name)
        else:
            assert await parameters(mutant) == await parameters(original), guard.name


async def _made(conn: asyncpg.Connection[asyncpg.Record], mutant: str, name: str) -> None:
    """Put a function in the place of the original, and roll that back; its statements are read as far as they can be."""
    trial = conn.transaction()
    await trial.start()
    try:
        statement, replaced = re.subn(r"^create function", "create or replace function", mutant, flags=re.MULTILINE)
        assert replaced, name
        await conn.execute(statement)
    except asyncpg.PostgresError as problem:
        raise AssertionError(f"{name}: {problem}") from problem
    finally:
        await trial.rollback()
