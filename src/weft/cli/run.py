"""``weft run``: executes a workflow in this process, shows how it goes, and prints its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from weft.cli.apps import HandlersOption, InputsOption, JsonFlag, new_app
from weft.cli.completion import complete_tag
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.cli.leaving import Leaving
    from weft.jobs.model import Job
    from weft.sdk.client import Client

app = new_app()
FAILED = 1
CANCELLED = 6


@app.command()
@says_why
def run(
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE:NAME|TAG",
            help="A YAML or JSON file, a Python workflow, a tag or a version.",
            autocompletion=complete_tag,
        ),
    ],
    inputs: InputsOption = None,
    modules: HandlersOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only submit it, to workers and orchestrators that run elsewhere.")
    ] = False,
    priority: Annotated[int, typer.Option(help="Higher comes first.")] = 0,
    idempotency_key: Annotated[str | None, typer.Option(help="A key that is known creates nothing.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="To find it by; may be repeated.")
    ] = None,
    patch: Annotated[
        Path | None, typer.Option(help="A JSON Patch (RFC 6902) for this job only, or - for the input.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=JSON", help="nodes.x.params.y=3, for this job only; may be repeated."),
    ] = None,
    callback_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Who is told by HTTP when the job has ended.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Take no output from the cache, and keep none there.")
    ] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Run what would have its output from the cache, and renew that.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Execute a workflow and print its result; the exit code is 1 when it failed.

    Its tasks run in this process, by the handlers of --app, and in whatever workers there are. All that is durable:
    ended in the middle, the job goes on when a worker and an orchestrator are there again. Ctrl-C leaves it, a second
    one cancels it. What --patch and --set change is changed for this job alone: no tag moves.

    Where commands go to a server, the workflow is submitted there and shown from here; its tasks run in the workers
    there, and Ctrl-C leaves it.
    """
    from weft.cli.calls import call
    from weft.cli.output import print_json
    from weft.cli.target import goes_to_server
    from weft.cli.worker_process import import_apps
    from weft.core.errors import InvalidInput
    from weft.sdk.running import submit_here

    if refresh and no_cache:
        raise InvalidInput("refresh", "renews what is in the cache, and --no-cache leaves that alone: say one of both")
    is_elsewhere = goes_to_server(modules or [])
    import_apps(modules or [])
    what = read_workflow(workflow)
    if not isinstance(what, (Path, str)):
        modules = [*(modules or []), workflow.partition(":")[0]]
    words = read_labels(labels)

    async def main(client: Client) -> Job | None:
        data = await _data(client, what)
        ops = _ops(data, patch, assignments or [])
        given = read_inputs(inputs or [], _declared(_patched(data, ops)))
        handle = await (client.jobs.submit if detach or is_elsewhere else partial(submit_here, client))(
            what,
            given,
            priority=priority,
            idempotency_key=idempotency_key,
            labels=words,
            patch=ops,
            callback_url=callback_url,
            cache="refresh" if refresh else not no_cache,
        )
        if detach:
            answer = {"id": str(handle.id), "created": handle.created}
            print_json(answer) if as_json else print(handle.id)
            return None
        return await see_through(client, handle.id, modules or [], as_json=as_json)

    job = call(main)
    if job is not None:
        print_result(job, as_json=as_json)


async def see_through(client: Client, job_id: int, modules: Sequence[str], *, as_json: bool) -> Job:
    """Work on a job here, and show it, until it has ended or somebody leaves it; with JSON it is only waited for."""
    from weft.cli.output import remark
    from weft.cli.target import goes_to_server
    from weft.worker.registry import REGISTRY

    is_elsewhere = goes_to_server([])
    # What others know is left to them.
    queues = [] if is_elsewhere else await client.jobs._queues_of_job(job_id, REGISTRY.knows)
    if as_json:
        import asyncio

        try:
            async with nullcontext() if is_elsewhere else at_work(client, modules, queues=queues):
                return await client.jobs.wait(job_id)
        except asyncio.CancelledError:
            remark(f"job {job_id} goes on without you: see `weft jobs watch {job_id}`")
            raise
    from weft.cli.job_watch import watch
    from weft.cli.leaving import Leaving

    async with Leaving(client, job_id, works=not is_elsewhere) as leaving:
        async with nullcontext() if is_elsewhere else at_work(client, modules, leaving, queues):
            job = await watch(client, job_id, leaving)
        return job if job.state.is_final else await client.jobs.show(job_id)


