"""Retry policies, errors that no retry can mend, and tasks that come back later."""

# docs: begin policies
import asyncio

import weft

PATIENT = weft.Retry(
    max_attempts=8,  # executions in all, the first included
    backoff="exponential",  # or "linear", or "fixed"
    initial_delay=2,  # seconds before the second attempt
    max_delay=600,
    jitter=0.2,  # up to a fifth of each delay is taken off at random
    non_retryable=(KeyError,),
)


@weft.task(name="invoice:send", retry=PATIENT, timeout=30)
async def send_invoice(number: str) -> None: ...


@weft.task(name="mail:send", retry=3)  # three attempts after the first
async def send_mail(to: str) -> None: ...


# docs: end policies


# docs: begin non_retryable
@weft.task(name="customer:greet")
async def greet(customer: int) -> None:
    raise weft.NonRetryable(f"customer {customer} was deleted")


# docs: end non_retryable

UNTIL_READY = iter([False, False, True])


# docs: begin snooze
@weft.task(name="export:fetch")
async def fetch_export(export: str) -> str:
    if not next(UNTIL_READY):  # stands for a call that asks whether the export is ready
        raise weft.Snooze(0.1)  # seconds; not a failure, and no attempt is used up
    return export


# docs: end snooze


@weft.task(name="always:fails")
async def always_fails() -> None:
    raise ValueError("no luck")


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client):
        # docs: begin per_task
        await client.enqueue(send_invoice, {"number": "F-7"}, max_attempts=2)
        await client.enqueue("mail:send", {"to": "ada@example.com"}, retry=weft.Retry(max_attempts=5, backoff="fixed"))
        # docs: end per_task

        for task in (await client.enqueue(greet, {"customer": 7}), await client.enqueue(always_fails, max_attempts=1)):
            try:
                await client.wait(task.id, timeout=30)
            except weft.TaskFailed as problem:
                print(problem.state, problem.problem)

        export = await client.enqueue(fetch_export, {"export": "e-1"}, max_attempts=1)
        print(await client.wait(export.id, timeout=30), (await client.get_task(export.id)).failures)

        # docs: begin dead
        before = None
        while True:
            page = await client.dead_letters(before=before, limit=100)
            for letter in page.tasks:
                print(letter.id, letter.state, letter.handler, letter.reason)
            before = page.next
            if before is None:
                break

        await client.replay_dead(handler="always:fails")  # all of one handler, in batches
        # docs: end dead

        # docs: begin purge
        removed = await client.purge(older_than=30 * 86400)  # dead letters that ended longer ago; 0 s: all of them
        # docs: end purge
        print("removed", removed)


if __name__ == "__main__":
    asyncio.run(main())
