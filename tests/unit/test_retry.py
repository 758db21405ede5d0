"""When a failed attempt is tried again."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidInput
from weft.queue.retry import Retry

policies = st.builds(
    Retry, max_attempts=st.integers(1, 32767), backoff=st.sampled_from(["exponential", "linear", "fixed"]),
    initial_delay=st.floats(0, 366 * 86400), max_delay=st.floats(0, 366 * 86400), jitter=st.floats(0, 1),
)  # fmt: skip


def _seconds(policy: Retry, *failures: int) -> list[float]:
    return [policy.delay(failure).total_seconds() for failure in failures]


def test_delays_grow_as_their_policy_says() -> None:
    assert _seconds(Retry(jitter=0, initial_delay=2), 1, 2, 3, 4, 5) == [2, 4, 8, 16, 32]
    assert _seconds(Retry(jitter=0, initial_delay=2, backoff="linear"), 1, 2, 3, 4, 5) == [2, 4, 6, 8, 10]
    assert _seconds(Retry(jitter=0, initial_delay=2, backoff="fixed"), 1, 2, 3, 4, 5) == [2, 2, 2, 2, 2]
    assert _seconds(Retry(jitter=0, initial_delay=2, max_delay=9), 1, 2, 3, 4, 5) == [2, 4, 8, 9, 9]


@given(policies, st.integers(1, 10**9))
def test_a_delay_never_exceeds_its_maximum_nor_overflows(policy: Retry, failures: int) -> None:
    delay = policy.delay(failures).total_seconds()
    assert 0 <= delay <= policy.max_delay + 1e-6


@given(policies, st.integers(1, 100))
def test_jitter_takes_away_at_most_its_share(policy: Retry, failures: int) -> None:
    full = Retry(
        max_attempts=policy.max_attempts, backoff=policy.backoff, initial_delay=policy.initial_delay,
        max_delay=policy.max_delay, jitter=0,
    ).delay(failures)  # fmt: skip
    delay = policy.delay(failures)
    assert full * (1 - policy.jitter) - timedelta(microseconds=2) <= delay <= full + timedelta(microseconds=2)


def test_jitter_spreads() -> None:
    delays = {Retry(initial_delay=100, jitter=0.5, backoff="fixed").delay(1) for _ in range(200)}
    assert len(delays) > 100
    assert max(delays) - min(delays) > timedelta(seconds=25)


@given(policies)
def test_a_policy_comes_back_from_the_row_of_its_task(policy: Retry) -> None:
    assert Retry.from_json(policy.to_json(), policy.max_attempts) == policy


def test_the_default_policy_needs_no_room_in_the_row() -> None:
    assert Retry().to_json() is None
    assert Retry(max_attempts=9).to_json() is None
    assert Retry.from_json(None, 9) == Retry(max_attempts=9)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "1", "{", '{"backoff":"odd"}', '{"initial_delay":"x"}', '{"unknown":1}']
)
def test_a_stored_policy_that_cannot_be_read_is_the_default(text: str) -> None:
    assert Retry.from_json(text, 4) == Retry(max_attempts=4)


def test_delays_may_be_given_as_spans() -> None:
    policy = Retry(initial_delay=timedelta(minutes=1), max_delay=timedelta(hours=1), jitter=0)  # type: ignore[arg-type]
    assert _seconds(policy, 1, 2, 60) == [60, 120, 3600]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("max_attempts", value) for value in (0, -1, 32768, "3", None, 1.5, True)],
        *[("backoff", value) for value in ("", "random", None, 5)],
        *[("initial_delay", value) for value in (-1, math.nan, math.inf, "1s", None, timedelta(seconds=-1), 10**9)],
        *[("max_delay", value) for value in (-1, math.nan, "1s", timedelta(days=400))],
        *[("jitter", value) for value in (-0.1, 1.1, math.nan, "x", None)],
        *[("non_retryable", value) for value in ((5,), ("ValueError",), 7, "ValueError", (int,))],
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused_by_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Retry(**{field: value})
    assert caught.value.field == f"retry.{field}"


def test_what_a_stored_policy_does_not_say_is_as_in_general() -> None:
    general = Retry(9, backoff="fixed", initial_delay=7, max_delay=8, jitter=0.5)
    assert Retry.from_json('{"jitter":0}', 4, general) == Retry(4, "fixed", 7, 8, 0)
    assert Retry.from_json(None, 4, general) == Retry(4)
