"""Timeouts, heartbeats, steps, checkpoints, cancellation, and work that must be killable."""

import asyncio
import tempfile
import time
from pathlib import Path

import weft


# docs: begin timeout
@weft.task(name="page:fetch", timeout=0.2, retry=0)
async def fetch(url: str) -> str:
    await asyncio.sleep(60)  # cancelled where it waits, after 0.2 s
    return url


# docs: end timeout


# docs: begin process
@weft.task(name="video:encode", executor="process", timeout=0.5, retry=0)
def encode(path: str) -> None:
    while True:  # no thread could be ended here; the process is killed
        pass


# docs: end process


# docs: begin heartbeat
@weft.task(name="backup:copy", heartbeat_timeout=60)
def copy(blocks: int, ctx: weft.Context) -> int:
    for block in range(blocks):
        if ctx.is_cancelled:
            return block
        time.sleep(0.01)  # stands for copying one block
        ctx.heartbeat()
    return blocks


# docs: end heartbeat


# docs: begin steps
@weft.task(name="order:pay", retry=weft.Retry(3, initial_delay=0))
async def pay(customer: str, ctx: weft.Context) -> str:
    charge = await ctx.step("charge", charge_card, customer, amount=100)
    if ctx.attempt == 1:
        raise ConnectionError("the mail server is away")  # the second attempt does not charge again
    return str(await ctx.step("mail", send_receipt, charge))


def charge_card(customer: str, *, amount: int) -> dict[str, int | str]:
    print(f"charges {customer}")
    return {"customer": customer, "amount": amount}


async def send_receipt(charge: dict[str, int | str]) -> str:
    return f"told {charge['customer']} of {charge['amount']}"


# docs: end steps


# docs: begin checkpoints
@weft.task(name="archive:build", retry=weft.Retry(3, initial_delay=0))
async def build(folder: str, ctx: weft.Context) -> list[str]:
    path = Path(folder) / "part"
    found = await ctx.checkpoint.load(validator=lambda data: Path(data["path"]).exists())
    done = [] if found is None else ["goes on after", found.phase]
    if found is None:
        path.write_text("all of it")
        await ctx.checkpoint.save("download", {"path": str(path)})
    if ctx.attempt == 1:
        raise ConnectionError
    return done


# docs: end checkpoints


# docs: begin shutdown
@weft.task(name="archive:watch", timeout=86400)
async def watch(ctx: weft.Context) -> int:
    found = await ctx.checkpoint.load("seen")
    seen = 0 if found is None else found.data
    while seen < 3:
        if ctx.shutdown_requested:
            await ctx.checkpoint.save("seen", seen)
            raise weft.Snooze(0)  # another worker goes on from here; not counted as a failure
        seen += 1
    return seen


# docs: end shutdown


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client):
        for handler, params in ((fetch, {"url": "https://example.com"}), (encode, {"path": "film.mkv"})):
            task = await client.enqueue(handler, params)
            try:
                await client.wait(task.id, timeout=30)
            except weft.TaskFailed as problem:
                print(problem.state, (await client.get_task(task.id)).reason)
        print(await client.wait((await client.enqueue(copy, {"blocks": 3})).id, timeout=30))

        print(await client.wait((await client.enqueue(pay, {"customer": "ada"})).id, timeout=30))
        with tempfile.TemporaryDirectory() as folder:
            print(*await client.wait((await client.enqueue(build, {"folder": folder})).id, timeout=30))
        print(await client.wait((await client.enqueue(watch)).id, timeout=30))

        # docs: begin cancel
        task = await client.enqueue(copy, {"blocks": 1_000_000})
        await client.cancel(task.id, reason="the customer changed her mind")
        # docs: end cancel
        print((await client.get_task(task.id)).state)


if __name__ == "__main__":
    asyncio.run(main())
