"""Workers of other programs in the registry: they are listed, and claim nothing by themselves."""

from __future__ import annotations

import os
import socket

from weft.core.checks import check_id, check_number, check_text
from weft.core.errors import NotFound
from weft.orchestration.context import borrowed_client
from weft.orchestration.models import WORKER_STATUS, Worker, WorkerStatus, word_of
from weft.queue import workers
from weft.sdk.client import Client
from weft.version import __version__
from weft.worker import registration


async def register_worker(hostname: str | None = None, pid: int | None = None) -> Worker:
    """Enter a worker in the registry, by default this process, and return it.

    It is lost when it sends no heartbeat for as long as a lease lasts. Example::

        worker = await register_worker(hostname="worker-01", pid=12345)
    """
    host = check_text(socket.gethostname() if hostname is None else hostname, "hostname", 255)
    number = check_number(os.getpid() if pid is None else pid, "pid", 0, 2**31 - 1)
    async with borrowed_client() as client:
        org_id, lease = await client.org_id(), client.settings.lease_time
        worker_id = await client.database.run(
            lambda conn: workers.register(
                conn, org_id, lease=lease, concurrency=1, pid=number, hostname=host, version=__version__, queues=[],
                handlers=[],
            )
        )  # fmt: skip
        return await _found(client, worker_id)


async def worker_heartbeat(worker_id: int) -> Worker:
    """Say that a worker is alive; raises `NotFound` when it was given up for lost: register it anew.

    Example::

        await worker_heartbeat(worker.id)
    """
    worker_id = check_id(worker_id, "worker_id", shown_by="weft workers list")
    async with borrowed_client() as client:
        lease = client.settings.lease_time
        pulse = await client.database.run(
            # Busy with what nobody here knows of. Blocked, as far as the lead goes: it does not do what a leader does.
            lambda conn: workers.heartbeat(
                conn, worker_id, lease=lease, busy=True, completed=0, failed=0, is_blocked=True
            )
        )
        if pulse is None:
            raise NotFound("worker", worker_id)
        return await _found(client, worker_id)


async def deregister_worker(worker_id: int) -> None:
    """Take a worker's name out of the registry, and give back what it holds.

    Example::

        await deregister_worker(worker.id)
    """
    worker_id = check_id(worker_id, "worker_id", shown_by="weft workers list")
    async with borrowed_client() as client:
        await _found(client, worker_id)
        await client.database.run(lambda conn: registration.leave(conn, worker_id, 0, 0))


async def list_workers(status: WorkerStatus | str | None = None) -> list[Worker]:
    """Return the workers of one status, or all.

    Example::

        workers = await list_workers(status=WorkerStatus.ACTIVE)
    """
    wanted = None if status is None else word_of(status, WorkerStatus)
    async with borrowed_client() as client:
        found = [Worker.of(each) for each in await client.workers() if each.state in WORKER_STATUS]
    return [each for each in found if wanted is None or each.status == wanted]


async def _found(client: Client, worker_id: int) -> Worker:
    for each in await client.workers():
        if each.id == worker_id:
            return Worker.of(each)
    raise NotFound("worker", worker_id)
