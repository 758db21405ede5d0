"""While PostgreSQL is away whoever waits for a task goes on waiting, and jobs go on when it is there again."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from crash.harness import LIVENESS, until
from crash.proxy import Fault, proxy_to
from engine.job_scene import Handlers, flow
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded
from weft.worker.registry import Registry


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Settings]:
    """The settings of a server of the test's own, which it may stop."""
    home = make_home("outage")
    settings = Settings(home=home, profile="fast")
    yield settings
    await embedded.stop(settings, mode="immediate")
    shutil.rmtree(home, ignore_errors=True)


async def test_a_wait_outlives_a_restart_of_postgresql(
    own: Settings, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.task(name="ok")
    async def ok() -> str:
        return "there"

    async with weft.Client(settings=own) as client:
        handle = await client.enqueue("ok")
        with caplog.at_level(logging.DEBUG, "weft.client"):
            early = asyncio.create_task(client.wait(handle.id, timeout=LIVENESS))
            await asyncio.sleep(0)
            assert await embedded.stop(own, mode="immediate")
            late = asyncio.create_task(client.wait(handle.id))
            await until(lambda: noticed(caplog, 2), "both have asked in vain")
        with pytest.raises(weft.WaitTimeout, match=r"did not end within 0\.2 s") as caught:
            await client.wait(handle.id, timeout=0.2)
        assert "cannot reach PostgreSQL" in str(caught.value.__cause__)
        assert not early.done()
        assert not late.done()
        await embedded.ensure_running(own)
        await weft.Worker(client=client, registry=registry).run_until_idle()
        assert await asyncio.wait_for(asyncio.gather(early, late), LIVENESS) == ["there", "there"]


async def noticed(caplog: pytest.LogCaptureFixture, count: int) -> bool:
    return sum("waits on" in message for message in caplog.messages) >= count


async def test_a_step_of_a_job_outlasts_every_outage(url: str, settings: weft.Settings, client: weft.Client) -> None:
    """However often PostgreSQL is away just then: no attempt is counted for that."""
    handlers = Handlers()
    each = {"type": "fan_out", "items": [1], "task": {"handler": "say"}}
    async with proxy_to(url) as proxy:
        cut = proxy.rule("weft.add_children(", Fault.CUT)
        away = replace(settings, database_url=proxy.url, worker_max_attempts=1)
        async with (
            weft.Client(settings=away) as far,
            weft.Orchestrator(client=far),
            weft.Worker(client=client, registry=handlers.registry),
        ):
            job = await client.jobs.submit(flow(each=each))
            await cut.fired.wait()
            assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
