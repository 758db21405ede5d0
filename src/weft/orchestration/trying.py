"""Runs a job here and now, with a worker and an orchestrator of its own, for tests."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from weft.core.signals import NonRetryable, Snooze
from weft.jobs.adding import SQL
from weft.orchestration.models import Job
from weft.sdk.client import Client
from weft.sdk.orchestrator import Orchestrator
from weft.sdk.worker import Worker
from weft.worker.context import RUNNING
from weft.worker.registry import REGISTRY, AnyHandler, Handler, Registry
from weft.worker.unsuccessful import DECLINE_DELAY


def run_job_test(job: Job, *, modules: Sequence[str] = (), timeout: float | None = 300) -> Job:
    """Run a job to its end, and return it as it is then; blocks, also where an event loop runs.

    Dotted names are looked up in the caller's own module, in those beside it, and in ``modules``. Example::

        job = await create_job("my_job", "mymodule.task1")
        run_job_test(job)
        assert job.status == JobStatus.COMPLETED
    """
    registry = CallersOwn(job.id, inspect.currentframe(), modules)
    outcome: list[Job | BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(_ended(job, registry, timeout)))
        except BaseException as problem:  # noqa: BLE001  raised again in the caller's thread
            outcome.append(problem)

    # A thread of its own: where the caller's loop runs, no other can.
    thread = threading.Thread(target=run, name="weft-job-test")
    thread.start()
    thread.join()
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    job.update(found)
    return job


async def _ended(job: Job, registry: Registry, timeout: float | None) -> Job:
    async with Client(settings=job.settings) if job.settings is not None else Client() as client:
        rows = await client.database.read(lambda conn: conn.fetch(SQL.queues_of, job.id))
        queues = {"default", *(handler.queue for handler in REGISTRY), *(row["name"] for row in rows)}
        async with Worker(client=client, registry=registry, queues=sorted(queues)), Orchestrator(client=client):
            return Job.of(await client.jobs.wait(job.id, timeout=timeout), client.settings)


class CallersOwn(Registry):
    """The handlers of this process, and the functions of the modules that belong to the caller of a test."""

    def __init__(self, job_id: int, here: FrameType | None, modules: Sequence[str]) -> None:
        super().__init__()
        self._job_id = job_id
        caller = here.f_back if here is not None else None
        names = caller.f_globals if caller is not None else {}
        self._caller = str(names.get("__name__", "__main__"))
        self._folder = Path(names["__file__"]).resolve().parent if "__file__" in names else None
        self.admit([*modules, self._caller])

    def get(self, name: str) -> AnyHandler:
        """Return the handler of that name; one that says what is wrong when there is none."""
        found = REGISTRY.get(name) or super().get(name)
        cause = ""
        if found is None and self._is_ours(module := name.rpartition(".")[0]):
            try:
                importlib.import_module(module)
            except (Exception, SystemExit) as problem:  # noqa: BLE001  the boundary to user code: told by its task
                cause = f" ({type(problem).__name__}: {problem})"
            self.admit([module])
            found = super().get(name)
        return self._refusal(name, cause) if found is None else found

    def _is_ours(self, module: str) -> bool:
        """Whether a module lies beside the caller's, or below."""
        top = module.partition(".")[0]
        if not top or self._folder is None:
            return False
        known = sys.modules.get(top)
        spec = known.__spec__ if known is not None else importlib.util.find_spec(top)
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        return any(place is not None and Path(place).resolve().is_relative_to(self._folder) for place in places)

    def _refusal(self, name: str, cause: str) -> AnyHandler:
        async def refuse(**_: object) -> None:
            running = RUNNING.get()
            if running is not None and running.context.job_id != self._job_id:
                # Of something else that waits in the same queue: others may know it.
                raise Snooze(DECLINE_DELAY)
            raise NonRetryable(
                f"{name!r} is no function of {self._caller}, nor of a module beside it: name its module in "
                f"run_job_test(job, modules=[…]), or start a worker with --app{cause}"
            )

        return Handler(name=name, function=refuse)
