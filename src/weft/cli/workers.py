"""``weft workers``: looks at the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.inputs import read_id, read_word
from weft.cli.lists import Limit, Listing

if TYPE_CHECKING:
    from weft.queue.workers import WorkerInfo

app = new_app("Look at the workers.")

_COLUMNS = ("ID", "STATE", "HOST~", "PID>", "QUEUES~", "HANDLERS>", "AT ONCE>", "DONE>", "FAILED>", "BEAT", "UP", "")
_EMPTY = "no workers; start one with `weft worker --app MODULE`"
_LISTING = Listing("workers", _COLUMNS, _EMPTY, key="id", by="before")


# Without this, Typer takes an app of one command for the command itself.
@app.callback()
def group() -> None:
    """Look at the workers."""


@app.command("list")
def list_workers(
    state: Annotated[str | None, typer.Option(help="active, idle, lost or stopped.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that have stopped.")] = False,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    limit: Limit = None,
    as_json: JsonFlag = False,
) -> None:
    """List the workers, newest first."""
    from weft.core.states import WorkerState

    wanted, below = read_word("state", state, WorkerState), read_id("before", before)
    states = [wanted] if wanted is not None else None if every else sorted(set(WorkerState) - {WorkerState.STOPPED})
    found = call(lambda client: client.workers(state=states, before=below, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


def _row(worker: WorkerInfo) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    return (
        worker.id,
        state(worker.state),
        worker.hostname,
        worker.pid,
        ",".join(worker.queues),
        len(worker.handlers),
        worker.concurrency,
        worker.tasks_completed,
        worker.tasks_failed,
        when(worker.last_heartbeat),
        when(worker.started_at).removesuffix(" ago"),
        "leader" if worker.is_leader else "",
    )
