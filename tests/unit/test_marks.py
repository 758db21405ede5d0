"""When a worker claims above its mark, and how much of its time it spends on looks from the head."""

from __future__ import annotations

import pytest

from weft.queue.work import HEAD, Claim, Lane
from weft.worker import marks as marks_module
from weft.worker.marks import Marks

QUEUE = 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(marks_module, "time", clock)
    return clock


def claim(id: int, rank: int = 0) -> Claim:
    return Claim(id=id, attempt=1, queue_id=QUEUE, rank=rank, order_id=id, handler="h", params="{}", max_attempts=3,
                 failures=0, crashes=0, timeout=None, heartbeat_timeout=None, retry=None, job_id=None)  # fmt: skip


def looks(marks: Marks, clock: Clock, *, head: float, mark: float, calls: int) -> tuple[float, float]:
    """Make calls that cost so many seconds each; return the time spent on looks from the head, and all of it."""
    lanes, spent = [Lane(QUEUE)], {True: 0.0, False: 0.0}
    for _ in range(calls):
        _, from_head, _ = marks.choose(lanes)
        seconds = head if from_head else mark
        clock.now += seconds
        marks.note(lanes, [], from_head, seconds)
        spent[from_head] += seconds
    return spent[True], spent[True] + spent[False]


def test_what_costs_nothing_extra_is_done_each_time(clock: Clock) -> None:
    """From the head itself, or by a claim above the mark that looks there when it comes up short."""
    marks, lanes = Marks(), [Lane(QUEUE)]
    for _ in range(100):
        _, from_head, may_look_back = marks.choose(lanes)
        assert may_look_back
        assert marks.has_looked_back
        clock.now += 0.001
        marks.note(lanes, [], from_head, 0.001)


def test_expensive_looks_from_the_head_take_a_tenth_of_the_time(clock: Clock) -> None:
    """As while the vacuum horizon is held: a look from the head walks a million dead entries."""
    marks = Marks()
    looks(marks, clock, head=0.5, mark=0.001, calls=50)
    head, whole = looks(marks, clock, head=0.5, mark=0.001, calls=50_000)
    assert 0.05 < head / whole < 0.12


def test_a_claim_goes_above_the_highest_place_that_was_claimed(clock: Clock) -> None:
    marks, lanes = Marks(), [Lane(QUEUE)]
    marks.note(lanes, [claim(5), claim(9), claim(7)], True, 0.5)
    clock.now += 0.001
    chosen, from_head, may_look_back = marks.choose(lanes)
    assert (from_head, may_look_back) == (False, False)
    assert chosen[0].mark == (0, 9, 9)
    clock.now += 60
    chosen, from_head, _ = marks.choose(lanes)
    assert (from_head, chosen[0].mark) == (True, HEAD)


def test_a_look_that_was_held_up_does_not_put_off_the_next_one_for_long(clock: Clock) -> None:
    """As by a database that did not answer for minutes: what is below the mark would wait for an hour."""
    marks, lanes = Marks(), [Lane(QUEUE)]
    clock.now += 600
    marks.note(lanes, [claim(9)], True, 600.0)
    clock.now += 1
    assert not marks.choose(lanes)[1]
    assert marks.look_back_in(60.0) < 30
    clock.now += 30
    chosen, from_head, _ = marks.choose(lanes)
    assert (from_head, chosen[0].mark) == (True, HEAD)


def test_who_found_nothing_above_the_mark_looks_again_when_a_look_from_the_head_is_due(clock: Clock) -> None:
    marks, lanes = Marks(), [Lane(QUEUE)]
    assert marks.look_back_in(5.0) == 5.0
    marks.note(lanes, [], True, 0.4)
    marks.choose(lanes)
    assert not marks.has_looked_back
    assert marks.look_back_in(5.0) == pytest.approx(1.8)
    assert marks.look_back_in(1.0) == 1.0
