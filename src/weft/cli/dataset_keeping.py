"""The part of ``weft datasets`` that says what is kept: registered, handed over, deleted, removed for good."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, YesFlag
from weft.cli.calls import call
from weft.cli.completion import complete_dataset
from weft.cli.reasons import says_why

Name = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset.", autocompletion=complete_dataset)]


@says_why
def register(
    dataset: Name,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Where the files are: a folder, or `s3://bucket/prefix`.")
    ],
    glob: Annotated[
        str, typer.Option(help="Which files: `*` within a part of a path, `**/` any number of parts.")
    ] = "**/*.parquet",
    range: Annotated[str | None, typer.Option(metavar="A:B", help="Which range the files cover, as numbers.")] = None,
    partition_by: Annotated[
        str, typer.Option(metavar="HOW", help="`hive` if parts `name=value` of the paths are columns, else `none`.")
    ] = "none",
    replace: Annotated[
        bool, typer.Option("--replace", help="Look for the files again, if they are registered already.")
    ] = False,
    breaking: Annotated[
        bool, typer.Option("--breaking", help="Also with columns by which readers would stumble.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Register Parquet files that others have written, when they are complete, as a version that readers see."""
    from weft.cli.output import as_record, tell

    start, end = _range(range)
    found = call(
        lambda client: client.datasets.register(
            dataset, address, glob=glob, partition_by=partition_by, range_start=start, range_end=end, replace=replace,
            breaking=breaking,
        )
    )  # fmt: skip
    named = f"{found.name}@{found.version}.{found.write}"
    tell(as_record(found), f"{found.location} is {named}", as_json=as_json)


def _range(text: str | None) -> tuple[int | None, int | None]:
    from weft.core.errors import InvalidInput

    if text is None:
        return None, None
    start, _, end = text.partition(":")
    try:
        return int(start), int(end)
    except ValueError:
        raise InvalidInput("--range", f"{text!r} is no range: write it like 100:200") from None


@says_why
def hand_over(
    dataset: Name,
    to: Annotated[
        str, typer.Option(metavar="WORKFLOW/NODE", help="Who writes it then; `@task/HANDLER` for tasks without a job.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Let another node of a workflow write a dataset, instead of the one that did so far."""
    from weft.cli.output import as_record, tell
    from weft.core.errors import InvalidInput

    workflow, _, node = to.partition("/") if to.startswith("@") else to.rpartition("/")
    if not workflow or not node:
        raise InvalidInput("--to", f"{to!r} is nobody who writes: name a workflow and its node, like etl/load")
    found = call(lambda client: client.datasets.hand_over(dataset, workflow, node))
    tell(as_record(found), f"{dataset} is written by {found.producer}", as_json=as_json)


@says_why
def delete(dataset: Name, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Let a dataset be there no more; `undelete` brings it back within the retention."""
    from weft.cli.output import tell

    found = call(lambda client: client.datasets.show(dataset))
    if not yes:
        told = f"would delete {dataset} with {found.rows} rows: add --yes"
        tell({"dataset": dataset, "rows": found.rows, "deleted": False}, told, as_json=as_json)
        return
    found = call(lambda client: client.datasets.delete(dataset))
    told = f"deleted {dataset} with {found.rows} rows; `weft datasets undelete {dataset}` brings it back"
    tell({"dataset": dataset, "rows": found.rows, "deleted": True}, told, as_json=as_json)


@says_why
def gc(
    grace: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Keep what was seen within this: 7d, 6h; else as workers do.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove versions and files that nothing points to; workers do so every hour, after WEFT_DATASET_RETENTION."""
    from weft.cli.inputs import read_duration
    from weft.cli.output import as_record, plural, size_text, tell
    from weft.cli.progress import counted

    span = None if grace is None else read_duration("grace", grace)
    with counted("found" if dry_run else "removed") as show:
        done = call(lambda client: client.datasets.gc(span, dry_run=dry_run, on_progress=show))
    named = "" if not done.versions else f" ({', '.join(done.versions[:5])}{', …' if len(done.versions) > 5 else ''})"
    what = (
        f"{plural(len(done.versions), 'version')}{named}, {plural(done.datasets, 'deleted dataset')}, "
        f"{plural(done.files, 'file')} of {size_text(done.bytes)}, {plural(done.writes, 'write')} that came to nothing"
    )
    tell(as_record(done), f"{'would remove' if dry_run else 'removed'} {what}", as_json=as_json)


@says_why
def undelete(dataset: Name, as_json: JsonFlag = False) -> None:
    """Bring back the dataset of a name that was deleted last, with all it had."""
    from weft.cli.output import as_record, tell

    found = call(lambda client: client.datasets.undelete(dataset))
    tell(as_record(found), f"{dataset} is back with {found.rows} rows", as_json=as_json)
