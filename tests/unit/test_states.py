"""The one table of states and verbs."""

from __future__ import annotations

import pytest

from weft.core.checks import check_name, check_queue, check_word, check_words
from weft.core.errors import InvalidInput
from weft.core.states import (
    BY_VERB,
    DESCRIPTIONS,
    FINAL,
    HELD,
    LIVE,
    SPELLINGS,
    TRANSITIONS,
    TaskState,
    WorkerState,
    sources_of,
)

# The table of the design, written out once more so that a change must be made twice.
TABLE = {
    "release": ("pending", "ready"),
    "admit": ("pending", "ready"),
    "hold": ("ready", "pending"),
    "stage": ("scheduled", "ready"),
    "park": ("scheduled ready", "pending"),
    "claim": ("ready", "running"),
    "dispatch": ("ready", "dispatched"),
    "take": ("dispatched", "claimed"),
    "start": ("claimed", "running"),
    "hand_back": ("claimed running", "ready"),
    "complete": ("running", "completed"),
    "fail": ("running", "failed"),
    "retry_later": ("running dispatched", "scheduled"),
    "snooze": ("running dispatched", "scheduled"),
    "decline": ("running", "scheduled"),
    "bury": ("running dispatched", "dead"),
    "bury_crashed": ("claimed running", "dead"),
    "set_aside": ("running dispatched", "pending"),
    "rescue": ("claimed running", "ready"),
    "skip": ("pending ready scheduled waiting", "skipped"),
    "wait": ("running", "waiting"),
    "hold_back": ("ready", "pending"),
    "resume": ("pending", "ready"),
    "cancel": ("pending scheduled ready dispatched claimed running waiting", "cancelled"),
    "answer": ("waiting", "completed"),
    "refuse": ("waiting", "failed"),
    "replay": ("failed dead cancelled", "ready"),
}


@pytest.mark.parametrize("verb", TABLE)
def test_each_verb_leads_from_its_sources_to_its_target(verb: str) -> None:
    sources, target = TABLE[verb]
    assert sources_of(verb) == frozenset(map(TaskState, sources.split()))
    assert BY_VERB[verb].target == target
    assert BY_VERB[verb].meaning


def test_there_are_no_other_verbs() -> None:
    assert [transition.verb for transition in TRANSITIONS] == list(TABLE)
    assert len(BY_VERB) == len(TRANSITIONS)


def test_these_verbs_come_with_later_parts() -> None:
    assert {step.verb for step in TRANSITIONS if not step.is_built} == {"dispatch", "take", "start"}


def test_final_states_are_left_by_replay_only() -> None:
    leaving = {transition.verb for transition in TRANSITIONS if transition.sources & FINAL}
    assert leaving == {"replay"}
    assert BY_VERB["replay"].sources < FINAL


def test_what_completed_or_was_skipped_stays_so() -> None:
    assert TaskState.COMPLETED not in sources_of("replay")
    assert TaskState.SKIPPED not in sources_of("replay")


def test_every_state_that_is_not_final_can_be_cancelled_and_is_reached() -> None:
    assert sources_of("cancel") == LIVE
    reached = {transition.target for transition in TRANSITIONS}
    assert set(TaskState) == reached


def test_each_state_is_final_or_live_and_described() -> None:
    assert set(TaskState) == FINAL | LIVE
    assert not FINAL & LIVE
    assert HELD < LIVE
    assert set(DESCRIPTIONS) == set(TaskState)
    assert {state for state in TaskState if state.is_final} == FINAL


def test_a_state_is_found_by_the_spellings_of_the_specs() -> None:
    assert check_words(["dead_letter", "queued", "canceled"], "state", TaskState) == {"dead", "ready", "cancelled"}
    assert {TaskState(word) for word in SPELLINGS.values()} <= set(TaskState)
    with pytest.raises(InvalidInput, match="at least one"):
        check_words([], "state", TaskState)
    with pytest.raises(InvalidInput, match="'queued' is not one of"):
        check_word("queued", "state", WorkerState)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "a\x7f", "a\x9bb"])
def test_names_with_control_characters_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"handler: .* has a control character"):
        check_name(name, "handler")


def test_a_queue_has_no_comma_in_its_name() -> None:
    with pytest.raises(InvalidInput, match="queue: 'a,b' has a comma"):
        check_queue("a,b")
    assert check_name("a,b", "handler") == "a,b"
