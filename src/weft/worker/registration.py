"""How a worker enters its name in the registry, and how it takes leave."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.queue import queues, work, workers
from weft.queue.queues import CONTROL

if TYPE_CHECKING:
    from weft.db.database import type_Connection


async def enter(
    conn: type_Connection, org_id: int, queue_names: Sequence[str], handlers: list[str], *, lease: timedelta,
    concurrency: int, version: str, codes: Mapping[str, str], hostname: str | None = None, pid: int | None = None,
    actor: str = "worker",
) -> tuple[int, list[int]]:  # fmt: skip
    """Register a worker; queues that do not exist are made. Return its id and the ids of its queues.

    One that works the queue of control steps has another of its own, for the jobs that it owns. ``codes`` are
    the code versions of its handlers. By default it is this process, on this machine.
    """
    known = await queues.ids(conn, org_id)
    for name in queue_names:
        if name not in known:
            await queues.create(conn, org_id, name, actor)
    known = await queues.ids(conn, org_id)
    queue_ids = [known[name] for name in queue_names]
    worker_id = await workers.register(
        conn, org_id, lease=lease, concurrency=concurrency, pid=os.getpid() if pid is None else pid,
        hostname=socket.gethostname() if hostname is None else hostname, version=version, queues=queue_ids,
        handlers=handlers,
    )  # fmt: skip
    if CONTROL in queue_names:
        queue_ids.append(await workers.own_queue(conn, worker_id))
    await workers.note_codes(conn, org_id, worker_id, codes)
    return worker_id, queue_ids


async def leave(conn: type_Connection, worker_id: int, completed: int, failed: int) -> set[int]:
    """Take a worker's name out and give back all it holds; return the queues that have work again.

    First nothing more can be claimed in its name, then what it holds goes back, whether it has heard of it or not.
    """
    await workers.deregister(conn, worker_id, completed=completed, failed=failed)
    await workers.leave_jobs(conn, worker_id)
    return await work.hand_back_all(conn, worker_id)
