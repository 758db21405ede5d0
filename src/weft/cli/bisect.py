"""``weft bisect``: finds the change that broke a workflow."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import HandlersOption, InputsOption, JsonFlag, new_app
from weft.cli.completion import complete_tag

if TYPE_CHECKING:
    from weft.history.model import Artifact
    from weft.sdk.bisecting import Bisected, BisectStep
    from weft.sdk.client import Client

app = new_app()


@app.command()
def bisect(
    tag: Annotated[
        str, typer.Argument(metavar="TAG", help="A tag that stands at what fails.", autocompletion=complete_tag)
    ],
    good: Annotated[str, typer.Option(metavar="VERSION", help="A version that works: a tag, an id or a hash.")],
    bad: Annotated[
        str | None, typer.Option(metavar="VERSION", help="One that fails, when it is not the tag's.")
    ] = None,
    inputs: InputsOption = None,
    modules: HandlersOption = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long to wait for each version: 30s, 10m.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find the change that broke a workflow: run versions between one that works and one that fails, by halves.

    What a change leaves as it is keeps its output from one to the next. The jobs stay, and can be looked at.
    """
    from weft.cli.calls import call
    from weft.cli.inputs import read_duration
    from weft.cli.output import print_json
    from weft.cli.run import at_work, declared_inputs, read_inputs
    from weft.cli.target import goes_to_server
    from weft.cli.worker_process import import_apps
    from weft.worker.registry import REGISTRY

    is_elsewhere = goes_to_server(modules or [])
    import_apps(modules or [])
    patience = read_duration("timeout", timeout)

    async def main(client: Client) -> Bisected:
        given = read_inputs(inputs or [], await declared_inputs(client, bad or tag))
        queues: set[str] = set()
        for which in () if is_elsewhere else (good, bad or tag):
            queues |= await client.jobs._queues_of_version(which, REGISTRY.knows)
        async with nullcontext() if is_elsewhere else at_work(client, modules or [], queues=queues):
            return await client.jobs.bisect(
                tag, good=good, bad=bad, inputs=given, timeout=patience, on_step=_tell,
                registry=REGISTRY if modules else None,
            )  # fmt: skip

    found = call(main)
    print_json(_record(found)) if as_json else _print(found)


def _tell(step: BisectStep) -> None:
    from weft.cli.output import remark

    how = "works" if step.is_good else f"fails: {step.problem or step.state}"
    ran, kept = ", ".join(step.ran) or "nothing", ", ".join(step.kept) or "nothing"
    by = "could not be submitted" if step.job_id is None else f"job {step.job_id} ran {ran}; kept {kept}"
    remark(f"{_name(step.artifact)} {how} ({by})")


def _name(artifact: Artifact) -> str:
    return f"{artifact.kind} {artifact.id} ({artifact.version_hash[:12]})"


def _print(found: Bisected) -> None:
    from weft.cli.diff import print_diff
    from weft.cli.output import moment_text, one_line, print_facts

    bad = found.bad
    print_facts(
        {
            "broken by": _name(bad),
            "author": bad.actor,
            "made": moment_text(bad.created_at),
            "message": None if bad.message is None else one_line(bad.message),
            "worked at": _name(found.good),
            "tried": f"{len(found.steps)} versions",
        }
    )
    print()
    print_diff(found.diff)


def _record(found: Bisected) -> dict[str, Any]:
    from weft.cli.output import as_record

    steps = [{**as_record(step), "artifact": as_record(step.artifact)} for step in found.steps]
    return {"bad": as_record(found.bad), "good": as_record(found.good), "diff": found.diff.to_json(), "steps": steps}
