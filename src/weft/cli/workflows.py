"""``weft workflows``: keeps workflow definitions, changes them, and looks back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call_workflows
from weft.cli.completion import complete_deleted_tag, complete_tag
from weft.cli.diff import diff, print_diff
from weft.cli.reasons import says_why
from weft.cli.workflow_upkeep import At, Message, Which, fsck, gc, snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from weft.history.model import Artifact, Materialized, Pushed, Tag
    from weft.sdk.workflows import Workflows

app = new_app("Keep workflow definitions, change them, and look back.")

TagName = Annotated[
    str, typer.Argument(metavar="TAG", help="A tag; `etl` means `etl/main`.", autocompletion=complete_tag)
]
DeletedTag = Annotated[
    str, typer.Argument(metavar="TAG", help="A tag; `etl` means `etl/main`.", autocompletion=complete_deleted_tag)
]
Expect = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="Refuse when the tag's version number, or hash (7 digits do), is another."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Force = Annotated[bool, typer.Option("--force", help="Also when the tag is protected.")]
Replaces = Annotated[
    str | None,
    typer.Option(metavar="WORKFLOW", help="The other workflow that the tag is of, and will not be any more."),
]
Limit = Annotated[int, typer.Option(help="How many at most.")]
Steps = Annotated[int, typer.Argument(metavar="STEPS", help="How many moves.")]
Prefer = Annotated[str | None, typer.Option(metavar="ours|theirs", help="Whose value to take where both changed one.")]


@app.command()
def push(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE|MODULE:NAME", help="A YAML or JSON file, - for the input, or a Python workflow."),
    ],
    tag: Annotated[
        str | None, typer.Option(help="The tag to move; `main` by default, that is `<workflow_id>/main`.")
    ] = None,
    message: Message = None,
    expect: Expect = None,
    force: Force = False,
    replaces: Replaces = None,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Keep a definition, and move a tag to it."""
    from weft.cli.definitions import find_workflow, is_input, read_input

    what = read_input() if is_input(file) else find_workflow(str(file)) or file
    options = _options(message, expect, force=force, dry_run=dry_run) | {"replaces": replaces}
    done = call_workflows(lambda w: w.push(what, tag=tag, **options))
    _tell_pushed(done, "pushed", as_json=as_json)


@app.command("list")
def list_tags(
    workflow: Annotated[str | None, typer.Option(help="Of this workflow only.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Those that were deleted too.")] = False,
    after: Annotated[str, typer.Option(metavar="TAG", help="Go on after this name: the next page.")] = "",
    limit: Limit = 100,
    as_json: JsonFlag = False,
) -> None:
    """List tags by name, with what they are at."""
    from weft.cli.output import as_record, print_json, print_more, print_table

    found = call_workflows(lambda w: w.list(workflow_id=workflow, after=after, limit=limit, with_deleted=deleted))
    if as_json:
        print_json({"tags": [as_record(tag) for tag in found]})
    else:
        columns = ("TAG~", "WORKFLOW~", "VERSION>", "AT", "HASH", "MOVED", "BY~", "")
        print_table(columns, map(_tag_row, found), empty="no tags: push a definition")
        if len(found) == limit:
            print_more("--after", found[-1].name)


def _tag_row(tag: Tag) -> tuple[Any, ...]:
    from weft.cli.output import when

    mark = "deleted" if tag.deleted_at else "protected" if tag.is_protected else ""
    return (
        tag.name,
        tag.workflow_id,
        tag.version,
        tag.target_id,
        (tag.target_hash or "")[:12],
        when(tag.moved_at),
        tag.moved_by,
        mark,
    )


