"""Lineages and differences are told of the datasets, versions and writes that are asked for, and of no others."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import asyncpg
import pyarrow as pa
import pytest

import weft
from engine.test_lineage import DAILY, ORDERS, PEOPLE, REPORT, names, registry, run
from engine.test_turn_guards import ended
from live_scene import make_output
from weft.catalog import openlineage
from weft.sdk.session import seeing
from weft.worker.registry import Registry

__all__ = ["registry"]
Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
AGAIN = ("write", {"name": "orders", "rows": [{"price": 2, "quantity": 2}]})


async def test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this(
    client: weft.Client, registry: Registry
) -> None:
    secrets = ("write", {"name": "secrets", "rows": [{"price": 1, "total": 1}]})
    hidden = ("derive", {"name": "hidden", "inputs": ["secrets", "orders"], "columns": {"total": ["secrets.price"]}})
    mixed = [("derive", {"name": "mixed", "inputs": [name]}) for name in ("secrets", "orders")]
    lost = ("derive", {"name": "lost", "inputs": ["secrets", "hidden"], "columns": {"day": ["hidden.total"]}})
    await run(client, registry, ORDERS, PEOPLE, secrets, DAILY, REPORT, AGAIN, hidden, lost, *mixed)
    await client.roles.create("finance")
    await client.roles.create("sales")
    for name in ("people", "daily", "report", "orders", "mixed"):
        await client.datasets.grant(name, ["finance", *(["sales"] if name != "people" else [])])
    await client.datasets.delete("lost")
    for root in ("daily", "daily.total", "daily@1.1"):
        for roles in (None, frozenset({"finance"})):
            with seeing(roles):
                places = (await client.datasets.lineage(root, direction="up")).places
            assert not any(place.made_of_unseen or place.used_by_unseen for place in places)
    with seeing(frozenset({"sales"})):
        places = (await client.datasets.lineage("daily.total", direction="up")).places
    assert not any(place.made_of_unseen for place in places), "another column is made of people"
    with seeing(frozenset({"finance"})):
        places = (await client.datasets.lineage("mixed@1.2", direction="up")).places
    assert not any(place.made_of_unseen for place in places), "another write was made of secrets"
    for root in ("daily", "orders.price", "orders@1.1"):
        with seeing(frozenset({"finance"})):
            places = (await client.datasets.lineage(root, direction="down")).places
        assert not any(place.made_of_unseen or place.used_by_unseen for place in places)


async def test_what_was_made_of_it_and_deleted_has_no_name_any_more(client: weft.Client, registry: Registry) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    await client.datasets.delete("daily")
    for root in ("orders", "orders.price", "orders@1.1"):
        found = await client.datasets.lineage(root)
        assert [place.name for place in found.places] == [root]
        assert (found.places[0].made_of_unseen, found.places[0].used_by_unseen) == (False, True)


async def test_a_column_is_known_by_edges_of_its_own_dataset(
    client: weft.Client, registry: Registry, conn: Conn
) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, REPORT)
    for name in ("report.price", "people.total"):
        with pytest.raises(weft.NotFound, match="the columns of"):
            await client.datasets.lineage(name)
    # One that went from the dataset is still known by what was made of it.
    await conn.execute("""update weft.dataset_version set columns = '{"columns": []}'""")
    for name in ("orders.price", "report.total"):
        assert len((await client.datasets.lineage(name)).edges) > 0


async def test_of_a_state_it_is_told_who_made_it_and_when(client: weft.Client, registry: Registry, conn: Conn) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, AGAIN, DAILY)
    for number, row in enumerate(await conn.fetch("select version_id, number from weft.dataset_write")):
        await conn.execute(
            "update weft.dataset_write set job_id = $3, written_at = $4 where version_id = $1 and number = $2",
            *row, 7 + number, datetime.fromisoformat(f"2026-11-{1 + number:02}T00:00:00+00:00"),
        )  # fmt: skip
    told = await conn.fetch(
        """select d.name || '@' || v.number || '.' || w.number as name, w.job_id, w.written_at from weft.dataset_write w
             join weft.dataset_version v on v.id = w.version_id join weft.dataset d on d.id = v.dataset_id"""
    )
    wanted = {row["name"]: (row["job_id"], row["written_at"]) for row in told}
    for root in wanted:
        found = await client.datasets.lineage(root)
        assert {place.name: (place.job_id, place.written_at) for place in found.places} == {
            place.name: wanted[place.name] for place in found.places
        }


async def test_a_write_that_brought_no_rows_is_made_of_what_was_read_for_it(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="empty")
    async def empty(ctx: weft.Context) -> None:
        await ctx.dataset("orders").read()
        await ctx.dataset("none").write(pa.table({"id": pa.array([], pa.int64())}))

    await run(client, registry, ORDERS, ("empty", {}))
    assert names(await client.datasets.lineage("none@1.1")) == [("orders@1.1", -1), ("none@1.1", 0)]


async def test_only_files_of_the_state_itself_are_too_many(client: weft.Client, registry: Registry, conn: Conn) -> None:
    await run(client, registry, ORDERS, PEOPLE, DAILY, DAILY)
    many = """insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
              select d.current_id, 1, '', 'x' || n, 1, 1, 2 from weft.dataset d cross join generate_series(1, 501) n
              where d.name = $1"""

    async def is_cut(name: str) -> bool:
        return (await client.datasets.lineage(name, direction="up", depth=1)).is_cut

    await conn.execute(many, "people")
    assert [await is_cut(name) for name in ("daily@1.1", "daily@1.2")] == [False, False]
    await conn.execute(many, "daily")
    assert [await is_cut(name) for name in ("daily@1.1", "daily@1.2")] == [False, True]


async def _file(conn: Conn, version: int, key: str, rows: int, added_by: int, removed_by: int | None = None) -> None:
    await conn.execute(
        """insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by, removed_by)
           values ($1, 1, $2, weft.next_id()::text, $3, 1, $4, $5)""", version, key, rows, added_by, removed_by,
    )  # fmt: skip


async def _write(conn: Conn, version: int, number: int, columns: str | None = None, rows: int = 0) -> None:
    await conn.execute(
        """insert into weft.dataset_write (version_id, number, org_id, mode, partitions, rows, bytes, rows_removed,
             columns, written_at, actor) values ($1, $2, 1, 'append', 1, $4, 1, 0, $3, weft.now(), 'ann')""",
        version, number, columns, rows,
    )  # fmt: skip
    await conn.execute(
        "update weft.dataset_version set last_write = $2, rows = rows + $3 where id = $1", version, number, rows
    )


async def _version(conn: Conn, dataset: int, number: int) -> int:
    return int(
        await conn.fetchval(
            """insert into weft.dataset_version (org_id, dataset_id, number, config_hash, location, actor)
               values (1, $1, $2, $2::int::text, '1/' || $2::int, 'ann') returning id""", dataset, number,
        )
    )  # fmt: skip


def _told(diff: weft.DatasetDiff) -> list[tuple[str, str, int, int]]:
    return [(each.key, each.change, each.rows_before, each.rows_after) for each in diff.partitions]


async def test_states_of_one_version_differ_by_the_files_that_stood_then(client: weft.Client, conn: Conn) -> None:
    dataset, version = await make_output(conn, "orders", "@task", "note")
    other = await _version(conn, dataset, 2)
    for each in (version, other):
        for number in range(1, 5):
            await _write(conn, each, number)
    # Three times anew, of which the second to the third is asked for; and what has stood all the time.
    for key, rows, added_by, removed_by in (
        ("a", 1, 1, 2), ("a", 2, 2, 3), ("a", 4, 3, 4), ("a", 8, 4, None), ("b", 16, 1, None), ("c", 32, 3, 4),
        ("d", 64, 1, 3), ("e", 128, 4, None), ("f", 256, 1, 2),
    ):  # fmt: skip
        await _file(conn, version, key, rows, added_by, removed_by)
    for key in "abcdefg":
        await _file(conn, other, key, 512, 1, 3)
        await _file(conn, other, key, 1024, 3)
    wanted = [("a", "rewritten", 2, 4), ("c", "added", 0, 32), ("d", "removed", 64, 0)]
    found = await client.datasets.diff("orders@1.2", "orders@1.3")
    assert _told(found) == wanted
    assert (found.partitions_added, found.partitions_removed, found.partitions_rewritten) == (1, 1, 1)


async def test_states_of_two_versions_differ_by_the_files_that_stood_then(client: weft.Client, conn: Conn) -> None:
    dataset, version = await make_output(conn, "orders", "@task", "note")
    other = await _version(conn, dataset, 2)
    third = await _version(conn, dataset, 3)
    for each in (version, other):
        for number in (1, 2, 3):
            await _write(conn, each, number)
        for rows, added_by, removed_by in ((1, 1, 2), (2, 2, 3), (4, 3, None)):
            await _file(conn, each, "a", rows * (1 if each == version else 10), added_by, removed_by)
    await _file(conn, third, "z", 1, 1)
    assert _told(await client.datasets.diff("orders@1.2", "orders@2.2")) == [("a", "rewritten", 2, 20)]
    assert _told(await client.datasets.diff("orders@1.1", "orders@2.3")) == [("a", "rewritten", 1, 40)]


async def test_rows_and_columns_are_those_of_the_state_itself(client: weft.Client, conn: Conn) -> None:
    def columns(*names: str) -> str:
        shown = ", ".join(f'{{"name": "{name}", "type": "int64", "nullable": true}}' for name in names)
        return f'{{"columns": [{shown}]}}'

    dataset, version = await make_output(conn, "orders", "@task", "note")
    other = await _version(conn, dataset, 2)
    for each, first in ((version, "a"), (other, "z")):
        await _write(conn, each, 1, columns(first), 1)
        await _write(conn, each, 2, None, 2)
        await _write(conn, each, 3, columns(first, "more"), 4)
    found = await client.datasets.diff("orders@1.1", "orders@1.3")
    assert [each.name for each in found.columns] == ["more"]
    assert (found.rows_before, found.rows_after) == (1, 7)
    assert (await client.datasets.diff("orders@1.1", "orders@1.2")).columns == ()


async def test_before_the_first_write_comes_the_last_version_that_was_written_and_is_there(
    client: weft.Client, conn: Conn
) -> None:
    elsewhere, written = await make_output(conn, "others", "@task", "other")
    await _write(conn, written, 1)
    dataset, version = await make_output(conn, "orders", "@task", "note")
    versions = [version, *[await _version(conn, dataset, number) for number in (2, 3, 4, 5)]]
    await conn.execute("update weft.dataset_version set number = 3 where id = $1", written)
    for each in (versions[0], versions[1], versions[3], versions[4]):
        await _write(conn, each, 1)

    async def before() -> str:
        return (await client.datasets.diff("orders@4.1")).old

    # The third was begun, and never written.
    assert await before() == "orders@2.1"
    await conn.execute("update weft.dataset_version set collected_at = weft.now() where id = $1", versions[1])
    assert await before() == "orders@1.1"
    await conn.execute("delete from weft.dataset where id = $1", elsewhere)


async def test_who_follows_lineage_is_told_of_the_write_itself(client: weft.Client, conn: Conn) -> None:
    await client.orgs.create("acme")
    # It has made nothing of all this.
    await conn.execute("update weft.task_done set claimed_at = 'epoch' where id = $1", await ended(conn))
    made: dict[str, tuple[int, int]] = {}
    for place, name in enumerate(("orders", "others", "rates")):
        made[name] = await make_output(conn, name, "@task", name, place)
        for number in (1, 2):
            await _write(conn, made[name][1], number, rows=10 * (1 + place) + number)
            await conn.execute(
                """insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id,
                     input_write) select $1, $2, 1, 1, d.id, d.current_id, $2 from weft.dataset d where d.name = $3""",
                made[name][1], number, "rates" if name == "rates" else "orders" if number == 1 else "others",
            )  # fmt: skip
    await _write(conn, await _version(conn, made["others"][0], 2), 1, rows=99)
    await conn.execute(
        """insert into weft.column_edge (org_id, output_id, output_column, input_id, input_column, last_at)
           select 1, o.id, 'total', i.id, i.name || '.x', weft.now() from weft.dataset o cross join weft.dataset i"""
    )
    total = '{"columns": [{"name": "total", "type": "int64", "nullable": true}]}'
    await conn.execute("update weft.dataset_version set columns = $1", total)

    async def told(name: str, write: int, version: int = 1) -> tuple[str, int, list[str], list[str]]:
        said = {"dataset": name, "version": version, "write": write}
        begun, done = await openlineage.events_of(conn, "default", said, "weft")
        assert begun["eventTime"] == done["eventTime"], "nobody knows when it has begun"
        [output] = done["outputs"]
        facets = output["facets"].get("columnLineage", {"fields": {}})["fields"]
        origins = [each["name"] for fields in facets.values() for each in fields["inputFields"]]
        return done["job"]["name"], output["outputFacets"]["outputStatistics"]["rowCount"], [
            each["name"] for each in done["inputs"]
        ], origins  # fmt: skip

    assert await told("orders", 1) == ("orders", 11, ["orders"], ["orders"])
    assert await told("others", 1) == ("others", 21, ["orders"], ["orders"])
    assert await told("others", 2) == ("others", 22, ["others"], ["others"])
    assert await told("others", 1, version=2) == ("others", 99, [], [])
    with pytest.raises(weft.InvalidInput, match=r"there is no write orders@1\.1"):
        await openlineage.events_of(conn, "acme", {"dataset": "orders", "version": 1, "write": 1}, "weft")
    told_of = '{"dataset": "orders", "version": 1, "write": 1}'
    # Anybody may send an event of that name.
    for name, payload, is_told in (
        ("dataset.written", told_of, True),
        ("order.created", told_of, False),
        ("dataset.written", "[]", False),
        ("dataset.written", told_of.replace('"orders"', "1"), False),
        ("dataset.written", told_of.replace("1", '"1"'), False),
    ):
        sent = await conn.fetchval(
            "insert into weft.event (org_id, name, payload, actor) values (1, $1, $2, 'ann') returning id",
            name,
            payload,
        )
        assert (await openlineage.note_of(conn, sent) is not None) is is_told
