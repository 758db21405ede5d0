"""Databases that live as long as a test: copies of one that is migrated, on a server of the tests' own."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg

from weft.core.settings import Settings
from weft.db import embedded, migrate
from weft.db.statements import Statements
from weft.sdk.client import Client
from weft.sdk.running import finished

SQL = Statements("weft.testing", "sql/clock.sql")
RESET = Statements("weft.testing", "sql/reset.sql")
# Nothing of it must outlast a power cut, only the ends of its processes.
_CONFIG = "fsync = off\nfull_page_writes = off\nsynchronous_commit = off\n"


@dataclass(frozen=True)
class ScratchDatabase:
    """A migrated, empty database of a test's own, whose clock can be moved.

    Example::

        async with weft_db.client() as client:
            await client.enqueue("greet", {"name": "Ada"})
    """

    url: str
    home: Path

    def settings(self, **overrides: Any) -> Settings:
        """Return settings for this database, whatever the environment says."""
        said: dict[str, Any] = {
            "worker_shutdown_grace": timedelta(seconds=1), "retention": timedelta(days=3650), **overrides,
        }  # fmt: skip
        return Settings.load(environ={}, database_url=self.url, home=self.home, **said)

    def client(self, **overrides: Any) -> Client:
        """Return a client of this database, to be entered."""
        return Client(settings=self.settings(**overrides))


class ScratchServer:
    """The PostgreSQL of a run of tests: an embedded one of its own, or the one that ``url`` names."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        # In /tmp, because the path of a socket must be short.
        self._home = Path(tempfile.mkdtemp(prefix="weft-", dir="/tmp" if os.path.isdir("/tmp") else None))
        # As root the server runs as another user, who has to get in.
        self._home.chmod(0o755)
        self._is_own = url is None
        self._template = f"weft_template_{uuid.uuid4().hex[:12]}"
        self._made: list[ScratchDatabase] = []
        self._free: list[ScratchDatabase] = []

    def start(self) -> None:
        """Start the server, if it is our own, and make the database that all others are copies of."""
        finished(self._start())

    def stop(self) -> None:
        """End the server, or take away what was made on somebody else's."""
        finished(self._stop())
        shutil.rmtree(self._home, ignore_errors=True)

    def take(self) -> ScratchDatabase:
        """Return an empty database: one that was given back, else a new one, which takes longer."""
        return finished(self._take())

    def give_back(self, database: ScratchDatabase) -> None:
        """Let somebody else have a database, emptied; what its tasks logged is removed."""
        shutil.rmtree(database.home, ignore_errors=True)
        self._free.append(database)

    @property
    def _address(self) -> str:
        assert self._url is not None
        return self._url

    async def _start(self) -> None:
        if self._is_own:
            config = self._home / "postgres.conf"
            config.write_text(_CONFIG, encoding="utf-8")
            config.chmod(0o644)
            self._url = (await embedded.ensure_running(Settings(home=self._home))).url
        await self._execute(f"create database {self._template}")
        await migrate.upgrade(_with_database(self._address, self._template))
        await self._execute(SQL.make_movable, self._template)

    async def _stop(self) -> None:
        if self._is_own:
            await embedded.stop(Settings(home=self._home), mode="immediate")
            return
        for name in (self._template, *map(_name_of, self._made)):
            await self._execute(f"drop database if exists {name} with (force)")

    async def _take(self) -> ScratchDatabase:
        if self._free:
            database = self._free.pop()
            await self._execute(f"{SQL.put_back};\n{RESET.reset}", _name_of(database))
            return database
        name = f"weft_{uuid.uuid4().hex[:12]}"
        await self._execute(f"create database {name} template {self._template} strategy file_copy")
        database = ScratchDatabase(_with_database(self._address, name), self._home / name)
        self._made.append(database)
        return database

    async def _execute(self, statement: str, database: str = "postgres") -> None:
        conn = await asyncpg.connect(_with_database(self._address, database))
        try:
            await conn.execute(statement)
        finally:
            await conn.close()


def _name_of(database: ScratchDatabase) -> str:
    return database.url.partition("?")[0].rpartition("/")[2]


def _with_database(url: str, name: str) -> str:
    head, mark, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{mark}{query}"
