"""Why does this task not run? The same questions that `weft tasks show` and `weft queues list` answer."""

import asyncio

import weft


# docs: begin why
async def why(client: weft.Client, task_id: int) -> str:
    task = await client.get_task(task_id)
    if task.state.is_final:
        return f"it has ended: {task.state}, {task.reason}"
    if task.state is weft.TaskState.RUNNING:
        return f"worker {task.worker_id} has been at it since {task.claimed_at}, attempt {task.attempt}"
    if task.state is weft.TaskState.SCHEDULED:
        return f"it is due at {task.due_at} ({task.reason or 'a delay'})"
    if task.state is weft.TaskState.PENDING:
        return f"it waits: {task.reason}, for {task.waiting_on} others"
    queue = next(queue for queue in await client.queues() if queue.name == task.queue)
    if queue.paused:
        return f"queue {queue.name} is paused"
    workers = [w for w in await client.workers() if w.state in ("active", "idle") and queue.name in w.queues]
    if not workers:
        return f"no live worker claims from queue {queue.name}"
    if not any(task.handler in worker.handlers for worker in workers):
        return f"no live worker knows the handler {task.handler}"
    return f"{queue.depth} tasks are ready in queue {queue.name}, {len(workers)} workers claim from it"


# docs: end why


@weft.task(name="known")
async def known() -> None: ...


async def main() -> None:
    async with weft.Client() as client:
        later = await client.enqueue(known, delay=60)
        print(await why(client, later.id))
        now = await client.enqueue(known)
        print(await why(client, now.id))
        await client.pause_queue("default")
        print(await why(client, now.id))
        await client.resume_queue("default")
        async with weft.Worker(client=client):
            await client.wait(now.id, timeout=30)
        print(await why(client, now.id))


if __name__ == "__main__":
    asyncio.run(main())
