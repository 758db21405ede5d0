"""Pause a queue, and say why: `weft audit list` shows it."""

import asyncio

import weft


async def main() -> None:
    async with weft.Client() as client:
        await client.create_queue("mail")
        with client.because("the receiver is down, ticket 4711"):
            await client.pause_queue("mail")
        act = (await client.audit(limit=1))[0]
        print(act.verb, act.subject_name, "because", act.reason)


asyncio.run(main())
