"""What differs between two states of datasets: columns, partitions, rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import weft
from weft.sdk.session import seeing
from weft.worker.registry import Registry


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.task(name="write")
    async def write(rows: list[dict[str, Any]], ctx: weft.Context, name: str = "orders", how: Any = None) -> None:
        await ctx.dataset(name).write(rows, **(how or {}))

    @registry.task(name="write others")
    async def write_others(rows: list[dict[str, Any]], ctx: weft.Context) -> None:
        await ctx.dataset("others").write(rows)

    return registry


async def run(client: weft.Client, registry: Registry, *calls: dict[str, Any], handler: str = "write") -> None:
    async with weft.Worker(client=client, registry=registry):
        for params in calls:
            await client.wait((await client.enqueue(handler, params)).id, timeout=60)


def day(key: str, *rows: dict[str, Any], **how: Any) -> dict[str, Any]:
    return {"rows": list(rows), "how": {"partition": key, **how}}


async def test_what_the_last_write_has_changed_is_told_by_partition_and_column(
    client: weft.Client, registry: Registry
) -> None:
    await run(
        client, registry, day("1", {"id": 1}), day("2", {"id": 2}, {"id": 3}), day("2", {"id": 2, "more": "x"}),
        day("3", {"id": 4, "more": "y"}),
    )  # fmt: skip
    last = await client.datasets.diff("orders")
    assert (last.old, last.new, last.rows_before, last.rows_after) == ("orders@1.3", "orders@1.4", 2, 3)
    assert last.partitions == (weft.PartitionChange("3", "added", 0, 1),)
    assert last.columns == ()
    before = await client.datasets.diff("orders@1.3")
    assert before.partitions == (weft.PartitionChange("2", "rewritten", 2, 1),)
    assert before.columns == (weft.ColumnChange("more", None, weft.Column("more", "string")),)
    whole = await client.datasets.diff("orders@1.1", "orders@1.4")
    assert [(each.key, each.change) for each in whole.partitions] == [("2", "added"), ("3", "added")]
    assert (whole.partitions_added, whole.partitions_removed, whole.partitions_rewritten) == (2, 0, 0)
    back = await client.datasets.diff("orders@1.4", "orders@1.1")
    assert [(each.key, each.change, each.rows_before) for each in back.partitions] == [
        ("2", "removed", 1), ("3", "removed", 1),
    ]  # fmt: skip
    assert (back.rows_before, back.rows_after, back.partitions_removed) == (3, 1, 2)
    assert back.columns == (weft.ColumnChange("more", weft.Column("more", "string"), None),)
    few = await client.datasets.diff("orders@1.1", "orders@1.4", limit=1)
    assert (len(few.partitions), few.partitions_added) == (1, 2)
    same = await client.datasets.diff("orders@1.2", "orders@1.2")
    assert (same.partitions, same.columns) == ((), ())
    # Files that came back are the same files.
    await client.datasets.rollback("orders@1.2")
    assert (await client.datasets.diff("orders@1.2", "orders@1.5")).partitions == ()
    first = await client.datasets.diff("orders@1.1")
    assert (first.old, first.rows_before, first.partitions_added) == ("orders@1.0", 0, 1)
    assert [each.name for each in first.columns] == ["id"]
    assert (await client.datasets.diff_rows("orders@1.1")).added == 1
    with pytest.raises(weft.InvalidInput, match="what orders was before its first write"):
        await client.datasets.diff("orders@1.0")


async def test_versions_and_datasets_are_compared_as_well(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, {"rows": [{"id": 1, "old": 1}]}, {"rows": [{"id": "x"}], "how": {"breaking": True}})
    found = await client.datasets.diff("orders")
    assert (found.old, found.new) == ("orders@1.1", "orders@2.1")
    assert [(each.name, each.old and each.old.type, each.new and each.new.type) for each in found.columns] == [
        ("id", "int64", "string"), ("old", "int64", None),
    ]  # fmt: skip
    assert found.partitions == (weft.PartitionChange("", "rewritten", 1, 1),)
    await run(client, registry, {"rows": [{"id": "x"}, {"id": "y"}]}, handler="write others")
    other = await client.datasets.diff("orders", "others")
    assert (other.old, other.new, other.rows_after) == ("orders@2.1", "others@1.1", 2)
    rows = await client.datasets.diff_rows("orders", "others")
    assert [(row.change, row.after) for row in rows.rows] == [("added", {"id": "y"})]


async def test_rows_are_told_apart_by_their_key(client: weft.Client, registry: Registry) -> None:
    first = [{"id": 1, "number": "a"}, {"id": 2, "number": "b"}, {"id": 2, "number": "b"}, {"id": 3, "number": None}]
    second = [{"id": 1, "number": "z"}, {"id": 2, "number": "b"}, {"id": 3, "number": None}, {"id": 4, "number": "d"}]
    await run(client, registry, {"rows": first}, {"rows": second})
    found = await client.datasets.diff_rows("orders", key=["id"])
    assert [(row.change, row.before, row.after) for row in found.rows] == [
        ("changed", first[0], second[0]), ("removed", first[1], None), ("added", None, second[3]),
    ]  # fmt: skip
    assert (found.added, found.removed, found.changed, found.key) == (1, 1, 1, ("id",))
    assert (found.old, found.new, found.columns) == ("orders@1.1", "orders@1.2", ("id", "number"))
    keyless = await client.datasets.diff_rows("orders")
    assert (keyless.added, keyless.removed, keyless.changed) == (2, 2, 0)
    few = await client.datasets.diff_rows("orders", key=["id"], limit=1)
    assert (len(few.rows), few.added, few.removed, few.changed) == (1, 1, 1, 1)
    with pytest.raises(weft.InvalidInput, match="both have no column 'nothing'; they have id, number"):
        await client.datasets.diff_rows("orders", key=["nothing"])
    same = await client.datasets.diff_rows("orders@1.2", "orders@1.2", key=["id"])
    assert (same.rows, same.added) == ((), 0)


async def test_the_unique_key_tells_rows_apart_unless_another_is_named(client: weft.Client, registry: Registry) -> None:
    how = {"mode": "append", "unique_key": "id"}
    await run(client, registry, {"rows": [{"id": 1}], "how": how}, {"rows": [{"id": 1}, {"id": 2}], "how": how})
    found = await client.datasets.diff_rows("orders")
    assert (found.key, [(row.change, row.after) for row in found.rows]) == (("id",), [("added", {"id": 2})])


async def test_any_value_and_any_name_is_compared(client: weft.Client, registry: Registry) -> None:
    rows = [{'a "b"': [1, 2], "Change": {"x": 1}, "number": 2**60, "b0": 1.5}]
    changed = [{'a "b"': [1, 3], "Change": {"x": 1}, "number": 2**60, "b0": 1.5}]
    await run(client, registry, {"rows": rows}, {"rows": changed})
    (row,) = (await client.datasets.diff_rows("orders", key=["number", "b0"])).rows
    assert row.change == "changed"
    assert row.before == {**rows[0], "b0": Decimal("1.5")}
    assert row.after == {**changed[0], "b0": Decimal("1.5")}


async def test_what_is_not_seen_is_compared_with_nothing(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, {"rows": [{"id": 1}]}, {"rows": [{"id": 2}]})
    await run(client, registry, {"rows": [{"id": 1}]}, handler="write others")
    await client.roles.create("finance")
    await client.datasets.grant("orders", ["finance"])
    with seeing(frozenset({"finance"})):
        assert (await client.datasets.diff("orders")).rows_after == 1
        for pair in (("orders", "others"), ("others", "orders"), ("others", "others")):
            for call in (client.datasets.diff, client.datasets.diff_rows):
                with pytest.raises(weft.NotFound, match="others"):
                    await call(*pair)
    with seeing(frozenset()), pytest.raises(weft.NotFound):
        await client.datasets.diff("orders@1.1")
    await client.orgs.create("rival")
    rival = client.of_org((await client.orgs.show("rival")).id, "rival")
    with seeing(None), pytest.raises(weft.NotFound):
        await rival.datasets.diff("orders")
