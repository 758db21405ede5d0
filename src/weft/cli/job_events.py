"""Prints what happened in a job, once or until it has ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from weft.cli.output import as_record, one_line, print_json_line, print_line, remark, state, styled

if TYPE_CHECKING:
    from rich.text import Text

    from weft.jobs.events import JobEvent
    from weft.sdk.client import Client


async def print_events(
    client: Client, job_id: int, *, after: str | None, limit: int, follow: bool, as_json: bool
) -> None:
    """Print the events of a job, a line each: JSON for programs, words for people."""
    if follow:
        async for event in client.jobs.follow(job_id, after=after):
            _print(event, as_json)
        return
    page = await client.jobs.events(job_id, after=after, limit=limit)
    for event in page.events:
        _print(event, as_json)
    if len(page.events) == limit and not page.is_last:
        remark(f"more with --after {page.cursor}", lead="")


def _print(event: JobEvent, as_json: bool) -> None:
    if as_json:
        print_json_line(as_record(event))
    else:
        print_line(_told(event))
        sys.stdout.flush()


def _told(event: JobEvent) -> Text:
    from rich.text import Text

    subject, _, verb = event.type.partition(".")
    name = "job" if subject == "job" else event.node or ""
    item = "" if event.item is None else f"[{event.item}]"
    attempt = (
        f" (attempt {event.attempt})" if subject == "attempt" or (verb == "claimed" and event.attempt != 1) else ""
    )
    shown = state(verb, None) if subject != "attempt" else styled(f"attempt {verb}", "yellow")
    return Text.assemble(
        (f"{event.at.astimezone():%H:%M:%S.%f}"[:-3] + "  ", "dim"), f"{one_line(name + item):<24} ", shown, attempt,
        (_detail(event), "dim"),
    )  # fmt: skip


def _detail(event: JobEvent) -> str:
    data: dict[str, Any] = dict(event.data)
    said = []
    if (by := data.get("by")) is not None:
        said.append(f"by {by}")
    if (kind := data.get("type")) is not None or data.get("message") is not None:
        said.append(": ".join(str(part) for part in (kind, data.get("message")) if part))
    elif (reason := data.get("reason")) is not None:
        source = data.get("kept_id")
        said.append(str(reason) if source is None else f"{reason} from task {source}")
    if (items := data.get("items")) is not None:
        said.append(f"{items} items")
    if (name := data.get("event")) is not None:
        said.append(str(name))
    if event.checkpoint is not None:
        said.append(event.checkpoint)
    return one_line("  " + ", ".join(said)) if said else ""
