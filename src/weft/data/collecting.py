"""Removes what nobody sees of datasets: of attempts that came to nothing, of states and versions long past."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from weft.catalog.dataset_rows import KIND, read_path
from weft.catalog.dataset_rows import SQL as ROWS
from weft.data.own_thread import in_own_thread
from weft.db.blob_address import data_address
from weft.db.statements import Statements
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.data.storage import Storage
    from weft.db.database import Database

SQL = Statements("weft.catalog", "sql/collecting.sql")
# A process that has lost its task may not know it yet, and write on.
GRACE = timedelta(days=1)
BATCH = 1000


class DatasetCollector(Service):
    """Removes files of datasets; first nobody may see them any more, then they go, then nothing tells of them.

    Wherever it is killed, the next one goes on from there. It looks at all orgs, or at one.
    """

    name = "dataset-collector"
    interval = 3600.0

    def __init__(
        self, database: Database, settings: Settings, grace: timedelta = GRACE, *, retention: timedelta | None = None,
        org_id: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._database = database
        self._root = str(data_address(settings))
        self._retention = settings.dataset_retention if retention is None else retention
        self._grace = grace
        self._org_id = org_id
        self._storage: Storage | None = None

    async def run_once(self) -> int:
        """Remove one batch of each kind; return how many."""
        gone = await self._drop_abandoned()
        past = self._retention, self._org_id
        await self._database.run(lambda conn: conn.execute(SQL.close_states, *past))
        gone += await self._drop_removed()
        await self._database.run(lambda conn: conn.execute(SQL.close_versions, *past))
        await self._database.run(lambda conn: conn.execute(SQL.close_deleted, *past))
        gone += await self._drop_versions()
        await self._database.run(lambda conn: conn.execute(SQL.forget_datasets, *past))
        return gone

    async def _drop_abandoned(self) -> int:
        rows = await self._database.read(lambda conn: conn.fetch(SQL.abandoned, self._grace, BATCH, self._org_id))
        for row in rows:
            if row["kind"] == KIND:
                await self._drop_rows(row["version_id"], row["id"], None)
                continue
            names = await in_own_thread((await self._store()).beginning_with, row["location"], f"{row['id']}-")
            await in_own_thread((await self._store()).remove, row["location"], names)
        ids = [row["id"] for row in rows]
        await self._database.run(lambda conn: conn.execute(SQL.forget_writes, ids))
        return len(ids)

    async def _drop_removed(self) -> int:
        rows = await self._database.read(lambda conn: conn.fetch(SQL.removed_files, BATCH, self._org_id))
        for row in rows:
            # What others have written is theirs to remove.
            if not row["is_last"] or row["is_outside"]:
                continue
            if row["kind"] == KIND:
                await self._drop_rows(row["version_id"], *read_path(row["path"]))
            else:
                await in_own_thread((await self._store()).remove, row["location"], [row["path"]])
        versions, ids = [row["version_id"] for row in rows], [row["id"] for row in rows]
        await self._database.run(lambda conn: conn.execute(SQL.forget_files, versions, ids))
        return len(rows)

    async def _drop_versions(self) -> int:
        gone = 0
        for version in await self._database.read(lambda conn: conn.fetch(SQL.closed_versions, BATCH, self._org_id)):
            id = version["id"]
            if version["kind"] == KIND:
                await self._database.run(lambda conn, id=id: conn.execute(ROWS.drop_table, id))  # type: ignore[misc]
            is_ours = version["kind"] != KIND and not version["is_outside"]
            while rows := await self._database.read(lambda conn, id=id: conn.fetch(SQL.files_of, id, BATCH)):  # type: ignore[misc]
                if is_ours:
                    await in_own_thread(
                        (await self._store()).remove, version["location"], [row["path"] for row in rows]
                    )
                ids = [row["id"] for row in rows]
                await self._database.run(
                    lambda conn, id=id, ids=ids: conn.execute(SQL.forget_files, [id] * len(ids), ids)  # type: ignore[misc]
                )
                gone += len(rows)
            await self._database.run(lambda conn, id=id: conn.execute(SQL.forget_version, id))  # type: ignore[misc]
        return gone

    async def _drop_rows(self, version_id: int, write_id: int, number: int | None) -> None:
        await self._database.run(lambda conn: conn.execute(ROWS.drop, version_id, write_id, number))

    async def _store(self) -> Storage:
        if self._storage is None:
            from weft.data.storage import Storage

            self._storage = await in_own_thread(Storage.at, self._root)
        return self._storage
