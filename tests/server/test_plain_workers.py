"""The worker of the docs that knows nothing but HTTP: killed, or held up for longer than its lease, it does no harm."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import asyncpg
from gate import PROXY, RESET, Gate

import weft
from weft.server.serving import Server

_EXAMPLE = Path(__file__).parents[2] / "examples" / "docs" / "any_language.py"


@asynccontextmanager
async def _worker(url: str, secret: str) -> AsyncIterator[Process]:
    env = {"WEFT_SERVER": url, "WEFT_TOKEN": secret, "PATH": os.environ["PATH"]}
    # Without what is installed here: nothing of Weft can be imported.
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", str(_EXAMPLE), env=env, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_plain_worker_that_is_killed_or_held_up_loses_its_task_and_begins_anew(
    settings: weft.Settings, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], tmp_path: Path
) -> None:
    async def until_attempt(number: int) -> None:
        async with asyncio.timeout(60):
            while not await conn.fetchval(  # noqa: ASYNC110  (only the database knows)
                "select true from weft.task where state = 'running' and attempt >= $1", number
            ):
                await asyncio.sleep(0.02)

    quick = replace(
        settings, worker_heartbeat_interval=timedelta(seconds=0.3), worker_timeout=timedelta(seconds=2),
        worker_loss_limit=100,
    )  # fmt: skip
    secret = (await client.tokens.create("far-away", role="worker")).secret
    there = tmp_path / "there"
    made = await client.enqueue("file:await", {"path": str(there)})
    async with Server(quick, port=0) as server:
        async with _worker(server.url, secret) as killed:
            await until_attempt(1)
            killed.send_signal(signal.SIGKILL)
        async with _worker(server.url, secret) as stopped:
            await until_attempt(2)
            stopped.send_signal(signal.SIGSTOP)
            async with _worker(server.url, secret):
                await until_attempt(3)
                there.write_text("here")
                assert await client.wait(made.id, 60) == 4
            stopped.send_signal(signal.SIGCONT)
            # What it does now for the task is refused, and it goes on under another id.
            assert stopped.stdout is not None
            while b"begins anew" not in (line := await asyncio.wait_for(stopped.stdout.readline(), 60)):
                assert line, "it has ended"
            other = await client.enqueue("text:count", {"text": "one two"})
            assert await client.wait(other.id, 60) == {"words": 2}
        found = await client.get_task(made.id)
    assert (found.state, found.failures, found.output) == ("completed", 0, 4)
    assert found.crashes >= 2


async def test_a_plain_worker_runs_what_a_claim_took_whose_answer_was_lost(
    gate: tuple[Gate, str], client: weft.Client
) -> None:
    secret = (await client.tokens.create("far-away", role="worker")).secret
    made = [await client.enqueue("text:count", {"text": "one two"}) for _ in range(3)]
    gate[0].spoils, gate[0].faults = "/v1/task/claim", [RESET, PROXY]
    async with _worker(gate[1], secret):
        assert [await client.wait(each.id, 30) for each in made] == [{"words": 2}] * 3
    assert not gate[0].faults
