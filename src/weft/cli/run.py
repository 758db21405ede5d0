"""``weft run``: executes a workflow in this process, shows how it goes, and prints its result."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from weft.cli.apps import JsonFlag, new_app

if TYPE_CHECKING:
    from weft.cli.leaving import Leaving
    from weft.jobs.model import Job
    from weft.sdk.client import Client

app = new_app()
FAILED = 1
CANCELLED = 6


@app.command()
def run(
    workflow: Annotated[str, typer.Argument(metavar="FILE|TAG", help="A file of YAML or JSON, a tag, or a version.")],
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="NAME=VALUE", help="An input; may be repeated.")
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--app", metavar="MODULE", help="A module with handlers, importable from here; may be repeated."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only submit it, to workers and orchestrators that run elsewhere.")
    ] = False,
    priority: Annotated[int, typer.Option(help="Higher comes first.")] = 0,
    idempotency_key: Annotated[str | None, typer.Option(help="A key that is known creates nothing.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Execute a workflow and print its result; the exit code is 1 when it failed.

    Its tasks run in this process, by the handlers of --app, and in whatever workers there are. All that is durable:
    ended in the middle, the job goes on when a worker and an orchestrator are there again. Ctrl-C leaves it, a second
    one cancels it.
    """
    from weft.cli.calls import call
    from weft.cli.output import print_json
    from weft.cli.worker_process import import_apps

    import_apps(modules or [])
    what: Any = Path(workflow) if _is_file(workflow) else workflow

    async def main(client: Client) -> Job | None:
        given = read_inputs(inputs or [], await _declared(client, what))
        handle = await client.jobs.submit(what, given, priority=priority, idempotency_key=idempotency_key)
        if detach:
            answer = {"id": str(handle.id), "created": handle.created}
            print_json(answer) if as_json else print(handle.id)
            return None
        if as_json:
            async with _at_work(client, modules or []):
                return await client.jobs.wait(handle.id)
        from weft.cli.job_watch import watch
        from weft.cli.leaving import Leaving

        async with Leaving(client, handle.id, works=True) as leaving:
            async with _at_work(client, modules or [], leaving):
                job = await watch(client, handle.id, leaving)
            return job if job.state.is_final else await client.jobs.show(handle.id)

    job = call(main)
    if job is not None:
        end_with(job, as_json=as_json)


def end_with(job: Job, *, as_json: bool) -> NoReturn:
    """Print a job, or its result, and end with the code that tells how it ended; 130 when somebody left it."""
    from weft.cli.leaving import INTERRUPTED
    from weft.cli.output import as_record, print_json

    if as_json:
        print_json(as_record(job))
    elif job.state == "completed":
        print_json(job.result)
    codes = {"completed": 0, "failed": FAILED, "cancelled": CANCELLED}
    raise typer.Exit(codes.get(job.state, INTERRUPTED))


def _is_file(workflow: str) -> bool:
    return workflow.endswith((".yaml", ".yml", ".json")) or Path(workflow).is_file()


async def _declared(client: Client, what: Path | str) -> Mapping[str, Any]:
    """Return the inputs that a workflow declares, as they are written."""
    from weft.flow.reading import read_file

    data = read_file(what).data if isinstance(what, Path) else (await client.workflows.show(what)).data
    declared = data.get("inputs") if isinstance(data, dict) else None
    return declared if isinstance(declared, dict) else {}


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
async def _at_work(client: Client, modules: Sequence[str], leaving: Leaving | None = None) -> AsyncIterator[None]:
    """Work and orchestrate here while the body runs; without handlers of one's own only orchestrate."""
    from weft.sdk.orchestrator import Orchestrator
    from weft.sdk.worker import Worker
    from weft.worker.registry import REGISTRY

    async with Orchestrator(client=client):
        if REGISTRY.names():
            async with Worker(client=client, app_modules=modules):
                yield
        else:
            print("weft: no handlers here: tasks wait for workers, or give --app MODULE", file=sys.stderr)
            yield
        if leaving is not None:
            await leaving.settle()
