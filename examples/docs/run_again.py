"""Runs a job again that failed: what had completed keeps its output."""

import asyncio

import weft

office = {"is_open": False}


@weft.task(name="shop.count")
async def count(shelf: str) -> str:
    return f"42 in {shelf}"


@weft.task(name="shop.report", retry=0)
async def report(number: str) -> str:
    if not office["is_open"]:
        raise ConnectionError("the office is closed")
    return f"{number}, reported"


DEFINITION = {
    "workflow_id": "stock",
    "inputs": {"shelf": {"type": "string", "default": "B2"}},
    "nodes": {
        "START": {"type": "start", "next": "count"},
        "count": {"handler": "shop.count", "params": {"shelf": "{{ inputs.shelf }}"}, "next": "report"},
        "report": {"handler": "shop.report", "params": {"number": "{{ nodes.count.output }}"}, "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.report.output }}"},
    },
}


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client), weft.Orchestrator(client=client):
        submitted = await client.jobs.submit(DEFINITION, labels={"team": "stock"})
        job = await client.jobs.wait(submitted.id, timeout=30)
        print(job.state)
        office["is_open"] = True
        # docs: begin rerun
        plan = await client.jobs.plan_rerun(job.id, failed=True)
        for step in plan.steps:
            print(step.node, step.action, "because", step.why)
        again = await client.jobs.rerun(job.id, failed=True)
        print((await client.jobs.wait(again.id, timeout=30)).result)
        # docs: end rerun

        # docs: begin many
        print(await client.jobs.rerun_all(state="failed", labels={"team": "stock"}, dry_run=True))
        # docs: end many

        # docs: begin patch
        ops = [{"op": "replace", "path": "/nodes/count/params/shelf", "value": "C3"}]
        other = await client.jobs.submit(DEFINITION, patch=ops)
        print((await client.jobs.wait(other.id, timeout=30)).result)
        # docs: end patch


asyncio.run(main())
