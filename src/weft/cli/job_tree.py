"""Draws a job as lines that fit a terminal: what goes on in full, the rest in numbers when there is no room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from weft.cli.job_output import error_of
from weft.cli.output import one_line, span, state

if TYPE_CHECKING:
    from rich.text import Text

    from weft.jobs.model import Job, JobNode

_MARKS = {
    "completed": ("✓", "green"), "failed": ("✗", "red"), "dead": ("✗", "red"), "cancelled": ("✗", "magenta"),
    "skipped": ("-", "magenta"), "running": ("●", "cyan"), "waiting": ("?", "yellow"), "scheduled": ("↻", "yellow"),
    "ready": ("○", "blue"), "pending": ("·", "dim"),
}  # fmt: skip
_ENDED = ("completed", "failed", "dead", "skipped", "cancelled")
_QUIET_BEFORE, _QUIET_AFTER = ("completed", "skipped"), ("pending",)
_BAR = 16
_NAME = 28


def draw(
    job: Job, nodes: Sequence[JobNode], notes: Mapping[int, str], footer: Sequence[str], width: int, height: int,
    now: datetime | None = None,
) -> list[Text]:  # fmt: skip
    """Return the lines of a job, at most ``height`` of them; ``notes`` stand beside nodes by the id of their task."""
    moment = now or datetime.now(UTC)
    hints = [line for text in footer for line in _hint(text, width)]
    room = max(3, height - 1 - len(hints))
    lines = [_heading(job, moment)]
    if len(nodes) <= room:
        lines += _nodes(nodes, notes, moment, width)
    else:
        lines += _collapsed(nodes, notes, moment, width, room)
    lines += hints
    for line in lines:
        line.truncate(max(1, width - 1), overflow="ellipsis")
    return lines[: max(4, height)]


def shown_state(node: JobNode) -> str:
    """Return the state of a node as people see it: a fan_out runs until the last of its items has ended."""
    if node.state != "completed" or not node.items:
        return node.state
    if any(name not in _ENDED for name in node.items):
        return "running" if not set(node.items) & {"waiting"} else "waiting"
    return "failed" if node.items.keys() & {"failed", "dead"} and not node.allow_failure else "completed"


def items_of(node: JobNode) -> str:
    """Return of a fan_out how many of its items have ended, and how many of them without success."""
    if not node.items:
        return ""
    ended = sum(count for name, count in node.items.items() if name in _ENDED)
    failed = sum(node.items.get(name, 0) for name in ("failed", "dead"))
    return f"{ended:,} of {sum(node.items.values()):,} items" + (f", {failed:,} failed" if failed else "")


def _heading(job: Job, now: datetime) -> Text:
    from rich.text import Text

    since, until = job.started_at, job.ended_at or now
    took = "" if since is None else span(max(0.0, round((until - since).total_seconds(), 1)))
    by = f"  owner {job.owner_id}" if job.owner_id is not None and not job.state.is_final else ""
    return Text.assemble(
        (one_line(job.workflow_id), "bold"), f"  job {job.id}  ", state(job.state, job.reason), f"  {took}", (by, "dim")
    )


def _nodes(nodes: Iterable[JobNode], notes: Mapping[int, str], now: datetime, width: int) -> list[Text]:
    shown = list(nodes)
    longest = min(_NAME, width // 3, max((len(node.node) for node in shown), default=0))
    return [_line(node, notes.get(node.id, ""), now, longest) for node in shown]


def _line(node: JobNode, note: str, now: datetime, longest: int) -> Text:
    from rich.text import Text

    word = shown_state(node)
    mark, style = _MARKS.get(word, (" ", ""))
    name = one_line(node.node)
    name = name if len(name) <= longest else f"{name[: longest - 1]}…"
    line = Text.assemble((f"{mark} ", style), f"{name:<{longest}}  ")
    line.append_text(state(word))
    line.append(" " * max(1, 11 - len(word)))
    line.append(f"{_time(node, word, now):<8} ", style="dim")
    if node.items and word == "running":
        line.append_text(_bar(node))
    if node.items:
        line.append(f"{items_of(node)}  ")
    if node.attempt > 1 or word == "scheduled":
        line.append(
            f"attempt {node.attempt}" + (f", {_due(node, now)}" if word == "scheduled" else "") + "  ", style="yellow"
        )
    if note:
        line.append(one_line(note), style="yellow")
    elif node.error and word != "completed":
        line.append(one_line(error_of(node)), style="red")
    elif word in ("skipped", "cancelled") and node.reason:
        line.append(one_line(node.reason), style="dim")
    return line


def _time(node: JobNode, word: str, now: datetime) -> str:
    if node.claimed_at is None or word in ("pending", "ready", "scheduled"):
        return ""
    until = now if word not in _ENDED or node.ended_at is None else node.ended_at
    seconds = max(0.0, (until - node.claimed_at).total_seconds())
    return span(seconds if word in _ENDED else round(seconds, 1) if seconds < 60 else int(seconds))


def _due(node: JobNode, now: datetime) -> str:
    left = 0.0 if node.due_at is None else (node.due_at - now).total_seconds()
    return f"next in {span(max(1, round(left)))}" if left > 0 else "next now"


def _bar(node: JobNode) -> Text:
    from rich.text import Text

    total = sum(node.items.values())
    ended = sum(count for name, count in node.items.items() if name in _ENDED)
    full = _BAR * ended // max(1, total)
    return Text.assemble(("█" * full, "cyan"), ("░" * (_BAR - full), "dim"), " ")


def _collapsed(nodes: Sequence[JobNode], notes: Mapping[int, str], now: datetime, width: int, room: int) -> list[Text]:
    """Return what goes on or went wrong, line by line, and how many there are of everything else."""
    words = {node.id: shown_state(node) for node in nodes}
    before = [node for node in nodes if words[node.id] in _QUIET_BEFORE]
    after = [node for node in nodes if words[node.id] in _QUIET_AFTER]
    lively = [node for node in nodes if words[node.id] not in (*_QUIET_BEFORE, *_QUIET_AFTER)]
    # What went wrong or waits for somebody is never the part that is left out.
    lively.sort(key=lambda node: words[node.id] in ("running", "ready"))
    room -= bool(before) + bool(after)
    cut = lively if len(lively) <= room else lively[: max(1, room - 1)]
    order = {node.id: place for place, node in enumerate(nodes)}
    lines = [_counts(before, words)] if before else []
    lines += _nodes(sorted(cut, key=lambda node: order[node.id]), notes, now, width)
    if rest := lively[len(cut) :]:
        lines.append(_counts(rest, words, "more: "))
    return [*lines, _counts(after, words)] if after else lines


def _counts(nodes: Sequence[JobNode], words: Mapping[int, str], prefix: str = "") -> Text:
    from rich.text import Text

    counts = Counter(words[node.id] for node in nodes)
    line = Text(f"  {prefix}" if prefix else "")
    for place, (word, count) in enumerate(sorted(counts.items(), key=lambda each: list(_MARKS).index(each[0]))):
        mark, style = _MARKS[word]
        line.append_text(Text.assemble(", " if place else "", (f"{mark} ", style), f"{count:,} {word}"))
    return line


def _hint(text: str, width: int) -> list[Text]:
    """Return a line for people to act upon, which is folded between words and never cut: it has commands in it."""
    import textwrap

    from rich.text import Text

    return [Text(f"  {line}", style="yellow") for line in textwrap.wrap(one_line(text), max(10, width - 3))]