def print_result(job: Job, *, as_json: bool) -> NoReturn:
    """Print a job, or its result, and end with the code that tells how it ended; 130 when somebody left it."""
    from weft.cli.leaving import INTERRUPTED
    from weft.cli.output import as_record, print_json

    if as_json:
        print_json(as_record(job))
    elif job.state == "completed":
        print_json(job.result)
    codes = {"completed": 0, "failed": FAILED, "cancelled": CANCELLED}
    raise typer.Exit(codes.get(job.state, INTERRUPTED))


def read_workflow(workflow: str) -> Any:
    """Return a file, a Python workflow by MODULE:NAME, or the name of a tag or version."""
    from weft.cli.definitions import find_workflow, refuse_source

    refuse_source(workflow)
    if workflow.endswith((".yaml", ".yml", ".json")) or Path(workflow).is_file():
        return Path(workflow)
    return find_workflow(workflow) or workflow


async def _data(client: Client, what: Any) -> Mapping[str, Any]:
    """Return a definition as it is written."""
    from weft.sdk.workflows import document_of

    data = (await client.workflows.show(what)).data if isinstance(what, str) else document_of(what).data
    return data if isinstance(data, Mapping) else {}


async def declared_inputs(client: Client, what: Any) -> Mapping[str, Any]:
    """Return the inputs that a workflow declares, as they are written."""
    return _declared(await _data(client, what))


def _declared(data: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = data.get("inputs")
    return declared if isinstance(declared, dict) else {}


def _ops(data: Mapping[str, Any], patch: Path | None, assignments: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return what is to be changed for one job: the patch, and then the fields, of what the patch has made."""
    from weft.cli.definitions import read_assignments, read_ops
    from weft.flow.patches import ops_setting

    ops = None if patch is None else read_ops(patch)
    if assignments:
        ops = [*(ops or ()), *ops_setting(_patched(data, ops), read_assignments(list(assignments)))]
    return ops


def _patched(data: Mapping[str, Any], ops: list[dict[str, Any]] | None) -> Mapping[str, Any]:
    """Return a definition as the job has it."""
    from weft.flow.patches import apply_beside, check_ops

    made = data if ops is None else apply_beside(data, check_ops(ops))
    return made if isinstance(made, Mapping) else {}


def read_labels(given: Sequence[str] | None) -> dict[str, str]:
    """Read labels such as ``team=data``."""
    from weft.core.errors import InvalidInput

    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name or not value:
            raise InvalidInput("--label", f"{each!r} must be NAME=VALUE")
        if name in found:
            raise InvalidInput("--label", f"{name!r} is given twice")
        found[name] = value
    return found


def read_inputs(given: Sequence[str], declared: Mapping[str, Any], option: str = "--input") -> dict[str, Any]:
    """Read inputs such as ``size=3``: JSON, or text where that is declared or it is no JSON."""
    import json

    from weft.core.errors import InvalidInput

    found: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise InvalidInput(option, f"{each!r} must be NAME=VALUE")
        entry = declared.get(name)
        if isinstance(entry, dict) and entry.get("type", "string") == "string":
            found[name] = text
            continue
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


@asynccontextmanager
async def at_work(
    client: Client, modules: Sequence[str], leaving: Leaving | None = None, queues: Iterable[str] = ()
) -> AsyncIterator[None]:
    """Work and orchestrate here while the body runs; without handlers of one's own only orchestrate."""
    from weft.cli.output import remark
    from weft.sdk.orchestrator import Orchestrator
    from weft.sdk.running import worker_of
    from weft.worker.registry import REGISTRY

    async with Orchestrator(client=client):
        if REGISTRY.names():
            async with worker_of(client, REGISTRY, queues, modules):
                yield
        else:
            remark("no handlers here: tasks wait for workers, or give --app MODULE")
            yield
        # When the worker has ended: until then somebody may wish to cancel, and that takes an orchestrator.
        if leaving is not None:
            await leaving.settle()
