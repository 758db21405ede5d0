"""Tests of workflows by their author: on a real database, by a clock that the test moves."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from flows import sales  # type: ignore[import-not-found]

import weft
from weft.testing import Runner, ScratchDatabase


@weft.task(retry=weft.Retry(max_attempts=5, initial_delay=3600, max_delay=86400))
async def upload(path: str) -> str:
    raise ConnectionError("try later")


@weft.workflow(timeout=timedelta(days=7))
async def publish(path: str) -> str:
    asked = weft.wait_for_approval("release", timeout=timedelta(days=3))
    with weft.when(asked.approved):
        await upload(path)
    return path


# docs: begin job
def test_sales_are_summed_up_with_tax(weft_job: Callable[..., weft.Job]) -> None:
    job = weft_job(sales, {"shop": "wien", "percent": 50})
    assert (job.state, job.result) == ("completed", 36)


def test_nothing_is_sold_in_a_closed_shop(weft_job: Callable[..., weft.Job]) -> None:
    job = weft_job(sales, {"shop": "graz"}, handlers={"fetch": lambda shop: []})
    assert job.result == 0


# docs: end job


# docs: begin clock
async def a_day_of_retries(weft_db: ScratchDatabase) -> None:
    async with Runner(weft_db) as runner:
        job_id = await runner.submit(publish, {"path": "report.pdf"})
        await runner.advance(hours=20)
        assert (await runner.nodes(job_id))["release"].state == "waiting"
        await runner.approve(job_id)
        assert (await runner.nodes(job_id))["upload"].state == "scheduled"
        await runner.advance(days=2)
        assert (await runner.nodes(job_id))["upload"].attempt == 5
        assert (await runner.job(job_id)).state == "failed"


# docs: end clock


def test_an_upload_is_tried_for_a_day(weft_db: ScratchDatabase) -> None:
    asyncio.run(a_day_of_retries(weft_db))
