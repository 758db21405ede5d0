"""Cancel racing complete racing every kind of expiry, in all orders: a job ends once, as the first that landed says."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import weft
from crash.checker import check
from crash.job_sessions import JobSession, drained, flow, job_sessions
from crash.sessions import until_done_or_waiting
from weft.queue.work import Claim

Acts = dict[str, Callable[[JobSession], Awaitable[Any]]]
ONE = flow(only={"handler": "work"})
ASKING = flow(ask={"type": "wait", "for": "approval", "timeout_seconds": 60})


class Race:
    """A job at a moment at which several things may happen to it, each done by a session of its own."""

    def __init__(self, client: weft.Client, holder: JobSession, watcher: JobSession) -> None:
        self._client = client
        self._holder = holder
        self.watcher = watcher
        self.job_id = 0
        self.acts: Acts = {}

    async def prepare(self, moment: str) -> None:
        """Bring a new job to the moment; all of its time is over."""
        self.job_id = (await self._client.jobs.submit(ASKING if moment == "waiting" else ONE)).id
        self.acts = await getattr(self, f"_{moment}")()
        self.acts |= {"cancel": lambda by: by.cancel_job(self.job_id), "timeout": self._time_out}
        past = "set {} = weft.now() - interval '1 hour'"
        await self.watcher.conn.execute(f"update weft.job {past.format('timeout_at')}")
        await self.watcher.conn.execute(f"update weft.task {past.format('expires_at')} where state = 'waiting'")
        await self._holder.lapse()

    async def _running(self) -> Acts:
        await self._holder.register()
        (claim,) = await self._holder.claim()
        return self._held(claim)

    async def _ending(self) -> Acts:
        await self._holder.register()
        assert await self._holder.complete(*await self._holder.claim())
        await self._holder.orchestrate()
        return self._held(await self._holder.take("@end"))

    async def _waiting(self) -> Acts:
        await self._holder.orchestrate()
        ask = await self._holder.take("@wait")
        assert await self._holder.wait_for_event(ask)
        return {"answer": lambda by: by.answer(ask.id), "late": lambda by: self._end_waits(by)}

    def _held(self, claim: Claim) -> Acts:
        worker_id = self._holder.worker_id

        async def complete(by: JobSession) -> bool:
            by.worker_id = worker_id
            return await by.finish(claim)

        async def rescue(by: JobSession) -> bool:
            return bool(await by.rescue(worker_id))

        return {"complete": complete, "rescue": rescue}

    async def _time_out(self, by: JobSession) -> bool:
        return bool(await by.conn.fetchval("select weft.end_late_jobs(100)"))

    async def _end_waits(self, by: JobSession) -> bool:
        return bool(await by.conn.fetchval("select weft.end_late_waits(100)"))

    async def require_one_end(self, landed: list[str], moment: str) -> None:
        """Let the rest be done, and compare how the job ended with what landed."""
        await check(self.watcher.conn)
        if moment == "waiting" and not landed:
            assert await self.acts["answer"](self.watcher)
        await drained(self.watcher)
        verdicts = {"cancel": "cancelled", "timeout": "failed"}
        first = next((verdicts[name] for name in landed if name in verdicts), None)
        expected = first or ("failed" if "late" in landed else "completed")
        state = await self.watcher.job_state(self.job_id)
        assert state == expected, (moment, landed)
        assert len({"cancel", "timeout"} & set(landed)) <= 1, landed
        assert len({"complete", "answer", "late"} & set(landed)) <= 1, landed
        if moment == "ending" and "complete" in landed:
            assert landed[-1] == "complete", "what has ended does not change"
        await self.watcher.conn.execute("delete from weft.worker")


MOMENTS = {
    "running": ("complete", "rescue", "cancel", "timeout"),
    "ending": ("complete", "rescue", "cancel", "timeout"),
    "waiting": ("answer", "late", "cancel", "timeout"),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_whatever_happens_to_a_job_one_after_the_other_it_ends_once(
    url: str, client: weft.Client, moment: str
) -> None:
    async with job_sessions(url, 3) as (holder, watcher, other):
        race = Race(client, holder, watcher)
        for order in itertools.permutations(MOMENTS[moment]):
            await race.prepare(moment)
            landed = [name for name in order if await race.acts[name](other)]
            await race.require_one_end(landed, moment)


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled_back"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_whatever_happens_to_a_job_at_once_it_ends_once(
    url: str, client: weft.Client, moment: str, is_kept: bool
) -> None:
    """The first has not committed when the others come; it commits or rolls back while they wait, in their order."""
    async with job_sessions(url, 5) as (holder, watcher, *others):
        race = Race(client, holder, watcher)
        for order in itertools.permutations(MOMENTS[moment], 3):
            await race.prepare(moment)
            by = dict(zip(order, others, strict=True))
            ends: list[str] = []

            async def act(name: str, by: JobSession, ends: list[str] = ends) -> None:
                async with by.conn.transaction():
                    if await race.acts[name](by):
                        ends.append(name)

            first = by[order[0]].conn.transaction()
            await first.start()
            if await race.acts[order[0]](by[order[0]]) and is_kept:
                ends.append(order[0])
            calls = []
            for name in order[1:]:
                calls.append(asyncio.ensure_future(act(name, by[name])))
                await until_done_or_waiting(calls[-1], by[name], watcher)
            await (first.commit() if is_kept else first.rollback())
            await asyncio.gather(*calls)
            await race.require_one_end(ends, moment)
