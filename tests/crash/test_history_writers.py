"""Fifty writers of one tag at once, in five processes: what each was told is so, and the moves are one chain."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

import weft
from crash.harness import Crew
from crash.history_acts import DEPTH, flow, settings_for
from history_laws import broken_laws

PROCESSES, WRITERS = 5, 10
TAG = "etl/main"

Note = dict[str, Any]


async def all_act_at_once(crew: Crew, first: int, acts: int) -> list[Note]:
    """Let all writers act, and return what each was told."""
    files = []
    for number in range(PROCESSES):
        files.append(crew.folder / f"notes-{number}.json")
        await crew.history_writer({
            "url": crew.url, "home": str(crew.folder / "home"), "tag": TAG, "first": first, "acts": acts,
            "writers": [f"w{number}_{writer}" for writer in range(WRITERS)], "notes": str(files[-1]),
        })  # fmt: skip
    for process in crew.processes:
        process.say("begin")
    codes = [await process.ended() for process in crew.processes]
    assert codes == [0] * PROCESSES, crew.log()[-3000:]
    return [note for file in files for note in json.loads(file.read_text(encoding="utf-8"))]


def params_of(shown: weft.Materialized) -> dict[str, str]:
    return dict(shown.data["nodes"]["load"]["params"])


async def require_change(client: weft.Client, row: asyncpg.Record, moved: dict[str, asyncpg.Record]) -> None:
    """What was acknowledged is in the document, and by a patch or a merge nothing else went out of it."""
    before, after = [params_of(await client.workflows.show(row[side])) for side in ("from_id", "to_id")]
    assert after[row["message"]] == row["message"]
    if row["verb"] == "patch":
        assert after == {**before, row["message"]: row["message"]}
    if row["verb"] == "merge":
        (made,) = await client.workflows.log(row["to_id"], limit=1)
        assert made.merged_id is not None
        theirs = params_of(await client.workflows.show(made.merged_id))
        assert after.items() >= before.items()
        # The whole line was taken over, but for what had been before, and was pushed away again.
        for message in theirs.keys() - after.keys():
            assert (moved[message]["verb"], moved[message]["version"] < row["version"]) == ("merge", True)


async def test_fifty_who_write_one_tag_at_once_lose_no_move(
    crew: Crew, campaign: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with weft.Client(settings=settings_for(crew.url, crew.folder / "home", "setter")) as client:
        begun = flow("etl")
        begun["nodes"]["load"]["params"] = {}
        first = (await client.workflows.push(begun)).artifact_id
        notes = await all_act_at_once(crew, first, 20 if campaign == "long" else 4)
        rows = await conn.fetch("select * from weft.tag_move where tag = $1 and moved_by <> 'setter'", TAG)
        told = {note["message"]: note for note in notes if note.get("created")}
        moved = {row["message"]: row for row in rows if row["verb"] != "compact"}

        assert len(moved) == len([row for row in rows if row["verb"] != "compact"]), "an act was done twice"
        assert moved.keys() == told.keys()
        for message, note in told.items():
            row = moved[message]
            assert (row["moved_by"], row["verb"], row["version"]) == (note["actor"], note["verb"], note["version"])
            if note["verb"] in ("patch", "push", "merge"):
                await require_change(client, row, moved)
        assert await broken_laws(conn, DEPTH) == []
        last = await conn.fetchrow("select * from weft.tag_move where tag = $1 order by version desc limit 1", TAG)
        assert last is not None
        assert (await client.workflows.show(TAG)).artifact_id == last["to_id"]
    # A redo lands only when nobody was quicker after an undo.
    assert {note["verb"] for note in told.values()} >= {"patch", "push", "undo", "move", "merge"}
