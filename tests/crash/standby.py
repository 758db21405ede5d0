"""Servers of which each follows the one before it, and takes its place when that one is killed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from crash.harness import until
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded
from weft.db.database import CONNECTION_ERRORS
from weft.db.embedded_config import write_config
from weft.db.embedded_layout import layout_of, prepare_home, prepare_socket_dir
from weft.db.embedded_postmaster import launch
from weft.db.embedded_programs import MAJOR, run_program, usable_programs


class Cluster:
    """A primary and at most one standby; an address for clients that leads to whichever may be written to."""

    def __init__(self, folder: Path, failovers: int) -> None:
        self._members = [Settings(home=folder / str(n)) for n in range(failovers + 1)]
        self._primary = 0
        hosts = ",".join(str(layout_of(member).socket_dir) for member in self._members)
        self.url = (
            f"postgresql://{embedded.SUPERUSER}@/{embedded.DATABASE}?host={hosts}&target_session_attrs=read-write"
        )

    def _address(self, n: int) -> str:
        return embedded.database_url(layout_of(self._members[n]).socket_dir)

    async def start(self) -> None:
        """Start the first primary."""
        await embedded.ensure_running(self._members[0])

    async def add_standby(self, *, is_synchronous: bool) -> None:
        """Copy the primary while it works, and let the copy follow it."""
        primary, standby = (layout_of(self._members[self._primary + n]) for n in (0, 1))
        prepare_home(standby)
        standby.data_dir.mkdir(mode=0o700)
        if standby.account:
            os.chown(standby.data_dir, standby.account.uid, standby.account.gid)
        programs = await usable_programs(standby, MAJOR)
        source = f"host={primary.socket_dir} user={embedded.SUPERUSER} application_name=standby"
        copied = await run_program(
            [
                programs.path("pg_basebackup"),
                "-d",
                source,
                "-D",
                str(standby.data_dir),
                "-R",
                "-c",
                "fast",
                "--no-sync",
            ],
            account=standby.account,
        )
        assert copied.code == 0, copied.complaint
        prepare_socket_dir(standby)
        write_config(standby, programs.version)
        await launch(standby, programs)
        conn = await asyncpg.connect(self._address(self._primary))
        try:
            names = "standby" if is_synchronous else ""
            await conn.execute(f"alter system set synchronous_standby_names = '{names}'")
            await conn.execute("select pg_reload_conf()")
            wanted = "sync" if is_synchronous else "async"
            await until(
                lambda: conn.fetchval("select true from pg_stat_replication where sync_state = $1", wanted),
                f"the standby follows, {wanted}",
            )
        finally:
            await conn.close()

    async def until_standby_knows(self, task_id: int) -> None:
        """Return when the standby has heard that a task runs."""
        conn = await self._standby()
        running = "select state = 'running' from weft.task where id = $1"
        await until(lambda: conn.fetchval(running, task_id), "the standby has heard of it")
        await conn.close()

    async def cut_off_standby(self) -> None:
        """Let the standby hear of nothing any more."""
        conn = await self._standby()
        await conn.execute("alter system set primary_conninfo = ''")
        await conn.execute("select pg_reload_conf()")
        await until(
            lambda: conn.fetchval("select not exists (select 1 from pg_stat_wal_receiver)"), "the standby is cut off"
        )
        await conn.close()

    async def fail_over(self) -> int:
        """Kill the primary, without a checkpoint or a farewell; promote its standby; return when it died."""
        assert await embedded.stop(self._members[self._primary], mode="immediate")
        died_at = time.monotonic_ns()
        conn = await self._standby()
        assert await conn.fetchval("select pg_promote()")
        # Nobody follows the new primary yet: its commits wait for nobody.
        await conn.execute("alter system set synchronous_standby_names = ''")
        await conn.execute("select pg_reload_conf()")
        await conn.close()
        self._primary += 1
        return died_at

    async def _standby(self) -> asyncpg.Connection[asyncpg.Record]:
        async def connected() -> asyncpg.Connection[asyncpg.Record] | None:
            try:
                return await asyncpg.connect(self._address(self._primary + 1))
            except CONNECTION_ERRORS:
                return None

        conn: asyncpg.Connection[asyncpg.Record] = await until(connected, "the standby takes connections")
        return conn

    async def stop(self) -> None:
        """End whichever server lives."""
        for member in self._members:
            if layout_of(member).data_dir.exists():
                await embedded.stop(member, mode="immediate")


@asynccontextmanager
async def cluster_of(failovers: int) -> AsyncIterator[Cluster]:
    """Lend a cluster that can fail over so often."""
    folder = make_home("ha")
    cluster = Cluster(folder, failovers)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
