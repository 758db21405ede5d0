"""Lists of what is kept of definitions: all of it, page by page, each read by an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from history_scene import FLOW

import weft
from weft.core.settings import Settings
from weft.history.artifacts import SQL

if TYPE_CHECKING:
    from weft.db.database import type_Connection as Conn


async def test_what_no_tag_leads_to_is_still_listed_and_pages_go_on(settings: Settings) -> None:
    async with weft.Client(settings=settings) as client:
        await _check_lists(client.workflows)


async def _check_lists(w: weft.Workflows) -> None:
    first = await w.push({"workflow_id": "other", "nodes": FLOW["nodes"]})
    for size in (1, 2):
        await w.push(FLOW | {"description": f"text {size}"}, tag="etl/main")
    lost = (await w.tag("etl")).target_id
    await w.undo("etl")
    await w.push(FLOW | {"description": "text 3"}, tag="etl/main")
    assert lost not in [each.id for each in await w.log("etl")]
    kept = await w.artifacts()
    assert [each.id for each in kept] == sorted((each.id for each in kept), reverse=True)
    assert {lost, first.artifact_id} < {each.id for each in kept}
    pages = await w.artifacts(limit=1), await w.artifacts(before=kept[0].id, limit=10)
    assert [*pages[0], *pages[1]] == kept
    assert await w.artifacts(workflow_id="other") == [await w.artifact(first.artifact_id)] == [kept[-1]]
    assert kept[-1].tags == ("other/main",)
    with pytest.raises(weft.NotFound):
        await w.artifact(12)


async def test_lists_of_artifacts_read_what_they_show(conn: Conn) -> None:
    # What another way would cost depends on how much there is; without an index it would be taken all the same.
    await conn.execute("set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off")
    undone = conn.transaction()
    await undone.start()
    # Nor by the ids of everybody, nor those of a workflow by all of an org: where there are few, that costs no more.
    await conn.execute("alter table weft.artifact drop constraint artifact_pkey cascade")
    for statement, more, other in (
        (SQL.list, (), "artifact_list_of_workflow"),
        (SQL.list_of_workflow, ("etl",), "artifact_list"),
    ):
        kept = conn.transaction()
        await kept.start()
        await conn.execute(f"drop index weft.{other}")
        rows = await conn.fetch(f"explain {statement}", 1, 2**62, 50, *more)
        plan = "\n".join(row[0] for row in rows)
        assert "Index Scan Backward" in plan, plan
        assert not {"Sort", "Filter:"} & set(plan.split()), plan
        await kept.rollback()
    await undone.rollback()
