"""Fixtures of the tests of the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft


@pytest.fixture
def clock(conn: asyncpg.Connection[asyncpg.Record], client: weft.Client) -> Clock:
    return Clock(conn, client)


@pytest.fixture
async def make_client(url: str, home: Path) -> AsyncIterator[MakeClient]:
    """Opens clients of the test's database with settings of their own."""
    async with AsyncExitStack() as stack:

        async def make(**overrides: Any) -> weft.Client:
            options = {"database_url": url, "home": home, "profile": "fast", **overrides}
            return await stack.enter_async_context(weft.Client(settings=weft.Settings.load(environ={}, **options)))

        yield make
