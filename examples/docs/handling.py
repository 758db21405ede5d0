"""Handlers that are given a context and return a result, and a job that is asked for by a message."""

import asyncio

import weft


# docs: begin register
@weft.register_handler("raster.validate", queue="container-tasks", timeout_seconds=600)
async def validate(ctx: weft.HandlerContext) -> weft.HandlerResult:
    path = ctx.params["path"]
    ctx.logger.info("attempt %s of %s in job %s", ctx.attempt, ctx.node_id, ctx.job_id)
    if not path.endswith(".tif"):
        return weft.HandlerResult(success=False, error_message=f"{path} is no raster")
    size = await ctx.step("measure", measure, path)
    return weft.HandlerResult(success=True, output={"size_mb": size}, metrics={"pixels": 1_000_000 * size})


# docs: end register


def measure(path: str) -> int:
    return len(path)


# docs: begin test
async def test_it_refuses_what_is_no_raster() -> None:
    ctx = weft.HandlerContext(task_id="1", job_id="2", node_id="validate", params={"path": "a.txt"})
    assert not (await validate(ctx)).success


# docs: end test

FLOW = {
    "workflow_id": "raster_processing",
    "inputs": {"path": {"type": "string", "required": True}},
    "nodes": {
        "START": {"type": "start", "next": "validate"},
        "validate": {
            "handler": "raster.validate",
            "queue": "container-tasks",
            "params": {"path": "{{ inputs.path }}"},
            "next": "END",
        },
        "END": {"type": "end", "output": "{{ nodes.validate.output.size_mb }}"},
    },
}


async def main() -> None:
    await test_it_refuses_what_is_no_raster()
    async with weft.Client() as client:
        await client.workflows.push(FLOW)
        async with weft.Worker(client=client), weft.Orchestrator(client=client):
            # docs: begin request
            message = await client.enqueue(
                "weft.submit",
                {"workflow_id": "raster_processing", "inputs": {"path": "alps.tif"}, "priority": 1},
                queue="orchestrator-jobs",
                idempotency_key="request-4711",
            )
            answer = await client.wait(message.id, timeout=30)
            job = await client.jobs.wait(int(answer["job_id"]), timeout=30)
            # docs: end request
            print(answer["created"], job.state, job.result)
            (node,) = [each for each in await client.jobs.nodes(job.id) if each.node == "validate"]
            print((await client.get_task(node.id)).metrics)


if __name__ == "__main__":
    asyncio.run(main())
