"""What a worker holds, compared with what the database says after a connection was lost."""

from __future__ import annotations

from pathlib import Path

from weft.core.settings import Settings
from weft.db.database import Database
from weft.queue.work import Claim, Completed
from weft.worker.attempt import Attempt, Environment
from weft.worker.database_store import DatabaseStore
from weft.worker.holdings import Holdings
from weft.worker.processes import Processes
from weft.worker.registry import Registry


def _claim(id: int, attempt: int = 1) -> Claim:
    return Claim(id, attempt, 1, 0, id, "h", "{}", 3, 0, 0, None, None, None, None)


def _running(home: Path, *claims: Claim) -> Holdings:
    registry = Registry()

    @registry.task(name="h")
    async def handler() -> None: ...

    known = registry.get("h")
    assert known is not None
    settings = Settings(home=home)
    database = Database("postgresql://nobody@localhost/nowhere", settings)
    env = Environment(
        DatabaseStore(database), 1, Processes([], None), home, lambda _: None, lambda _attempt, _outcome: None
    )
    held = Holdings()
    held.running = {claim.id: Attempt(env, claim, known) for claim in claims}
    return held


def _taken(held: Holdings, *claims: Claim) -> tuple[list[int], list[Claim]]:
    gone, adopted = held.compare(claims)
    return [attempt.claim.id for attempt in gone], adopted


def test_what_both_know_stays(tmp_path: Path) -> None:
    held = _running(tmp_path, _claim(1))
    held.unbegun = [_claim(2)]
    assert _taken(held, _claim(1), _claim(2)) == ([], [])
    assert held.unbegun == [_claim(2)]


def test_what_only_the_database_knows_is_adopted(tmp_path: Path) -> None:
    held = _running(tmp_path, _claim(1))
    assert _taken(held, _claim(1), _claim(2)) == ([], [_claim(2)])
    assert held.accept([_claim(2)]) == []
    assert held.unbegun == [_claim(2)]


def test_what_only_the_worker_knows_was_taken_away(tmp_path: Path) -> None:
    held = _running(tmp_path, _claim(1), _claim(2, attempt=4), _claim(3))
    assert _taken(held, _claim(1), _claim(2, attempt=5))[0] == [2, 3]


def test_an_attempt_whose_outcome_is_on_its_way_is_left_to_the_answer(tmp_path: Path) -> None:
    held = _running(tmp_path, _claim(1))
    held.note(Completed(1, 1, "null"))
    assert _taken(held) == ([], [])
    assert held.accept([_claim(1)]) == [_claim(1)], "but it was forgotten, and is given again"


def test_a_forgotten_attempt_that_is_given_again_is_handed_back(tmp_path: Path) -> None:
    held = _running(tmp_path, _claim(1), _claim(2))
    _taken(held, _claim(2))
    assert held.accept([_claim(1), _claim(3)]) == [_claim(1)]
    assert held.unbegun == [_claim(3)]
    assert held.accept([_claim(1, attempt=2)]) == [], "the next attempt has a fence of its own"
    assert held.unbegun == [_claim(3), _claim(1, attempt=2)]


def test_a_forgotten_attempt_that_had_not_begun_may_be_given_again(tmp_path: Path) -> None:
    held = _running(tmp_path)
    held.unbegun = [_claim(1), _claim(2)]
    assert _taken(held, _claim(2)) == ([], [])
    assert held.unbegun == [_claim(2)], "it must not begin beside the one that is given again"
    assert held.accept([_claim(1)]) == []
    assert held.unbegun == [_claim(2), _claim(1)]


def test_whoever_starts_anew_has_forgotten_nothing(tmp_path: Path) -> None:
    held = _running(tmp_path, _claim(1))
    _taken(held)
    held.clear()
    assert held.accept([_claim(1)]) == []
    assert held.unbegun == [_claim(1)]
