"""``weft tasks``: looks at tasks, enqueues, cancels and replays them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call, call_all, call_each
from weft.cli.completion import complete_queue, complete_state
from weft.cli.inputs import read_duration, read_id, read_moment, read_params, read_retry, wants_all
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.queue.model import Task
    from weft.queue.why import Why
    from weft.sdk.client import Client

app = new_app("Look at tasks, enqueue, cancel and replay them.")

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The id of a task.")]
TaskIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of tasks.")]
Queue = Annotated[str | None, typer.Option(help="Of this queue only.", autocompletion=complete_queue)]
OfHandler = Annotated[str | None, typer.Option("--handler", help="Of this handler only.")]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", help="In this state; may be repeated. `failed` covers dead.", autocompletion=complete_state
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]
Limit = Annotated[int, typer.Option(help="How many at most.")]
Before = Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")]

Oldest = Annotated[bool, typer.Option("--oldest", help="Oldest first.")]
After = Annotated[str | None, typer.Option(metavar="ID", help="Go on above this id: with --oldest.")]


@app.command("list")
def list_tasks(
    state: States = None,
    queue: Queue = None,
    handler: OfHandler = None,
    limit: Limit = 50,
    before: Before = None,
    oldest: Oldest = False,
    after: After = None,
    as_json: JsonFlag = False,
) -> None:
    """List tasks, newest first."""
    from weft.cli.task_output import full_page, print_page

    asked: dict[str, Any] = {
        "state": state or None, "queue": queue, "handler": handler, "limit": limit, "oldest": oldest,
        "before": read_id("before", before), "after": read_id("after", after),
    }  # fmt: skip
    page = call(lambda client: full_page(client.list_tasks, **asked))
    print_page(page, oldest=oldest, as_json=as_json, empty="no tasks")


@app.command()
def show(task_id: TaskId, as_json: JsonFlag = False) -> None:
    """Show a task with its params, its output, its attempts, and what it waits for."""
    from weft.cli.output import as_record, print_json
    from weft.cli.task_output import print_task

    key = read_id("id", task_id) or 0

    async def look(client: Client) -> tuple[Task, Why]:
        return await client.get_task(key), await client.why(key)

    task, why = call(look)
    if as_json:
        print_json(as_record(task) | {"why": as_record(why)})
    else:
        print_task(task, why)


@app.command()
def why(task_id: TaskId, as_json: JsonFlag = False) -> None:
    """Tell why a task does not run, and what to do about it."""
    from weft.cli.output import as_record, print_json
    from weft.cli.task_output import why_text

    key = read_id("id", task_id) or 0
    found = call(lambda client: client.why(key))
    if as_json:
        print_json(as_record(found))
    else:
        print(why_text(found))


@app.command()
def enqueue(
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="The handler's name.")],
    params: Annotated[
        str | None, typer.Option(metavar="JSON|-|@FILE", help="A JSON object: the handler's arguments.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="The queue.", autocompletion=complete_queue)] = None,
    priority: Annotated[int, typer.Option(help="Higher comes first.")] = 0,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A key that this handler has seen creates nothing.")
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="DURATION", help="Wait this long first: 30s, 10m, 2h.")] = None,
    run_at: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Wait until this moment: 2026-11-30T09:00+01:00.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="How often it is attempted.")] = None,
    backoff: Annotated[
        str | None, typer.Option(metavar="WORD", help="How delays grow: exponential, linear, fixed.")
    ] = None,
    retry_delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long to wait after the first failure.")
    ] = None,
    max_retry_delay: Annotated[str | None, typer.Option(metavar="DURATION", help="How long to wait at most.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="How long an attempt may take.")] = None,
    heartbeat_timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long the handler may be without a heartbeat.")
    ] = None,
    concurrency_key: Annotated[str | None, typer.Option(help="Tasks of one key share a limit.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and print its output.")] = False,
    wait_timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait no longer than this; implies --wait.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Put a task into a queue and print its id."""
    import asyncio

    from weft.cli.output import print_json
    from weft.cli.patience import explained
    from weft.core.errors import TaskFailed, WaitTimeout

    options: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "idempotency_key": idempotency_key,
        "delay": read_duration("delay", delay),
        "run_at": read_moment("run_at", run_at),
        "max_attempts": max_attempts,
        "retry": read_retry(max_attempts, backoff, retry_delay, max_retry_delay),
        "timeout": read_duration("timeout", timeout),
        "heartbeat_timeout": read_duration("heartbeat_timeout", heartbeat_timeout),
        "concurrency_key": concurrency_key,
    }
    value = read_params(params)
    patience = read_duration("wait_timeout", wait_timeout)

    async def main(client: Client) -> None:
        handle = await client.enqueue(handler, value, **options)
        answer: dict[str, Any] = {"id": str(handle.id), "created": handle.created}
        if not as_json:
            print(handle.id if handle.created else f"{handle.id} (known by its idempotency key)", flush=True)
        if wait or patience is not None:
            try:
                async with explained(client, handle.id):
                    output = await client.wait(handle.id, None if patience is None else patience.total_seconds())
            except TaskFailed as problem:
                if as_json:
                    print_json({**answer, "state": problem.state, "error": problem.problem})
                raise
            except (WaitTimeout, asyncio.CancelledError):  # or Ctrl-C: the task is there all the same
                if as_json:
                    print_json(answer)
                raise
            answer |= {"state": "completed", "output": output}
            if not as_json:
                print_json(output)
        if as_json:
            print_json(answer)

    call(main)


