"""All that is done to datasets and live DAGs, each beside each other: nobody meets an error that is not meant for him.

Afterwards all data is that of a plain program, and whoever reads meanwhile sees no row twice.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from crash.campaign import SEED
from crash.crowd import Crowd

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
# Of the pairs that take opposite ways through the same locks a short run has all, and of the others a few.
OPPOSED = (
    ("deploy east", "deploy west"), ("rollback east", "rollback west"), ("rollback east", "route"),
    ("rollback west", "send"), ("gc look", "gc"), ("gc", "backfill"), ("delete", "undelete"),
    ("deploy side", "delete of side"), ("role deletion", "role grant"), ("breaking write", "dataset rollback"),
)  # fmt: skip
_OTHERS = 2


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_whatever_is_done_at_the_same_moment_all_comes_out_as_if_one_were_after_the_other(
    url: str, home: Path, conn: Conn, campaign: str
) -> None:
    crowd, chance = Crowd(url, home), random.Random(SEED)
    pairs = list(itertools.combinations_with_replacement(crowd.acts, 2))
    # A query takes as long as a hundred other acts.
    quick = [pair for pair in pairs if "read" not in pair and pair not in OPPOSED]
    chosen = [*OPPOSED, *chance.sample(quick, _OTHERS)] if campaign == "short" else pairs
    chance.shuffle(chosen)
    async with crowd.gathered():
        for number, pair in enumerate(chosen):
            await crowd.together(pair * 2, 2 if campaign == "short" else 20, SEED + number)
        await crowd.require_whole(conn)
    assert len(crowd.done) > 10
