"""What is made of what: datasets, columns and states, as far as whoever asks may see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from weft.sdk.session import seeing
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.task(name="write")
    async def write(name: str, rows: list[dict[str, object]], ctx: weft.Context, **how: object) -> None:
        await ctx.dataset(name).write(rows, **how)

    @registry.task(name="derive")
    async def derive(name: str, inputs: list[str], ctx: weft.Context, columns: Any = None, value: int = 0) -> None:
        for each in inputs:
            await ctx.dataset(each).read()
        await ctx.dataset(name).write([{"total": value, "day": "a"}], columns_from=columns)

    return registry


async def run(client: weft.Client, registry: Registry, *calls: tuple[str, dict[str, object]]) -> None:
    async with weft.Worker(client=client, registry=registry):
        for handler, params in calls:
            await client.wait((await client.enqueue(handler, params)).id, timeout=60)


def names(lineage: weft.Lineage) -> list[tuple[str, int]]:
    return [(place.name, place.depth) for place in lineage.places]


def edges(lineage: weft.Lineage) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in lineage.edges]


ORDERS = ("write", {"name": "orders", "rows": [{"price": 1, "quantity": 2}]})
PEOPLE = ("write", {"name": "people", "rows": [{"id": 1}]})
DAILY = (
    "derive",
    {
        "name": "daily",
        "inputs": ["orders", "people"],
        "columns": {"total": ["orders.price", ["orders", "quantity"]], "day": ["people.id"]},
    },
)
REPORT = ("derive", {"name": "report", "inputs": ["daily"], "columns": {"total": ["daily.total"]}})


async def test_a_lineage_goes_both_ways_as_far_as_is_asked_for(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    found = await client.datasets.lineage("daily")
    assert names(found) == [("orders", -1), ("people", -1), ("daily", 0), ("report", 1)]
    assert edges(found) == [("daily", "report"), ("orders", "daily"), ("people", "daily")]
    assert (found.root, found.is_cut) == ("daily", False)
    assert found.places[2].producer == weft.Producer("@task", "derive", 0)
    up = await client.datasets.lineage("report", direction="up")
    assert names(up) == [("orders", -2), ("people", -2), ("daily", -1), ("report", 0)]
    near = await client.datasets.lineage("report", direction="up", depth=1)
    assert (names(near), near.is_cut) == ([("daily", -1), ("report", 0)], True)
    few = await client.datasets.lineage("report", limit=2)
    assert (names(few), few.is_cut) == ([("daily", -1), ("report", 0)], True)
    down = await client.datasets.lineage("orders", direction="down")
    assert names(down) == [("orders", 0), ("daily", 1), ("report", 2)]
    assert not down.is_cut
    with pytest.raises(weft.InvalidInput, match="direction"):
        await client.datasets.lineage("orders", direction="sideways")
    with pytest.raises(weft.NotFound, match="nothing"):
        await client.datasets.lineage("nothing")


async def test_columns_are_made_of_what_is_said_of_them(client: weft.Client, registry: Registry, conn: Conn) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    down = await client.datasets.lineage("orders.price", direction="down")
    assert names(down) == [("orders.price", 0), ("daily.total", 1), ("report.total", 2)]
    up = await client.datasets.lineage("report.total")
    assert names(up) == [("orders.price", -2), ("orders.quantity", -2), ("daily.total", -1), ("report.total", 0)]
    assert names(await client.datasets.lineage("report.day")) == [("report.day", 0)]
    with pytest.raises(weft.NotFound, match=r"the columns of report are total, day"):
        await client.datasets.lineage("report.nothing")
    assert await conn.fetchval("select count(*) from weft.column_edge") == 4


async def test_a_dataset_says_since_when_it_is_made_of_another_and_a_column_when_it_was_last(
    client: weft.Client, registry: Registry
) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY)

    async def at(name: str) -> list[Any]:
        return [edge.at for edge in (await client.datasets.lineage(name)).edges]

    datasets, columns = await at("daily"), await at("daily.total")
    await run(client, registry, DAILY)
    assert await at("daily") == datasets
    assert all(now > before for now, before in zip(await at("daily.total"), columns, strict=True))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"total": ["people.id"]}, "has not read people; it has read orders so far"),
        ({"total": ["orders.nothing"]}, "orders has no column 'nothing'; it has price, quantity"),
        ({"nothing": ["orders.price"]}, "there is no column 'nothing'"),
        ({"total": "orders.price"}, "must be a list"),
        ({"total": [1]}, "write 'orders.price'"),
        ({"total": ["price"]}, "names no dataset"),
    ],
)
async def test_what_is_said_of_columns_is_about_what_was_read(
    client: weft.Client, registry: Registry, conn: Conn, columns: dict[str, list[str]], problem: str
) -> None:
    await run(client, registry, ORDERS, PEOPLE)
    async with weft.Worker(client=client, registry=registry):
        task = await client.enqueue(
            "derive", {"name": "daily", "inputs": ["orders"], "columns": columns}, max_attempts=1
        )
        with pytest.raises(weft.TaskFailed, match=problem):
            await client.wait(task.id, timeout=60)
    assert await conn.fetchval("select count(*) from weft.column_edge") == 0


async def test_a_state_is_made_of_the_exact_states_that_were_read(client: weft.Client, registry: Registry) -> None:
    again = ("write", {"name": "orders", "rows": [{"price": 2, "quantity": 2}]})
    await run(client, registry, ORDERS, PEOPLE, DAILY, again, DAILY, REPORT)
    first = await client.datasets.lineage("daily@1.1")
    assert names(first) == [("orders@1.1", -1), ("people@1.1", -1), ("daily@1.1", 0)]
    second = await client.datasets.lineage("daily@1.2")
    assert names(second) == [("orders@1.2", -1), ("people@1.1", -1), ("daily@1.2", 0), ("report@1.1", 1)]
    assert edges(second) == [("daily@1.2", "report@1.1"), ("orders@1.2", "daily@1.2"), ("people@1.1", "daily@1.2")]
    assert names(await client.datasets.lineage("people@1.1", direction="down")) == [
        ("people@1.1", 0), ("daily@1.1", 1), ("daily@1.2", 1), ("report@1.1", 2),
    ]  # fmt: skip
    # What comes back is made of what it was made of.
    await client.datasets.rollback("daily@1.1")
    assert names(await client.datasets.lineage("daily@1.3", direction="up"))[:2] == [
        ("orders@1.1", -1), ("people@1.1", -1),
    ]  # fmt: skip


async def test_a_state_is_made_of_all_writes_whose_rows_are_in_it(client: weft.Client, conn: Conn) -> None:
    registry = Registry()

    @registry.task(name="write")
    async def write(day: str, ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": 1}], partition=day)

    @registry.task(name="copy")
    async def copy(day: str, ctx: weft.Context) -> None:
        found = await ctx.dataset("orders").read(partition=day)
        await ctx.dataset("copies").write(found, partition=day)

    days = ["1", "2", "3", "2"]
    await run(client, registry, *((name, {"day": day}) for day in days for name in ("write", "copy")))
    found = await client.datasets.lineage("copies@1.4", direction="up", depth=1)
    # The second day was written anew by the fourth write.
    assert names(found) == [("orders@1.1", -1), ("orders@1.3", -1), ("orders@1.4", -1), ("copies@1.4", 0)]
    assert [edge.partitions for edge in found.edges] == [("1",), ("3",), ("2",)]
    then = await client.datasets.lineage("copies@1.3", direction="up", depth=1)
    assert names(then) == [("orders@1.1", -1), ("orders@1.2", -1), ("orders@1.3", -1), ("copies@1.3", 0)]
    older = await client.datasets.lineage("copies@1.2", direction="up", depth=1)
    assert names(older) == [("orders@1.1", -1), ("orders@1.2", -1), ("copies@1.2", 0)]


async def test_what_may_not_be_seen_has_no_name_and_leads_nowhere(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    await client.roles.create("finance")
    for name in ("orders", "report", "people"):
        await client.datasets.grant(name, ["finance"])
    for root in ("orders", "orders.price", "orders@1.1"):
        with seeing(frozenset({"finance"})):
            found = await client.datasets.lineage(root)
        assert [place.name for place in found.places] == [root]
        assert (found.places[0].used_by_unseen, found.places[0].made_of_unseen) == (True, False)
        assert found.edges == ()
        assert "daily" not in str(found)
    for root in ("report", "report.total", "report@1.1"):
        with seeing(frozenset({"finance"})):
            found = await client.datasets.lineage(root)
        assert [place.name for place in found.places] == [root]
        assert (found.places[0].used_by_unseen, found.places[0].made_of_unseen) == (False, True)
        assert "daily" not in str(found)
        assert "orders" not in str(found)
    for root in ("daily", "daily.total", "daily@1.1", "daily.nothing"):
        with seeing(frozenset({"finance"})), pytest.raises(weft.NotFound, match=r"there is no dataset daily"):
            await client.datasets.lineage(root)
    # Whoever sees all of them is told of nothing that he does not.
    await client.datasets.grant("daily", ["finance"])
    for roles in (None, frozenset({"finance"})):
        for root in ("daily", "daily.total", "daily@1.1"):
            with seeing(roles):
                places = (await client.datasets.lineage(root)).places
            assert len(places) == 4
            assert not any(place.made_of_unseen or place.used_by_unseen for place in places)


async def test_another_org_has_a_lineage_of_its_own(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    await client.orgs.create("rival")
    rival = client.of_org((await client.orgs.show("rival")).id, "rival")
    with seeing(None):
        for root in ("daily", "daily.total", "daily@1.1"):
            with pytest.raises(weft.NotFound):
                await rival.datasets.lineage(root)
        await rival.datasets.create("daily")
        found = await rival.datasets.lineage("daily")
        with pytest.raises(weft.NotFound):
            await rival.datasets.lineage("daily.total")
    assert names(found) == [("daily", 0)]


async def test_circles_and_names_with_dots_are_no_trouble(client: weft.Client, registry: Registry) -> None:
    calls = [
        ("write", {"name": "a.b", "rows": [{"c.d": 1}]}),
        ("derive", {"name": "x", "inputs": ["a.b"], "columns": {"total": ["a.b.c.d"]}}),
        ("derive", {"name": "x", "inputs": ["x", "a.b"], "columns": {"total": ["x.total"], "day": [["a.b", "c.d"]]}}),
    ]
    await run(client, registry, *calls)
    found = await client.datasets.lineage("x")
    assert edges(found) == [("a.b", "x"), ("x", "x")]
    assert names(await client.datasets.lineage("a.b.c.d")) == [('"a.b".c.d', 0), ("x.day", 1), ("x.total", 1)]


async def test_what_an_attempt_says_of_columns_is_kept_with_its_write_or_not_at_all(
    client: weft.Client, conn: Conn
) -> None:
    registry = Registry()

    @registry.task(name="write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"price": 1, "tax": 1}])

    @registry.task(name="derive", retry=weft.Retry(max_attempts=2, initial_delay=0))
    async def derive(ctx: weft.Context) -> None:
        await ctx.dataset("orders").read()
        column = "tax" if ctx.attempt == 1 else "price"
        await ctx.dataset("daily").write([{"total": 1}], columns_from={"total": [f"orders.{column}"]})
        if ctx.attempt == 1:
            raise ValueError("after the write")

    await run(client, registry, ("write", {}), ("derive", {}))
    rows = await conn.fetch("select output_column, input_column from weft.column_edge")
    assert [(*row,) for row in rows] == [("total", "price")]


async def test_what_was_deleted_has_no_name_any_more_until_it_is_back(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    await client.datasets.delete("daily")
    for root in ("report", "report.total", "report@1.1"):
        found = await client.datasets.lineage(root)
        assert [place.name for place in found.places] == [root]
        assert (found.places[0].made_of_unseen, found.places[0].used_by_unseen) == (True, False)
    assert (await client.datasets.lineage("orders")).places[0].used_by_unseen
    await client.datasets.undelete("daily")
    assert names(await client.datasets.lineage("report"))[2:] == [("daily", -1), ("report", 0)]


@pytest.mark.parametrize("kept_by", ["step", "checkpoint"])
async def test_what_an_earlier_attempt_has_read_and_kept_is_what_a_write_is_made_of(
    client: weft.Client, registry: Registry, kept_by: str
) -> None:
    @registry.task(name="stepwise", retry=weft.Retry(3, initial_delay=0))
    async def stepwise(ctx: weft.Context) -> None:
        async def look() -> int:
            return int((await ctx.dataset("orders").read()).num_rows)

        if kept_by == "step":
            await ctx.step("look", look)
        elif await ctx.checkpoint.load("look") is None:
            await ctx.checkpoint.save("look", await look())
        if ctx.attempt == 1:
            # Nothing that is kept can be made of this.
            await ctx.dataset("people").read()
            raise ValueError("after the step")
        await ctx.dataset("daily").write([{"total": 1}], columns_from={"total": ["orders.price"]})

    await run(client, registry, ORDERS, PEOPLE, ("stepwise", {}))
    assert edges(await client.datasets.lineage("daily")) == [("orders", "daily")]
    states = await client.datasets.lineage("daily@1.1")
    assert edges(states) == [("orders@1.1", "daily@1.1")]
    assert edges(await client.datasets.lineage("daily.total")) == [("orders.price", "daily.total")]


async def test_what_two_attempts_have_read_is_told_once(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="stepwise", retry=weft.Retry(3, initial_delay=0))
    async def stepwise(ctx: weft.Context) -> None:
        await ctx.dataset("people").read()
        await ctx.dataset("orders").read()
        await ctx.step("look", lambda: 1)
        if ctx.attempt == 1:
            raise ValueError("after the step")
        await ctx.dataset("daily").write([{"total": 1}])

    await run(client, registry, ORDERS, PEOPLE, ("stepwise", {}))
    found = await client.datasets.lineage("daily@1.1")
    assert edges(found) == [("orders@1.1", "daily@1.1"), ("people@1.1", "daily@1.1")]
