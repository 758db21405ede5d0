"""One workload of one peer, in a database of its own."""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import asyncpg

from bench.peers.environments import HERE, python_of, run_command

SETUP_GRACE_S = 300.0  # for what a driver does outside its workload: import, install, start servers, enqueue


def run_driver(peer: str, database_url: str, workload: str, count: int, timeout: float) -> dict[str, float | str]:
    """Run one workload with the peer's own Python and return the figures it prints."""
    command = [str(python_of(peer)), str(HERE / "drivers"), peer, workload, str(count), str(timeout)]
    output = run_command(peer, workload, command, timeout + SETUP_GRACE_S, {"PEER_URL": database_url})
    figures: dict[str, float | str] = json.loads(output.splitlines()[-1])
    return figures


@contextmanager
def scratch_database(url: str, peer: str) -> Iterator[str]:
    """Create an empty database on the server, give its URL, and drop it."""
    name = f"weft_bench_{peer.replace('-', '_')}_{secrets.token_hex(4)}"
    asyncio.run(execute(url, f"create database {name} template template0"))
    try:
        parts = urlsplit(url)
        yield f"postgresql://{parts.netloc}/{name}" + (f"?{parts.query}" if parts.query else "")
    finally:
        asyncio.run(execute(url, f"drop database {name} with (force)"))


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def describe_server(url: str) -> str:
    """One line on what the figures depend on most."""
    connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
    try:
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        values = [await connection.fetchval("select current_setting($1)", name) for name in names]
    finally:
        await connection.close()
    settings = ", ".join(f"{name}={value}" for name, value in zip(names[1:], values[1:], strict=True))
    return f"PostgreSQL {values[0]} ({settings}), {os.cpu_count()} CPUs, Python {sys.version.split()[0]}"
