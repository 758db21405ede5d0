"""``weft audit``: looks at what was done, by whom, and whether that is still what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.completion import complete_queue
from weft.cli.inputs import read_id, read_since
from weft.cli.lists import Listing

if TYPE_CHECKING:
    from weft.queue.audit import AuditEntry

app = new_app("Look at what was done: who submitted, pushed, cancelled, replayed, paused, limited what, when, and why.")

_COLUMNS = ("ID", "WHEN", "ACTOR~", "VERB", "SUBJECT~", "DETAIL~", "WHY~", "FROM~")


@app.command("list")
def list_entries(
    verb: Annotated[
        str | None,
        typer.Option(help="submit, push, move, cancel, replay, purge, create, pause, resume, grant, …."),
    ] = None,
    actor: Annotated[str | None, typer.Option(help="What this one did: a user, token:NAME or user@host.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="What was done to this task.")] = None,
    job: Annotated[str | None, typer.Option(metavar="ID", help="What was done to this job.")] = None,
    queue: Annotated[
        str | None, typer.Option(help="What was done to this queue.", autocompletion=complete_queue)
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Done then or later: 2h, 'yesterday 10:00', a moment.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Done before.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on above this id: with --oldest.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List what was done, newest first."""
    asked: dict[str, Any] = {
        "verb": verb, "actor": actor, "queue": queue, "limit": limit, "sort": "oldest" if oldest else "newest",
        "task": read_id("task", task), "job": read_id("job", job, shown_by="weft jobs list"),
        "since": read_since("since", since), "until": read_since("until", until),
        "before": read_id("before", before), "after": read_id("after", after),
    }  # fmt: skip
    entries = call(lambda client: client.audit(**asked))
    shown = Listing("entries", _COLUMNS, "nobody did anything", key="id", by="after" if oldest else "before")
    shown.show(entries, _row, limit, as_json=as_json)


@app.command()
def verify(
    head: Annotated[
        str | None, typer.Option(metavar="HEAD", help="A head that was noted before: it must still be there.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say whether what was done is still as it was sealed; exit code 1 when it is not.

    Note the head that is printed where nobody who may write the database can reach it: with --head it is evident when
    anything before it was changed or taken away since. Without it whoever may write the database can make a new chain.
    """
    from weft.cli.output import as_record, complain, print_json, when

    found = call(lambda client: client.verify_audit(head=head))
    if as_json:
        print_json(as_record(found))
    else:
        for each in found.findings:
            complain(each.what)
        print(f"{found.sealed} acts are sealed" + (f", head {found.head}" if found.head else ""))
        if found.unsealed:
            print(
                f"{found.unsealed} are not sealed yet, since {when(found.unsealed_since)}: a worker that runs does it"
            )
    if not found.is_sound:
        raise typer.Exit(1)


def _row(entry: AuditEntry) -> tuple[Any, ...]:
    from weft.cli.output import when

    said = detail_text(entry), entry.reason or "", entry.origin or ""
    return entry.id, when(entry.at), entry.actor, entry.verb, _subject(entry), *said


def _subject(entry: AuditEntry) -> str:
    if entry.subject_name is not None:
        return f"{entry.subject_kind} {entry.subject_name}"
    if len(entry.subject_ids) == 1:
        return f"{entry.subject_kind} {entry.subject_ids[0]}"
    return f"{entry.detail.get('count', len(entry.subject_ids))} {entry.subject_kind}s"


def detail_text(entry: AuditEntry) -> str:
    """Return what else is known of an act, but for its count."""
    return ", ".join(
        f"{name}: {'none' if value is None else value}" for name, value in entry.detail.items() if name != "count"
    )
