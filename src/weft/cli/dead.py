"""``weft dead``: looks at the dead letters, replays or purges them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.calls import call, call_all, call_each
from weft.cli.inputs import read_duration, read_id, require_yes, wants_all
from weft.cli.reasons import says_why
from weft.cli.tasks import After, Before, DryRun, Limit, OfHandler, Oldest, Queue

if TYPE_CHECKING:
    from weft.sdk.client import Client

app = new_app("Look at the dead letters, tasks that ended failed or dead; replay or purge them.")


@app.command("list")
def list_dead(
    queue: Queue = None,
    handler: OfHandler = None,
    limit: Limit = 50,
    before: Before = None,
    oldest: Oldest = False,
    after: After = None,
    as_json: JsonFlag = False,
) -> None:
    """List tasks that ended failed or dead, newest first."""
    from weft.cli.task_output import full_page, print_page

    asked: dict[str, Any] = {
        "queue": queue, "handler": handler, "limit": limit, "oldest": oldest, "before": read_id("before", before),
        "after": read_id("after", after),
    }  # fmt: skip
    page = call(lambda client: full_page(client.dead_letters, **asked))
    print_page(page, oldest=oldest, as_json=as_json, empty="no dead letters", with_errors=True)


@app.command()
@says_why
def replay(
    task_ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of dead letters.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, or all of one queue or handler.")] = False,
    queue: Queue = None,
    handler: OfHandler = None,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Send dead letters round again: those named, or all."""
    if not wants_all(task_ids, every=every, narrowed=queue or handler or dry_run):
        call_each("replayed", task_ids or [], lambda client, key: client.replay(key, state="failed"), as_json=as_json)
        return
    call_all(
        "replay",
        "replayed",
        lambda client, only_count, show: client.replay_dead(
            queue=queue, handler=handler, dry_run=only_count, on_progress=show
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@says_why
def purge(
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Only those that ended longer ago than this: 12h, 7d.")
    ] = "0s",
    queue: Queue = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove dead letters for good. Without --yes it says how many that would be, and ends with 2."""
    from weft.cli.output import print_json, tell
    from weft.cli.progress import counted

    age = read_duration("older_than", older_than) or timedelta(0)
    if not yes:
        found = call(lambda client: client.count_dead(older_than=age, queue=queue))
        if as_json:
            print_json({"purged": 0, "found": found})
        if not found:
            if not as_json:
                print("no dead letters to purge")
            return
        require_yes(yes, f"this removes {found} dead letter{'' if found == 1 else 's'} for good")

    async def main(client: Client) -> int:
        if show is not None:
            show.total = await client.count_dead(older_than=age, queue=queue)
        return await client.purge(older_than=age, queue=queue, on_progress=show)

    with counted("purged") as show:
        count = call(main)
    tell({"purged": count, "found": count}, f"purged {count}", as_json=as_json)
