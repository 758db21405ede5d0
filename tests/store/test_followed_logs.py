"""Logs that are followed elsewhere: their workers are told, and what is copied of one only grows."""

from __future__ import annotations

import asyncio
from typing import Any

from store_scene import Store

from weft.queue import look


async def test_the_workers_of_running_tasks_of_the_org_are_told_that_somebody_follows(store: Store) -> None:
    worker = await store.worker()
    waiting = await store.enqueue()
    claim = await store.claim_one(worker)
    later = await store.enqueue()
    heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(_conn: object, _pid: int, _channel: str, message: Any) -> None:
        heard.put_nowait(message)

    await store.conn.add_listener(f"weft_worker_{worker}", hear)
    assert claim.id == waiting
    await look.ask_for_logs(store.conn, 2, [claim.id])
    await look.ask_for_logs(store.conn, 1, [claim.id, later])
    await store.conn.execute("select pg_notify($1, 'end')", f"weft_worker_{worker}")
    async with asyncio.timeout(30):
        assert [await heard.get(), await heard.get()] == [f"log {claim.id} {claim.attempt}", "end"]
    await store.conn.remove_listener(f"weft_worker_{worker}", hear)


async def test_a_copy_of_a_log_is_never_replaced_by_a_shorter_one(store: Store) -> None:
    task_id = await store.enqueue()
    short, long = ("a" * 64, 10), ("b" * 64, 20)
    for digest, size in (short, long):
        await store.conn.execute("insert into weft.blob (digest, bytes) values ($1, $2)", digest, size)
    for digest, size in (short, long, short):
        await look.add_log(store.conn, task_id, 1, digest, size)
    assert await look.logs(store.conn, 1, task_id, None) == [(1, *long)]
