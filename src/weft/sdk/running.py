"""Executes a workflow with one call: in this process with all that it takes, or by whoever works elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from weft.core.errors import InvalidInput, UnknownQueue
from weft.flow.document import Document
from weft.flow.model import WorkflowDefinition
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.jobs.model import JobHandle
from weft.sdk.authoring.places import cannot_compile
from weft.sdk.client import Client
from weft.sdk.jobs import Workflow
from weft.sdk.orchestrator import Orchestrator
from weft.sdk.submitted import SubmittedJob, result_of
from weft.sdk.worker import Worker
from weft.sdk.workflows import document_of
from weft.worker.composing import COMPOSER
from weft.worker.registry import REGISTRY, Registry
from weft.worker.surroundings import refuse_while_loading

T = TypeVar("T")
_ENDINGS = (".yaml", ".yml", ".json")


def run(workflow: Workflow, /, **inputs: Any) -> Any:
    """Execute a workflow in this process and return its result: for scripts and notebooks.

    The workflow is a `weft.workflow`, a file, a tag or a definition. What it takes is started here and ends with it:
    the embedded database unless there is a URL, an orchestrator, and a worker with the handlers of this process. It is
    durable all the same. Raises `JobFailed` with the node that failed. Works where a loop runs already, as in a
    notebook, which waits meanwhile. Example::

        print(weft.run(pipeline, url="https://example.com/rows"))
    """
    refuse_while_loading("weft.run")
    if COMPOSER.get() is not None:
        raise cannot_compile("weft.run executes a workflow now: to make a node of it, call it")
    return finished(_run(as_workflow(workflow), inputs))


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return what came out of ``work``, on a loop of its own, in a thread of its own where a loop runs already."""
    if not _is_in_loop():
        return asyncio.run(work)
    with ThreadPoolExecutor(1, thread_name_prefix="weft-run") as thread:
        return thread.submit(asyncio.run, work).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def submit(workflow: Workflow, /, **inputs: Any) -> SubmittedJob:
    """Hand a workflow in, to workers and orchestrators that run elsewhere, and return the job.

    Example::

        job = await weft.submit(pipeline, url="https://example.com/rows")
        print(await job.result(timeout=60))
    """
    async with Client() as client:
        handle = await client.jobs.submit(as_workflow(workflow), inputs)
    return SubmittedJob(handle.id, handle.created)


def as_workflow(workflow: Workflow) -> Workflow:
    """Return what is meant: a text that is the name of a file means the file."""
    if isinstance(workflow, str) and (workflow.endswith(_ENDINGS) or Path(workflow).is_file()):
        return Path(workflow)
    return workflow


async def _run(workflow: Workflow, inputs: Mapping[str, Any]) -> Any:
    async with Client() as client:
        await _require_handlers(client, workflow, REGISTRY)
        handle = await submit_here(client, workflow, inputs)
        async with at_work(client, queues=await client.jobs.queues(handle.id)):
            return await result_of(client, await client.jobs.wait(handle.id))


async def submit_here(client: Client, workflow: Workflow, inputs: Mapping[str, Any], **options: Any) -> JobHandle:
    """Submit what is worked on in this process: the queues of its nodes are made, as a worker of them would."""
    while True:
        try:
            return await client.jobs.submit(workflow, inputs, **options)
        except UnknownQueue as missing:
            await client.create_queue(missing.name)


@asynccontextmanager
async def at_work(
    client: Client, registry: Registry = REGISTRY, *, queues: Iterable[str] = (), modules: Sequence[str] = ()
) -> AsyncIterator[tuple[Worker, Orchestrator]]:
    """Work and orchestrate here while the body runs: the queues of the handlers, and ``queues``."""
    named = {*Worker(client=client, registry=registry).queues, *queues}
    worker = Worker(client=client, registry=registry, queues=sorted(named), app_modules=modules)
    async with Orchestrator(client=client) as orchestrator, worker:
        yield worker, orchestrator


async def _require_handlers(client: Client, workflow: Workflow, registry: Registry) -> None:
    """Refuse a workflow with a handler that this process does not have: its task would wait for ever."""
    if isinstance(workflow, (str, int)):
        data = (await client.workflows.show(workflow)).data
        document = Document(dict(data))
    elif isinstance(workflow, (Path, Mapping, WorkflowDefinition)):
        document = document_of(workflow)
    else:
        return  # it was written with the handlers themselves
    definition = sound(check_document(document, handlers=registry.names(), strict=True))
    if not registry.names() and definition.nodes:
        raise InvalidInput("workflow", "there are no handlers in this process: import the module that has them")
