"""A repair that dies amid it has mended each thing as a whole, or not at all, and the next one mends the rest."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

import weft
from crash.harness import VICTIM, Process
from crash.history_acts import DEPTH, UPKEEP, seen_of, settings_for
from crash.moments import Moments
from crash.proxy import proxy_to
from crash.test_history_kill import Performance, for_victims
from history_laws import broken_laws

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

# What was meddled with in the rows of one workflow, and how it is found. Its chain is mended by one statement, the tag
# whose target is gone by two: it is put where it was last, and that is a move of its own.
DAMAGE = """
  set session_replication_role = replica;
  update weft.artifact set version_hash = sha256('x') where workflow_id = $name$ and depth = 1;
  update weft.artifact set chain = array[id] where workflow_id = $name$ and depth = 2;
  update weft.artifact set plan_hash = sha256($name$) where workflow_id = $name$ and kind = 'snapshot';
  update weft.blob set content = '\\x00'
    where digest = (select digest from weft.artifact where workflow_id = $name$ and kind = 'snapshot');
  update weft.tag set version = 99, position = 98 where name = $name$ || '/other';
  delete from weft.artifact where id = (select target_id from weft.tag where name = $name$ || '/lost');
  set session_replication_role = origin;
"""
FOUND = ["astray_tag", "lost_blob", "orphaned_tag", "wrong_chain", "wrong_hash", "wrong_plan"]


async def codes(url: str, home: Path, *, repair: bool = False) -> list[str]:
    """Look through the history as somebody who remembers nothing of it."""
    async with weft.Client(settings=settings_for(url, home, "other")) as other:
        return sorted(finding.code for finding in await other.workflows.fsck(repair=repair))


async def test_a_repair_killed_between_any_two_statements_leaves_what_the_next_one_mends(
    url: str, tmp_path: Path, conn: Conn, campaign: str
) -> None:
    plan, home = UPKEEP["repair"], tmp_path / "home"
    copies = await Process.start("crash.apps.history_act", {}, tmp_path / "crew")
    left, moments = [], Moments(campaign)
    for number in moments:
        name = f"w{number}"
        async with weft.Client(settings=settings_for(url, home, "setter")) as client:
            await plan.prepare(client.workflows, name)
        await conn.execute(DAMAGE.replace("$name$", f"'{name}'"))
        async with proxy_to(url) as proxy:
            held = proxy.hold("", moments.at(number, with_setting_up=True))
            order = {"act": "repair", "url": for_victims(proxy), "home": str(home), "actor": VICTIM}
            copies.say(json.dumps(order))
            victim = Performance(copies, int(await copies.hear()))
            is_held = await victim.is_reached(held.fired)
            if is_held:
                await victim.kill()
        left.append(await codes(url, home, repair=True))
        assert Counter(left[-1]) <= Counter(FOUND), "something is wrong that was not before"
        assert await codes(url, home) == []
        # What is gone for good is still missed by the moves that went there.
        assert [found for _, found in await broken_laws(conn, DEPTH) if '/lost"' not in found] == []
        async with weft.Client(settings=settings_for(url, home, "other")) as other:
            for line in ("main", "other", "lost"):
                assert await seen_of(other.workflows, name, line) == plan.seen[1]
        if not is_held:
            moments.over()
    assert int(await victim.end) == 0
    await copies.finish()
    # Nothing at first, one after the other, everything at last.
    assert (left[0], left[-1]) == (FOUND, [])
    assert sorted(left, key=len, reverse=True) == left
    assert {len(each) for each in left} == set(range(len(FOUND) + 1))
