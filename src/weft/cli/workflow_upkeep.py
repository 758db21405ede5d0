"""The upkeep of ``weft workflows``: keeps documents whole, looks through the history, removes what nobody needs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import JsonFlag
from weft.cli.calls import call_workflows
from weft.cli.completion import complete_tag
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.history.model import Collected, Finding
    from weft.sdk.workflows import Workflows

Which = Annotated[
    str,
    typer.Argument(
        metavar="TAG|VERSION",
        help="A tag, the id or hash of a version, or a point: etl~2, etl@12, 'etl@2h ago'.",
        autocompletion=complete_tag,
    ),
]
Message = Annotated[str | None, typer.Option("--message", "-m", help="Why.")]
At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="As the tag was then: 2026-11-15T10:00, 'yesterday 10:00' or '2h ago'."),
]


def snapshot(
    which: Which,
    file: Annotated[Path | None, typer.Option("--file", help="A JSON Patch to apply, or - for the input.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=JSON", help="nodes.x.params.y=3; may be repeated.")
    ] = None,
    at: At = None,
    message: Message = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep a whole document, or what a patch makes of it, where no tag moves; the same again is found."""
    from weft.cli.definitions import read_assignments, read_ops
    from weft.cli.inputs import read_moment
    from weft.cli.output import as_record, tell

    ops = None if file is None else read_ops(file)
    wanted = read_assignments(assignments) if assignments else None
    moment = None if at is None else read_moment("at", at)
    kept = call_workflows(lambda w: w.snapshot(which, ops, set=wanted, at=moment, message=message))
    tell(as_record(kept), f"{kept.snapshot_id} has it whole: {kept.version_hash[:12]}", as_json=as_json)


@says_why
def fsck(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what follows from the rest of the history.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Do not work out anew what each document means.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Look through the whole history; ends with 1 when something is wrong that was not mended."""
    from weft.cli.output import as_record, one_line, plural, print_json, print_line, styled
    from weft.cli.progress import counted
    from weft.cli.target import goes_to_server

    async def main(w: Workflows) -> list[Finding]:
        if show is not None and not goes_to_server([]):
            show.total = await w._count_artifacts()
        return await w.fsck(repair=repair, quick=quick, on_progress=show)

    with counted("looked at") as show:
        found = call_workflows(main)
    if as_json:
        print_json({"findings": [as_record(finding) for finding in found]})
    else:
        for each in found:
            print_line(styled(f"{each.what}: ", "bold") + styled(f"{one_line(each.problem)} [{each.code}]", ""))
            if each.mended is not None:
                print_line(styled("  mended: ", "green") + styled(one_line(each.mended), ""))
        mended = sum(each.mended is not None for each in found)
        told = f"{plural(len(found), 'finding')}, {mended} mended" if found else "the history is whole"
        print_line(told)
    # What nobody refers to is no fault: it is removed in its time.
    raise typer.Exit(1 if any(each.mended is None and each.code != "unreachable_blob" for each in found) else 0)


@says_why
def gc(
    grace: Annotated[str, typer.Option(metavar="SPAN", help="Keep what is younger than this: 1d, 6h.")] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove snapshots and blobs that nobody uses; what a tag has ever been at stays."""
    from weft.cli.inputs import read_duration
    from weft.cli.output import as_record, plural, tell
    from weft.cli.progress import counted

    span = read_duration("grace", grace) or timedelta(0)

    async def main(w: Workflows) -> Collected:
        if show is not None and not dry_run:
            all_of_it = await w.gc(span, dry_run=True)
            show.total = all_of_it.snapshots + all_of_it.patches + all_of_it.blobs
        return await w.gc(span, dry_run=dry_run, on_progress=show)

    with counted("found" if dry_run else "removed") as show:
        done = call_workflows(main)
    verb = "would remove" if dry_run else "removed"
    of_history = f"{plural(done.snapshots, 'snapshot')}, {plural(done.patches, 'patch')} of theirs"
    what = f"{of_history}, {plural(done.blobs, 'blob')} of {plural(done.bytes, 'byte')}"
    tell(as_record(done), f"{verb} {what}", as_json=as_json)