@app.command()
def show(
    which: Which,
    at: At = None,
    materialize: Annotated[bool, typer.Option("--materialize", help="Print the whole document, as YAML.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what a tag or a version is at; with --materialize the document itself."""
    from weft.cli.inputs import read_moment
    from weft.cli.output import as_record, complain, moment_text, print_facts, print_json

    moment = None if at is None else read_moment("at", at)
    found, change = call_workflows(lambda w: _shown(w, which, moment))
    if found.damage is not None and not as_json:
        complain(f"passed over: {found.damage}; `weft workflows fsck --repair` mends it")
    if as_json:
        print_json(as_record(found))
    elif materialize:
        from weft.flow.writing import write_yaml

        print(write_yaml(found.data), end="")
    else:
        nodes = found.data.get("nodes") or {}
        print_facts(
            {
                "workflow": found.data.get("workflow_id"),
                "tag": found.tag,
                "tag version": found.tag_version,
                "version": found.artifact_id,
                "kind": found.kind,
                "depth": found.depth,
                "hash": found.version_hash,
                "made": f"{moment_text(change.created_at)} by {change.actor}",
                "message": change.message,
                "nodes": f"{len(nodes)}: {', '.join(list(nodes)[:12])}{', …' if len(nodes) > 12 else ''}",
            }
        )


async def _shown(workflows: Workflows, which: str, at: datetime | None) -> tuple[Materialized, Artifact]:
    found = await workflows.show(which, at=at)
    return found, (await workflows.log(found.artifact_id, limit=1))[0]


@app.command()
def patch(
    tag: TagName,
    file: Annotated[Path | None, typer.Option("--file", help="A JSON Patch (RFC 6902), or - for the input.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=JSON", help="nodes.x.params.y=3; may be repeated.")
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Open the document in $EDITOR; with --file, one that was kept.")
    ] = False,
    message: Message = None,
    expect: Expect = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Change a definition: by a JSON Patch, by fields to set, or in an editor. The result must be sound."""
    from weft.cli.definitions import read_assignments, read_ops
    from weft.cli.editing import patch_by_hand
    from weft.core.errors import InvalidInput

    if (file is not None or edit) + bool(assignments) != 1:
        raise InvalidInput("patch", "give one of --file, --set and --edit")
    if edit and dry_run:
        raise InvalidInput("--dry-run", "goes with --file and --set, and not with --edit")
    options = _options(message, expect, force=force, dry_run=dry_run)
    if edit:
        done = patch_by_hand(tag, file, options)
    elif file is not None:
        ops = read_ops(file)
        done = call_workflows(lambda w: w.patch(tag, ops, **options))
    else:
        wanted = read_assignments(assignments or [])
        done = call_workflows(lambda w: w.patch(tag, set=wanted, **options))
    _tell_pushed(done, "patched", as_json=as_json)


@app.command()
def log(
    which: Which,
    graph: Annotated[bool, typer.Option("--graph", help="Draw where lines part and come together.")] = False,
    limit: Limit = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the versions and patches that led to a version, newest first."""
    from weft.cli.inputs import read_id
    from weft.cli.lanes import Drawn, draw_lanes
    from weft.cli.output import as_record, one_line, print_json, print_line, print_more, styled, when

    key = read_id("before", before)
    found = call_workflows(lambda w: w.log(which, before=key, limit=limit))
    if as_json:
        print_json({"log": [as_record(artifact) for artifact in found]})
        return
    lines = draw_lanes([(each.id, _parents(each)) for each in found]) if graph else repeat(Drawn("", []))
    for artifact, drawn in zip(found, lines, strict=False):
        tags = styled(f" ({', '.join(artifact.tags)})" if artifact.tags else "", "yellow")
        who = f"  {artifact.actor}, {when(artifact.created_at)}"
        line = styled(drawn.lead, "dim") + styled(f"{artifact.id} {artifact.kind} {artifact.version_hash[:12]}", "bold")
        why = f"  {one_line(artifact.message)}" if artifact.message else ""
        print_line(line + tags + styled(one_line(who), "dim") + styled(why, ""))
        for below in drawn.below:
            print_line(styled(below, "dim"))
    if len(found) == limit:
        print_more("--before", found[-1].id)


@app.command("artifacts")
def list_artifacts(
    workflow: Annotated[str | None, typer.Option(help="Of this workflow only.")] = None,
    limit: Limit = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List all that is kept, newest first, also what no tag leads to any more."""
    from weft.cli.inputs import read_id
    from weft.cli.output import as_record, print_json, print_more, print_table, when

    key = read_id("before", before)
    found = call_workflows(lambda w: w.artifacts(workflow_id=workflow, before=key, limit=limit))
    if as_json:
        print_json({"artifacts": [as_record(artifact) for artifact in found]})
        return
    rows = [
        (each.id, each.kind, each.workflow_id, each.version_hash[:12], ", ".join(each.tags), when(each.created_at),
         each.actor, each.message or "")
        for each in found
    ]  # fmt: skip
    columns = ("ID", "KIND", "WORKFLOW~", "HASH", "TAGS~", "MADE", "BY~", "MESSAGE~")
    print_table(columns, rows, empty="nothing is kept: push a definition")
    if len(found) == limit:
        print_more("--before", found[-1].id)


def _parents(artifact: Artifact) -> list[int]:
    return [each for each in (artifact.parent_id, artifact.merged_id) if each is not None]


@app.command()
def moves(
    tag: TagName,
    limit: Limit = 50,
    before: Annotated[int | None, typer.Option(metavar="N", help="Go on below this move: the next page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List where a tag has been, newest first: who moved it, when, why."""
    from weft.cli.output import as_record, print_json, print_more, print_table, when

    found = call_workflows(lambda w: w.moves(tag, before=before, limit=limit))
    if as_json:
        print_json({"moves": [as_record(move) for move in found]})
    else:
        rows = ((m.version, m.verb, m.from_id, m.to_id, when(m.moved_at), m.moved_by, m.message or "") for m in found)
        print_table(("VERSION>", "VERB", "FROM", "TO", "MOVED", "BY~", "MESSAGE~"), rows, empty="no moves")
        if len(found) == limit and found[-1].version > 1:
            print_more("--before", found[-1].version)


@app.command()
def blame(which: Which, as_json: JsonFlag = False) -> None:
    """Say of each field which change last touched it."""
    from weft.cli.output import as_record, print_json, print_table, when
    from weft.flow.problems import dotted

    found = call_workflows(lambda w: w.blame(which))
    if as_json:
        told = ("id", "actor", "created_at", "message")
        fields = ((path, as_record(artifact)) for path, artifact in found.items())
        print_json({"fields": [{"path": dotted(path), **{name: a[name] for name in told}} for path, a in fields]})
    else:
        rows = ((dotted(path), a.id, a.actor, when(a.created_at), a.message or "") for path, a in found.items())
        print_table(("FIELD~", "CHANGE", "BY~", "WHEN", "MESSAGE~"), rows, empty="no fields")


def _stepped(verb: str, done: str, contract: str) -> Callable[..., None]:
    """Return the command of a verb that goes along the moves of a tag."""

    def command(
        tag: TagName,
        steps: Steps = 1,
        message: Message = None,
        expect: Expect = None,
        force: Force = False,
        as_json: JsonFlag = False,
    ) -> None:
        options: dict[str, Any] = {"message": message, "expect": expect, "force": force}
        _tell_tag(call_workflows(lambda w: getattr(w, verb)(tag, steps, **options)), done, as_json=as_json)

    command.__doc__ = contract
    return command


app.command("undo")(_stepped("undo", "undone", "Take back the last moves of a tag."))
app.command("redo")(_stepped("redo", "redone", "Make moves again that were taken back."))


@app.command()
def tag(
    name: TagName,
    to: Which,
    message: Message = None,
    expect: Expect = None,
    force: Force = False,
    replaces: Replaces = None,
    as_json: JsonFlag = False,
) -> None:
    """Move a tag to what another tag, an id or a hash names; it is made when it is not there."""
    options: dict[str, Any] = {"message": message, "expect": expect, "force": force, "replaces": replaces}
    done = call_workflows(lambda w: w.move(name, to, **options))
    _tell_tag(done, "moved", as_json=as_json)


@app.command()
def branch(new: TagName, source: Which, message: Message = None, as_json: JsonFlag = False) -> None:
    """Make a new tag at what another tag, an id or a hash names."""
    _tell_tag(call_workflows(lambda w: w.branch(new, source, message=message)), "branched", as_json=as_json)


@app.command()
def merge(
    source: Which,
    into: Annotated[str, typer.Option(metavar="TAG", help="The tag that takes it over.", autocompletion=complete_tag)],
    prefer: Prefer = None,
    message: Message = None,
    expect: Expect = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Take over what another line has changed since both parted; nothing when both changed a field differently."""
    options = _options(message, expect, force=force, dry_run=dry_run)
    done = call_workflows(lambda w: w.merge(source, into, prefer=prefer, **options))
    _tell_pushed(done, "merged", as_json=as_json)


@app.command()
def revert(
    tag: TagName,
    change: Annotated[str, typer.Argument(metavar="ID", help="The change to take back: its id, or TAG~2.")],
    prefer: Prefer = None,
    message: Message = None,
    expect: Expect = None,
    force: Force = False,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Take back one change, and keep what came after it."""
    options = _options(message, expect, force=force, dry_run=dry_run)
    done = call_workflows(lambda w: w.revert(tag, change, prefer=prefer, **options))
    _tell_pushed(done, "reverted", as_json=as_json)


@app.command()
def delete(
    tag: TagName, message: Message = None, expect: Expect = None, force: Force = False, as_json: JsonFlag = False
) -> None:
    """Take a tag away; `undelete` brings it back."""
    options: dict[str, Any] = {"message": message, "expect": expect, "force": force}
    _tell_tag(call_workflows(lambda w: w.delete(tag, **options)), "deleted", as_json=as_json)


@app.command()
def undelete(tag: DeletedTag, message: Message = None, expect: Expect = None, as_json: JsonFlag = False) -> None:
    """Bring back a tag that was deleted."""
    done = call_workflows(lambda w: w.undelete(tag, message=message, expect=expect))
    _tell_tag(done, "undeleted", as_json=as_json)


@app.command()
@says_why
def protect(
    tag: TagName,
    off: Annotated[bool, typer.Option("--off", help="Take the protection away.")] = False,
    expect: Expect = None,
    as_json: JsonFlag = False,
) -> None:
    """Let a tag be moved only by --force."""
    from weft.cli.output import tell

    name = call_workflows(lambda w: w.protect(tag, not off, expect=expect))
    tell({"tag": name, "protected": not off}, f"{name} is {'free' if off else 'protected'}", as_json=as_json)


@app.command()
@says_why
def compact(tag: TagName, expect: Expect = None, as_json: JsonFlag = False) -> None:
    """Make one version of a tag's patches; it means the same."""
    _tell_pushed(call_workflows(lambda w: w.compact(tag, expect=expect)), "compacted", as_json=as_json)


for command in (snapshot, fsck, gc, diff):
    app.command()(command)


def _options(message: str | None, expect: str | None, *, force: bool, dry_run: bool) -> dict[str, Any]:
    return {"message": message, "expect": expect, "force": force, "dry_run": dry_run}


def _tell_pushed(done: Pushed, verb: str, *, as_json: bool) -> None:
    from weft.cli.output import as_record, tell

    is_plan = done.is_dry_run and done.created
    what = f"would be {verb}" if is_plan else f"{verb} {done.artifact_id}" if done.created else "nothing to change"
    text = f"{what}: {done.tag} {'would be' if is_plan else 'is'} at {done.version_hash[:12]}, move {done.tag_version}"
    tell(as_record(done) | {"diff": None if done.diff is None else done.diff.to_json()}, text, as_json=as_json)
    if done.diff is not None and not as_json:
        print_diff(done.diff)


def _tell_tag(done: Tag, verb: str, *, as_json: bool) -> None:
    from weft.cli.output import as_record, tell

    stands = "was" if done.deleted_at is not None else "is"
    tell(as_record(done), f"{verb}: {done.name} {stands} at {done.target_id}, move {done.version}", as_json=as_json)
