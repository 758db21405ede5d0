"""Hundreds of payloads that are used against templates stay inert: refused, or a small value of plain JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from expression_payloads import PAYLOADS

from weft.flow.budget import MAX_SIZE

CANARY = "the-secret-of-the-canary"
Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What became of each payload in a process that has little memory and notes all that is done outside of it."""
    cage = tmp_path_factory.mktemp("cage")
    (cage / "canary.txt").write_text(CANARY)
    prison = Path(__file__).parent / "expression_prison.py"
    done = subprocess.run(
        [sys.executable, str(prison)], cwd=cage, env={**os.environ, "CANARY": CANARY}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {outcome["payload"]: outcome | {"end": done.stderr[-500:]} for outcome in found}


def test_there_are_hundreds_of_payloads() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS)
    assert len(PAYLOADS) > 450


@pytest.mark.parametrize("payload", PAYLOADS, ids=[f"{n}-{text[:50]!a}" for n, text in enumerate(PAYLOADS)])
def test_a_payload_is_refused_or_becomes_a_small_value_of_plain_json(outcomes: Outcomes, payload: str) -> None:
    assert payload in outcomes, "the process did not survive it"
    outcome = outcomes[payload]
    assert "crash" not in outcome
    assert outcome["events"] == []
    assert outcome["files"] == ["canary.txt"]
    assert outcome["is_unchanged"]
    if "refusal" in outcome:
        assert CANARY not in outcome["refusal"]
        assert 0 < len(outcome["refusal"]) < 1000
    else:
        assert outcome["is_json"]
        assert not outcome["leaks"]
        assert outcome["size"] <= 2 * MAX_SIZE


def test_the_prison_notices_what_gets_out(tmp_path: Path) -> None:
    (tmp_path / "canary.txt").write_text(CANARY)
    script = (
        "import sys, expression_prison as prison\n"
        "sys.addaudithook(prison.note)\n"
        "prison.read_template = lambda text: open(text)\n"
        "print(prison.outcome_of('canary.txt'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "'crash'" in done.stdout
    assert "'events': ['open'" in done.stdout
