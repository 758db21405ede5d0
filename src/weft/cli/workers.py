"""``weft workers``: looks at the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.inputs import read_word

if TYPE_CHECKING:
    from weft.queue.workers import WorkerInfo

app = new_app("Look at the workers.")

_COLUMNS = ("ID", "STATE", "HOST~", "PID>", "QUEUES~", "HANDLERS>", "AT ONCE>", "DONE>", "FAILED>", "BEAT", "UP", "")


# Without this, Typer takes an app of one command for the command itself.
@app.callback()
def group() -> None:
    """Look at the workers."""


@app.command("list")
def list_workers(
    state: Annotated[str | None, typer.Option(help="active, idle, lost or stopped.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that have stopped.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the workers, newest first."""
    from weft.cli.output import as_record, print_json, print_table
    from weft.core.states import WorkerState

    wanted = read_word("state", state, WorkerState)
    found = call(lambda client: client.workers(state=wanted))
    if not every and wanted is None:
        found = [worker for worker in found if worker.state != "stopped"]
    if as_json:
        print_json({"workers": [as_record(worker) for worker in found]})
    else:
        print_table(_COLUMNS, map(_row, found), empty="no workers; start one with `weft worker --app MODULE`")


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
