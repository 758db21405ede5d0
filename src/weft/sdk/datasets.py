"""The part of the client with which datasets are looked at, shown to others, kept, and taken back to what they were."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from weft.catalog import dataset_diff, dataset_keeping, dataset_reading, dataset_versions, datasets, lineage
from weft.catalog.dataset_diff import DatasetDiff
from weft.catalog.dataset_reading import DatasetState, Partition, read_name
from weft.catalog.dataset_versions import DatasetVersion, DatasetWrite
from weft.catalog.datasets import Dataset, Kind, PartitionBy, Sees
from weft.catalog.lineage import DEEPEST, MOST_PLACES, Direction, Lineage
from weft.core.checks import check_moment, check_number, check_span, check_word
from weft.live import past
from weft.live.past import NOTHING, CollectedData
from weft.queue import audit
from weft.queue.audit import AuditVerb
from weft.sdk.querying import answered
from weft.sdk.row_diff import RowDiff, RowQuery

if TYPE_CHECKING:
    from weft.sdk.client import Client


class QueryAnswer(Protocol):
    """The answer to a query, as `Datasets.query` lends it: iterate over its bytes; nothing is computed ahead."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the answer piece by piece."""
        ...

    async def read(self) -> bytes:
        """Return the whole answer; for small ones."""
        ...

    def records(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of an answer in JSON, one by one; numbers are as exact as they were."""
        ...

    def cancel(self) -> None:
        """End the query; whoever reads its answer gets `QueryCancelled`."""
        ...


def sample_query(name: str, limit: int) -> str:
    """Return the query for a few rows of a dataset."""
    named = str(read_name(name)).replace('"', '""')
    return f'select * from "{named}" limit {check_number(limit, "limit", 1, 1000)}'


class Datasets:
    """What is done with datasets; `Client.datasets`. A name may say which state: ``orders@3``, ``orders@3.12``."""

    def __init__(self, session: Client) -> None:
        self._session = session

    @property
    def _sees(self) -> Sees:
        """The roles by which whoever acts sees datasets; None for one who sees all."""
        return self._session.sees

    async def create(self, name: str, *, description: str | None = None, storage: str = "parquet") -> bool:
        """Make a dataset before anything is written into it; False when there is one of that name.

        One that is not there is made by the first write, in files. With ``storage="postgres"`` its rows are kept in a
        table of the database. Example::

            await client.datasets.create("orders", description="What was ordered, by day.")
        """
        kind = check_word(storage, "storage", Kind)
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: datasets.create(conn, org_id, name, description, {"kind": kind}, actor)
        )

    async def register(
        self, name: str, address: str, *, glob: str = "**/*.parquet", partition_by: str = "none",
        range_start: int | None = None, range_end: int | None = None, replace: bool = False, breaking: bool = False,
    ) -> DatasetState:  # fmt: skip
        """Register Parquet files that others have written, when they are complete, as a version that readers see.

        ``address`` is a folder or ``s3://bucket/prefix`` beneath one of `WEFT_DATA_OUTSIDE`. The files that match
        ``glob`` now are those of the version, and no others that come later; with ``partition_by="hive"`` the values in
        ``day=2026-11-14/`` are a column. The same registration is the same version: with ``replace`` its files are
        looked for again. Columns by which readers would stumble are refused, unless ``breaking``. Example::

            await client.datasets.register("weather", "s3://weather-archive/2026/", partition_by="hive")
        """
        from weft.sdk.registering import registered

        check_word(partition_by, "partition_by", PartitionBy)
        return await registered(
            self._session, name, address, glob, partition_by, (range_start, range_end), replace=replace,
            breaking=breaking,
        )  # fmt: skip

    async def hand_over(self, name: str, workflow: str, node: str) -> Dataset:
        """Let another node of a workflow write a dataset from here on, instead of the one that did so far.

        Of tasks without a job the workflow is ``@task``, and the node their handler. Raises `DatasetBusy` while a task
        runs that writes it. Example::

            await client.datasets.hand_over("orders", "etl-2", "load")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: dataset_keeping.hand_over(conn, org_id, name, workflow, node, actor)
        )

    async def delete(self, name: str) -> Dataset:
        """Let a dataset be there no more, and return what it was; `undelete` brings it back within the retention.

        Raises `DatasetBusy` while a task runs that writes it. Example::

            await client.datasets.delete("orders-old")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: dataset_keeping.delete(conn, org_id, name, actor))

    async def undelete(self, name: str) -> Dataset:
        """Bring back the dataset of a name that was deleted last, with all it had.

        Example::

            await client.datasets.undelete("orders-old")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: dataset_keeping.undelete(conn, org_id, name, actor))

    async def show(self, name: str) -> Dataset:
        """Return a dataset, with what its current version has.

        Example::

            print((await client.datasets.show("orders")).rows)
        """
        org_id, sees = await self._session.org_id(), self._sees
        return await self._session.database.read(lambda conn: datasets.show(conn, org_id, name, sees))

    async def list(self, *, after: str = "", limit: int = 100) -> builtins.list[Dataset]:
        """Return datasets by name; ``after`` is the last name of the page before.

        Example::

            for each in await client.datasets.list():
                print(each.name, each.rows, each.written_at)
        """
        check_number(limit, "limit", 1, 1000)
        org_id, sees = await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: datasets.list_datasets(conn, org_id, after=after, limit=limit, sees=sees)
        )

    async def describe(self, name: str, description: str) -> Dataset:
        """Say what a dataset is about.

        Example::

            await client.datasets.describe("orders", "What was ordered, by day.")
        """
        org_id, actor, sees = await self._session.org_id(), self._session.actor, self._sees
        return await self._session.database.run(
            lambda conn: datasets.describe(conn, org_id, name, description, actor, sees)
        )

    async def grant(self, name: str, roles: Iterable[str]) -> Dataset:
        """Say which roles of the org see a dataset, instead of those that do now; admins do in any case.

        Example::

            await client.datasets.grant("orders", ["finance"])
        """
        org_id, actor, wanted = await self._session.org_id(), self._session.actor, builtins.list(roles)
        return await self._session.database.run(lambda conn: datasets.set_read_roles(conn, org_id, name, wanted, actor))

    async def state(self, name: str, *, as_of: datetime | None = None) -> DatasetState:
        """Return the state of a dataset that a name means, or that it had at a time.

        Example::

            print(await client.datasets.state("orders", as_of=yesterday))
        """
        named, moment = read_name(name), None if as_of is None else check_moment(as_of, "as_of")
        org_id, sees = await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: dataset_reading.state_of(conn, org_id, named, as_of=moment, sees=sees)
        )

    async def versions(
        self, name: str, *, before: int | None = None, limit: int = 100
    ) -> builtins.list[DatasetVersion]:
        """Return the versions of a dataset, the newest first; ``before`` is the last number of the page before.

        Example::

            for each in await client.datasets.versions("orders"):
                print(each.number, each.is_current, each.rows)
        """
        check_number(limit, "limit", 1, 1000)
        org_id, sees = await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: dataset_versions.list_versions(conn, org_id, name, before=before, limit=limit, sees=sees)
        )

    async def writes(self, name: str, *, before: int | None = None, limit: int = 100) -> builtins.list[DatasetWrite]:
        """Return what was written into a version, the current one unless named, the newest first.

        Example::

            for each in await client.datasets.writes("orders"):
                print(each.number, each.mode, each.rows, each.job_id)
        """
        check_number(limit, "limit", 1, 1000)
        named, org_id, sees = read_name(name), await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: dataset_versions.list_writes(conn, org_id, named, before=before, limit=limit, sees=sees)
        )

    async def partitions(
        self, name: str, *, after: str | None = None, limit: int = 100, latest: bool = False
    ) -> builtins.list[Partition]:
        """Return the partitions of a version by key, or with ``latest`` those that were written last.

        Rows that are in no partition have the key ``""``.

        Example::

            for each in await client.datasets.partitions("orders", latest=True, limit=5):
                print(each.key, each.rows, each.written_at)
        """
        check_number(limit, "limit", 1, 1000)
        named, org_id, sees = read_name(name), await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: dataset_reading.list_partitions(
                conn, org_id, named, after=after, limit=limit, latest=latest, sees=sees
            )
        )

    def query(
        self, sql: str, *, format: str = "json", as_of: datetime | None = None
    ) -> AbstractAsyncContextManager[QueryAnswer]:
        """Run a query over datasets, by name: ``orders``, ``"orders@3"``, ``"orders@3.12"``; or all as of a time.

        Its answer comes piece by piece, as ``json`` (a row a line), ``csv``, ``arrow`` or ``parquet``; leaving the
        block ends it. Whoever runs it sees the datasets that he may see and nothing else of the machine. Raises
        `InvalidQuery`, `QueryLimitReached`, `QueryCrashed`. Example::

            async with client.datasets.query("select day, sum(price) as total from orders group by day") as answer:
                async for row in answer.records():
                    print(row["day"], row["total"])
        """
        moment = None if as_of is None else check_moment(as_of, "as_of")
        return answered(self._session, sql, format, moment)

    async def sample(self, name: str, *, limit: int = 10) -> builtins.list[dict[str, Any]]:
        """Return a few rows of a dataset.

        Example::

            print(await client.datasets.sample("orders", limit=3))
        """
        async with self.query(sample_query(name, limit)) as answer:
            return [row async for row in answer.records()]

    async def lineage(self, name: str, *, direction: str = "both", depth: int = 5, limit: int = 200) -> Lineage:
        """Return what a dataset is made of, and what is made of it; or the same of a column, or of one state.

        ``orders.price`` is a column, of which is known what those who write say of it; ``orders@3.12`` a state, of
        which the exact states are told that were read for it. ``direction`` is ``up`` for what it is made of, ``down``,
        or ``both``; ``depth`` how many steps it goes, and ``limit`` how many places are told at most: ``is_cut`` says
        that there are more. Datasets that may not be seen are left out. Example::

            lineage = await client.datasets.lineage("orders.price", direction="down")
            print([place.name for place in lineage.places])
        """
        way = Direction(check_word(direction, "direction", Direction))
        check_number(depth, "depth", 1, DEEPEST)
        check_number(limit, "limit", 1, MOST_PLACES)
        org_id, sees = await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: lineage.trace(conn, org_id, name, direction=way, depth=depth, limit=limit, sees=sees)
        )

    async def diff(self, name: str, other: str | None = None, *, limit: int = 100) -> DatasetDiff:
        """Return what differs from one state to another: in columns, in partitions, in how many rows there are.

        With one alone it is compared with the one before it: ``orders`` is what the last write has changed. ``limit``
        is how many partitions are told at most. Example::

            diff = await client.datasets.diff("orders@1.3", "orders@1.7")
            print(diff.rows_after - diff.rows_before, [each.key for each in diff.partitions])
        """
        check_number(limit, "limit", 1, 1000)
        first, second = read_name(name), None if other is None else read_name(other)
        new, old = (first, None) if second is None else (second, first)
        org_id, sees = await self._session.org_id(), self._sees
        return await self._session.database.read(
            lambda conn: dataset_diff.diff(conn, org_id, new, old, limit=limit, sees=sees)
        )

    async def diff_rows(
        self, name: str, other: str | None = None, *, key: Sequence[str] | None = None, limit: int = 100
    ) -> RowDiff:
        """Return the rows that differ from one state to another, in the columns that both have.

        Rows are told apart by ``key``, by default the unique key of the dataset: one that is in both with other values
        is changed; without a key it is removed and added. It runs as a query, within the limits of one. Example::

            for row in (await client.datasets.diff_rows("orders", key=["id"])).rows:
                print(row.change, row.before, row.after)
        """
        check_number(limit, "limit", 1, 1000)
        found = await self.diff(name, other, limit=1)
        asked = RowQuery.of(found, key, limit)
        async with self.query(asked.sql) as answer:
            return asked.answer([row async for row in answer.records()])

    async def rollback(self, name: str) -> DatasetState:
        """Let readers see an earlier state: ``orders@2`` is another version, ``orders@2.7`` what it was after a write.

        Nothing is lost: what was seen before can be gone back to in the same way. Example::

            await client.datasets.rollback("orders@2.7")
        """
        named, org_id, actor, sees = read_name(name), await self._session.org_id(), self._session.actor, self._sees
        return await self._session.database.run(
            lambda conn: dataset_versions.roll_back(conn, org_id, named, actor, sees)
        )

    async def gc(
        self, grace: timedelta | float | None = None, *, dry_run: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> CollectedData:  # fmt: skip
        """Remove versions and files that nothing points to and nobody has seen for ``grace``; with ``dry_run`` look.

        Workers do so every hour with `WEFT_DATASET_RETENTION`, which is meant by default. What is current, and what a
        version of a live DAG has that can be gone back to, stays. Whoever reads an older state meanwhile may find it
        gone. Example::

            found = await client.datasets.gc(timedelta(days=2), dry_run=True)
            print(found.bytes, found.versions)
        """
        database, org_id, actor = self._session.database, await self._session.org_id(), self._session.actor
        retention = database.settings.dataset_retention if grace is None else check_span(grace, "grace")
        if dry_run:
            return await past.look(database, org_id, retention)
        found = await past.collect(database, org_id, retention, on_progress)
        if found != NOTHING:
            told = {"versions": len(found.versions), "datasets": found.datasets, "files": found.files}
            await database.run(
                lambda conn: audit.record_named(conn, org_id, actor, AuditVerb.PURGE, "dataset", None, told)
            )
        return found
