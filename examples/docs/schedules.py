"""Lets a workflow begin by itself, and makes up for days that are over."""

import asyncio
from datetime import UTC, datetime, timedelta

import weft

REPORT = {
    "workflow_id": "report",
    "inputs": {"day": {"type": "string"}},
    "nodes": {
        "START": {"type": "start", "next": "END"},
        "END": {"type": "end", "output": "the report of {{ inputs.day }}"},
    },
}


async def main() -> None:
    async with weft.Client() as client, weft.Orchestrator(client=client):
        await client.workflows.push(REPORT)
        # docs: begin add
        made = await client.schedules.add(
            "report",
            cron="30 6 * * 1-5",
            timezone="Europe/Berlin",
            inputs={"day": "{{ tick.date }}"},
        )
        print(made.name, made.next_at > datetime.now(UTC))
        # docs: end add
        job = await client.schedules.trigger("report")
        print((await client.jobs.wait(job.id)).result)
        # docs: begin backfill
        last_week = datetime.now(UTC) - timedelta(days=7)
        filling = await client.schedules.backfill("report", since=last_week, at_once=2)
        print(filling.ticks)
        # docs: end backfill
        while (await client.schedules.backfills("report"))[0].ended_at is None:  # noqa: ASYNC110  (a person looks now and then)
            await asyncio.sleep(0.1)
        jobs = await client.jobs.list(labels={"backfill": str(filling.id)})
        print(len(jobs), {job.state.value for job in jobs})


asyncio.run(main())
