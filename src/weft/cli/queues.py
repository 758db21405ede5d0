"""``weft queues``: looks at queues, makes, pauses and limits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.completion import complete_queue
from weft.cli.lists import AfterName, Limit, Listing
from weft.cli.reasons import says_why
from weft.core.checks import MAX_RUNNING

if TYPE_CHECKING:
    from weft.queue.queues import QueueInfo
    from weft.sdk.client import Client

app = new_app("Look at queues, make, pause and limit them.")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=complete_queue)]

_COLUMNS = ("QUEUE~", "READY>", "OLDEST", "RUNNING>", "SCHEDULED>", "PENDING>", "RATE>", "LIMIT~", "")
_LISTING = Listing("queues", _COLUMNS, "no queues", key="name", by="after")
_KEYS_SHOWN = 3


@app.command("list")
def list_queues(after: AfterName = "", limit: Limit = None, as_json: JsonFlag = False) -> None:
    """List queues by name, with what waits in them. The rate is of tasks ended in the last minute."""
    found = call(lambda client: client.queues(after=after, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


def _row(info: QueueInfo) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    tasks = info.tasks
    return (
        info.name,
        info.depth,
        when(info.oldest_at),
        tasks.get("running", 0),
        tasks.get("scheduled", 0),
        tasks.get("pending", 0),
        f"{info.rate:.1f}/s",
        _limits(info),
        state("paused") if info.paused else "",
    )


def _limits(info: QueueInfo) -> str:
    parts = []
    if info.max_running is not None:
        parts.append(f"{info.max_running} at once")
    if info.max_running_per_key is not None:
        parts.append(f"{info.max_running_per_key} per key")
    parts += [f"{limit.max_running} for {limit.key}" for limit in info.key_limits[:_KEYS_SHOWN]]
    if (more := len(info.key_limits) - _KEYS_SHOWN) > 0:
        parts.append(f"{more} more keys")
    return ", ".join(parts)


@app.command()
@says_why
def create(name: Name, as_json: JsonFlag = False) -> None:
    """Make a queue. One that is there is left as it is."""
    from weft.cli.output import tell

    created = call(lambda client: client.create_queue(name))
    text = f"created {name}" if created else f"{name} is there already"
    tell({"queue": name, "created": created}, text, as_json=as_json)


@app.command()
@says_why
def pause(name: Name, as_json: JsonFlag = False) -> None:
    """Stop claims from a queue; what runs goes on."""
    from weft.cli.output import tell

    call(lambda client: client.pause_queue(name))
    tell({"queue": name, "paused": True}, f"paused {name}", as_json=as_json)


@app.command()
@says_why
def resume(name: Name, as_json: JsonFlag = False) -> None:
    """Let claims from a queue go on."""
    from weft.cli.output import tell

    call(lambda client: client.resume_queue(name))
    tell({"queue": name, "paused": False}, f"resumed {name}", as_json=as_json)


@app.command()
@says_why
def limit(
    name: Name,
    most: Annotated[
        int | None,
        typer.Option("--max", min=1, max=MAX_RUNNING, metavar="N", help="How many tasks may run at once."),
    ] = None,
    lift: Annotated[bool, typer.Option("--none", help="Lift the limit.")] = False,
    per_key: Annotated[bool, typer.Option("--per-key", help="Limit each concurrency key.")] = False,
    key: Annotated[str | None, typer.Option(help="Only this concurrency key.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Set how many tasks of a queue run at once, over all workers. Without --max or --none it is shown."""
    from weft.cli.output import as_record, tell
    from weft.core.errors import InvalidInput

    if most is not None and lift:
        raise InvalidInput("max", "give either --max or --none")
    if per_key and key is not None:
        raise InvalidInput("key", "give either --per-key or --key")
    if per_key and most is None and not lift:
        raise InvalidInput("max", "give --max N or --none")

    async def main(client: Client) -> QueueInfo:
        if most is not None or lift:
            await client.limit_queue(name, most, per_key=per_key, key=key)
        return await _find(client, name)

    info = call(main)
    text = _limits(info) or "no limit" if key is None else _limit_of_key(info, key)
    tell(as_record(info), f"{name}: {text}", as_json=as_json)


def _limit_of_key(info: QueueInfo, key: str) -> str:
    for limit in info.key_limits:
        if limit.key == key:
            return f"{limit.max_running} at once for the key {key}, {limit.held} ready or running"
    return f"no limit of its own for the key {key}"


async def _find(client: Client, name: str) -> QueueInfo:
    from weft.core.errors import UnknownQueue

    found = {info.name: info for info in await client.queues()}
    if name not in found:
        raise UnknownQueue(name, found)
    return found[name]
