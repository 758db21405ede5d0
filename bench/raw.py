"""The least that a durable pick-up can do: ``python -m bench.raw URL`` hears, claims one row and tells when."""

import asyncio
import os
import signal
import socket
import sys
import time

import asyncpg
import uvloop

TABLE = "create table raw_task (id bigserial primary key, sent float8, is_taken boolean default false)"
PUT = "with put as (insert into raw_task (sent) values ($1) returning 1) select pg_notify('raw_task', '') from put"
_CLAIM = """update raw_task set is_taken = true where id = (
  select id from raw_task where not is_taken order by id limit 1 for update skip locked) returning sent"""


async def main(url: str) -> None:
    """Work until SIGTERM, on one connection."""
    done, heard = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    telling = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    conn = await asyncpg.connect(url)
    await conn.add_listener("raw_task", lambda *_: heard.set())
    await conn.fetchval(_CLAIM)

    async def serve() -> None:
        while True:
            await heard.wait()
            heard.clear()
            sent = await conn.fetchval(_CLAIM)
            telling.sendto(f"{sent} {time.time()}".encode(), os.environ["BENCH_INBOX"])

    serving = asyncio.create_task(serve())
    print("ready", flush=True)
    await done.wait()
    serving.cancel()
    await conn.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
