"""Which tag a name means, and which workflow a tag is of: the same for every verb."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

import weft
from history_laws import broken_laws, everything


def flow(name: str, size: int = 1) -> dict[str, Any]:
    return {
        "workflow_id": name,
        "nodes": {
            "START": {"type": "start", "next": "fetch"},
            "fetch": {"handler": "fetch", "params": {"size": size}, "next": "END"},
            "END": {"type": "end"},
        },
    }


@pytest.mark.parametrize("verb", ["move", "push", "undelete"])
async def test_a_bare_name_means_the_main_line_to_every_verb(client: weft.Client, verb: str) -> None:
    first = await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("etl", 2))
    if verb == "move":
        await client.workflows.move("etl", first.artifact_id)
    elif verb == "push":
        await client.workflows.push(flow("etl", 3), tag="etl")
    else:
        await client.workflows.delete("etl")
        await client.workflows.undelete("etl")
    assert [tag.name for tag in await client.workflows.list()] == ["etl/main"]


async def test_a_workflows_own_name_that_is_new_becomes_its_main_line(client: weft.Client) -> None:
    assert (await client.workflows.push(flow("etl"), tag="etl")).tag == "etl/main"
    assert (await client.workflows.push(flow("etl", 2), tag="etl")).tag_version == 2
    assert [tag.name for tag in await client.workflows.list()] == ["etl/main"]


@pytest.mark.parametrize("verb", ["undo", "redo"])
async def test_a_tag_that_comes_back_from_another_workflow_is_of_its_own_again(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], verb: str
) -> None:
    await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("other"))
    await client.workflows.move("etl/main", "other/main", replaces="etl")
    await client.workflows.undo("etl")
    if verb == "redo":
        await client.workflows.redo("etl")
    assert (await client.workflows.tag("etl")).workflow_id == ("etl" if verb == "undo" else "other")
    assert await broken_laws(conn) == []
    await client.workflows.patch("etl", set={"nodes.fetch.params.size": 2})


async def test_a_tag_of_that_very_name_comes_before_the_main_line(client: weft.Client) -> None:
    await client.workflows.push(flow("etl"), tag="etl/first")
    await client.workflows.branch("etl", "etl/first")
    await client.workflows.branch("etl/main", "etl")
    await client.workflows.patch("etl/main", set={"nodes.fetch.params.size": 2})
    assert (await client.workflows.show("etl")).tag == "etl"
    assert (await client.workflows.tag("etl")).name == "etl"
    await client.workflows.patch("etl", set={"nodes.fetch.params.size": 3})
    assert (await client.workflows.show("etl/main")).data["nodes"]["fetch"]["params"]["size"] == 2


async def test_a_deleted_tag_stands_at_nothing_and_is_neither_undone_nor_deleted_again(client: weft.Client) -> None:
    await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("etl", 2))
    await client.workflows.branch("etl/other", "etl")
    assert (await client.workflows.log("etl"))[0].tags == ("etl/main", "etl/other")
    await client.workflows.delete("etl/other")
    assert (await client.workflows.log("etl"))[0].tags == ("etl/main",)
    await client.workflows.push(flow("etl", 3))
    await client.workflows.undo("etl/main")
    with pytest.raises(weft.StateConflict, match="is live"):
        await client.workflows.undelete("etl/main")
    await client.workflows.delete("etl/main")
    # There is a move to take back, and one to make again: if the tag were there.
    for act in (client.workflows.undo, client.workflows.redo, client.workflows.delete):
        with pytest.raises(weft.NotFound):
            await act("etl/main")
    await client.workflows.undelete("etl/main")
    last, before, *others = await client.workflows.moves("etl/main")
    assert (last.verb, last.from_id, before.verb, before.to_id, len(others)) == ("undelete", None, "delete", None, 4)
    assert last.to_id == before.from_id


async def test_a_push_to_a_name_without_a_slash_makes_a_line_of_the_workflow(client: weft.Client) -> None:
    for tag, made in (("main", "etl/main"), ("etl", "etl/main"), ("next", "etl/next"), ("etl/x/y", "etl/x/y")):
        pushed = await client.workflows.push(flow("etl", 1), tag=tag)
        assert pushed.tag == made
    assert (await client.workflows.push(flow("sales", 1), tag="main")).tag == "sales/main"
    # What is there is meant, whoever made it.
    await client.workflows.branch("release", "etl")
    assert (await client.workflows.push(flow("etl", 2), tag="release")).tag == "release"
    with pytest.raises(weft.TagConflict, match="belongs to workflow"):
        await client.workflows.push(flow("etl", 3), tag="sales")


# --- ids, hashes and numbers ---


async def test_a_tag_that_looks_like_an_id_is_the_tag(client: weft.Client) -> None:
    flows, name = client.workflows, "1234567890123"
    first = await flows.push(flow("etl"))
    await flows.push(flow("etl", 2))
    await flows.branch(name, first.artifact_id)
    assert ((await flows.show(name)).tag, (await flows.tag(name)).name) == (name, name)
    assert [each.id for each in await flows.log(name)] == [first.artifact_id]
    assert (await flows.diff(name, "etl")).changed.keys() == {"fetch"}
    await flows.delete(name)
    with pytest.raises(weft.NotFound, match=f"there is no version {name}"):
        await flows.show(name)


async def test_any_beginning_of_a_hash_of_seven_digits_names_it_everywhere(client: weft.Client) -> None:
    flows = client.workflows
    first = await flows.push(flow("etl"))
    second = await flows.push(flow("etl", 2), expect=first.version_hash[:7])
    for digits in (7, 12, 40, 64):
        begins = second.version_hash[:digits]
        assert (await flows.show(begins)).artifact_id == second.artifact_id
        assert (await flows.log(begins))[0].id == second.artifact_id
        for version in (first, second):
            await flows.move("etl", version.artifact_id)
        await flows.undo("etl", expect=begins)
        await flows.redo("etl", expect=first.version_hash[:digits])
        await flows.move("etl", first.version_hash[:digits], expect=begins)
        await flows.move("etl", begins)
        await flows.patch("etl", set={"nodes.fetch.params.size": 3}, expect=begins)
        await flows.move("etl", begins)
    assert (await flows.revert("etl", second.version_hash[:7])).version_hash == first.version_hash
    for few in (second.version_hash[:6], "xyz"):
        with pytest.raises(weft.InvalidInput, match=r"expect: .* 7 digits are enough"):
            await flows.undo("etl", expect=few)


async def test_a_beginning_of_several_hashes_is_told(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    flows = client.workflows
    first, second = await flows.push(flow("etl")), await flows.push(flow("etl", 2))
    alike = bytes.fromhex(first.version_hash[:20]) + bytes(22)
    await conn.execute("update weft.artifact set version_hash = $1 where id = $2", alike, second.artifact_id)
    begins = first.version_hash[:7]
    for act, field in ((flows.show(begins), "version"), (flows.undo("etl", expect=begins), "expect")):
        with pytest.raises(weft.InvalidInput, match=f"{field}: {begins} is the beginning of several hashes"):
            await act
    assert (await flows.show(first.version_hash[:30])).artifact_id == first.artifact_id


async def test_digits_that_no_hash_begins_with_are_the_number_of_a_move(client: weft.Client) -> None:
    await client.workflows.push(flow("etl"))
    await client.workflows.push(flow("etl", 2), expect="0000001")
    with pytest.raises(weft.TagConflict):
        await client.workflows.push(flow("etl", 3), expect="0000001")


async def test_whoever_moves_a_tag_is_told_what_it_is_at(client: weft.Client) -> None:
    flows = client.workflows
    first, second = await flows.push(flow("etl")), await flows.push(flow("etl", 2))
    for act, pushed in (
        (flows.undo, first),
        (flows.redo, second),
        (flows.delete, second),
        (flows.undelete, second),
        (lambda tag: flows.move(tag, first.artifact_id), first),
    ):
        tag = await act("etl")
        assert (tag.target_id, tag.target_kind, tag.target_hash) == (pushed.artifact_id, "version", pushed.version_hash)
        assert tag.deleted_at is not None or tag == await flows.tag("etl")


async def test_every_conflict_tells_the_moment_alike(client: weft.Client) -> None:
    flows = client.workflows
    await flows.push(flow("etl"))
    told = []
    for act in (flows.patch("etl", set={"name": "x"}, expect=5), flows.undo("etl", expect=5)):
        with pytest.raises(weft.TagConflict) as conflict:
            await act
        told.append((conflict.value.now["moved_at"], str(conflict.value)))
    assert told[0] == told[1]
    assert told[0][0] == (await flows.tag("etl")).moved_at


async def test_a_push_takes_no_other_workflow_s_tag_unless_it_is_named(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    flows = client.workflows
    await flows.push(flow("etl"))
    before = await everything(conn)
    for options in ({"force": True}, {"replaces": "elt"}, {}):
        with pytest.raises(weft.TagConflict, match=r"belongs to workflow 'etl'.*`--replaces etl`"):
            await flows.push(flow("other"), tag="etl/main", **options)
    assert await everything(conn) == before
    await flows.protect("etl")
    with pytest.raises(weft.TagConflict, match="is protected"):
        await flows.push(flow("other"), tag="etl/main", replaces="etl")
    assert (await flows.push(flow("other"), tag="etl/main", replaces="etl", force=True)).tag_version == 2
    assert (await flows.tag("etl/main")).workflow_id == "other"


async def test_a_deleted_tag_is_told_of_among_more_tags_than_are_listed(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    pushed = await client.workflows.push(flow("zebra"))
    await conn.execute(
        """insert into weft.tag (org_id, name, workflow_id, target_id, version, position, moved_at, moved_by)
        select 1, 'a' || n, 'zebra', $1, 1, 1, now(), 'ann' from generate_series(1, 1001) n""",
        pushed.artifact_id,
    )
    await client.workflows.delete("zebra")
    with pytest.raises(weft.NotFound, match="undelete zebra/main"):
        await client.workflows.show("zebra")


async def test_a_tag_of_another_workflow_that_is_deleted_is_free(client: weft.Client) -> None:
    await client.workflows.push(flow("etl"))
    await client.workflows.delete("etl")
    assert (await client.workflows.push(flow("other"), tag="etl/main", force=True)).tag_version == 3
