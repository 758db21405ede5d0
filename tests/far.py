"""A client of the database whose workers have none: they work through a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import weft
from weft.remote.worker_store import RemoteStore
from weft.server.serving import Server

# For tests of what any worker does: they run with each kind.
with_and_without_a_database = pytest.mark.parametrize("client", ["direct", "through a server"], indirect=True)


class FarClient(weft.Client):
    """All calls go to the database; what works by it goes to the server."""

    address: str
    token: str

    def _worker_store(self) -> RemoteStore:
        own = {name: getattr(self.settings, name) for name in ("home", "files_roots", "data_outside")}
        return RemoteStore(self.address, self.token, weft.Settings.load(environ={}, **own))


@asynccontextmanager
async def far_client(settings: weft.Settings) -> AsyncIterator[weft.Client]:
    """Open such a client, and a server for its workers."""
    async with FarClient(settings=settings) as client, Server(settings, port=0) as server:
        client.address, client.token = server.url, (await client.tokens.create("far", role="worker")).secret
        yield client