@app.command("enqueue-many")
def enqueue_many(
    file: Annotated[
        typer.FileText,
        typer.Argument(metavar="FILE|-", help='Lines such as {"handler": "resize", "params": {}}.'),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Put many tasks into queues, one for each line of JSON; nothing is enqueued when a line cannot be read.

    A line may have all that `weft tasks enqueue` takes as an option: queue, priority, idempotency_key, delay, run_at,
    max_attempts, timeout, heartbeat_timeout, concurrency_key. With keys it may be sent again after it broke off.
    """
    from weft.cli.output import print_json
    from weft.cli.task_lines import enqueue_lines, read_tasks

    found = read_tasks(file)
    made = call(lambda client: enqueue_lines(client, found))
    if as_json:
        print_json({"tasks": [{"id": str(id), "created": created} for id, created in made]})
    else:
        known = sum(not created for _, created in made)
        print(f"enqueued {len(made) - known}" + (f", {known} known by their idempotency keys" if known else ""))


@app.command()
def cancel(
    task_ids: TaskIds = None,
    every: Annotated[
        bool, typer.Option("--all", help="All that have not ended, or those of a queue, a handler, a state.")
    ] = False,
    queue: Queue = None,
    handler: OfHandler = None,
    state: States = None,
    reason: Annotated[str, typer.Option(help="Kept with the task.")] = "cancelled",
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Cancel tasks that have not ended. A running attempt is told, and its outcome is refused."""
    if not wants_all(task_ids, every=every, narrowed=queue or handler or state or dry_run):
        call_each("cancelled", task_ids or [], lambda client, key: client.cancel(key, reason=reason), as_json=as_json)
        return
    call_all(
        "cancel",
        "cancelled",
        lambda client, only_count, show: client.cancel_all(
            queue=queue, handler=handler, state=state or None, reason=reason, dry_run=only_count, on_progress=show
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
@says_why
def replay(
    task_ids: TaskIds = None,
    every: Annotated[
        bool, typer.Option("--all", help="All failed, dead and cancelled, or those of a queue, a handler, a state.")
    ] = False,
    queue: Queue = None,
    handler: OfHandler = None,
    state: States = None,
    dry_run: DryRun = False,
    as_json: JsonFlag = False,
) -> None:
    """Send failed, dead or cancelled tasks round again."""
    if not wants_all(task_ids, every=every, narrowed=queue or handler or state or dry_run):
        call_each("replayed", task_ids or [], lambda client, key: client.replay(key), as_json=as_json)
        return
    call_all(
        "replay",
        "replayed",
        lambda client, only_count, show: client.replay_all(
            queue=queue, handler=handler, state=state or None, dry_run=only_count, on_progress=show
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
def logs(
    task_id: TaskId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task has ended.")] = False,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", help="Only what this attempt has printed and logged.")
    ] = None,
) -> None:
    """Print what a task has printed and logged."""
    from weft.cli.task_logs import print_log

    key = read_id("id", task_id)
    call(lambda client: print_log(client, key or 0, follow=follow, attempt=attempt))
