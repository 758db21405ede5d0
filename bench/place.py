"""Where the benchmarks run: a server of their own, fresh databases, and child processes that are always ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from weft.core.settings import Settings
from weft.db import embedded, migrate

ROOT = Path(__file__).resolve().parent.parent


def with_database(url: str, name: str) -> str:
    """Return ``url`` with another database."""
    head, mark, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{name}{mark}{query}"


@contextmanager
def own_server() -> Iterator[str]:
    """Start an embedded PostgreSQL as users get it, in a folder of its own; remove both afterwards."""
    home = Path(tempfile.mkdtemp(prefix="weft-bench-", dir="/tmp"))
    home.chmod(0o755)
    settings = Settings(home=home)
    try:
        yield asyncio.run(embedded.ensure_running(settings)).url
    finally:
        asyncio.run(embedded.stop(settings, mode="immediate"))
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def fresh_database(server_url: str, name: str = "bench") -> AsyncIterator[str]:
    """Make an empty, migrated database; drop it afterwards."""
    admin = await asyncpg.connect(with_database(server_url, "postgres"))
    try:
        await admin.execute(f"drop database if exists {name} with (force)")
        await admin.execute(f"create database {name}")
        url = with_database(server_url, name)
        await migrate.upgrade(url)
        yield url
        await admin.execute(f"drop database {name} with (force)")
    finally:
        await admin.close()


async def walled(url: str) -> str:
    """Return the address of a database for a role as a server should have it: it sees one org at a time."""
    conn = await asyncpg.connect(url)
    await conn.execute("drop role if exists shop_server, shop_web, shop_report, shop_worker, shop_flows")
    for statement in (ROOT / "examples/docs/grants.sql").read_text(encoding="utf-8").split(";\n")[:-1]:
        await conn.execute(statement)
    await conn.close()
    head, mark, rest = url.partition("://")
    return f"{head}{mark}shop_server@{rest.rpartition('@')[2]}"


def worker_process(
    url: str, concurrency: int, count: int = 1, queue: str = "default", **environment: str
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run a worker in a process of its own; yields when it is ready."""
    return child_process("bench.worker", url, str(concurrency), str(count), queue, **environment)


@asynccontextmanager
async def child_process(module: str, *arguments: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a module in a process of its own; yields when it has said that it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments,
        stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **environment}, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        if line.strip() != b"ready":
            raise RuntimeError(f"{module} did not start")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
