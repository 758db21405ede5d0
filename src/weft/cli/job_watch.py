"""Shows a job while it goes on: a tree on a terminal, else a line for each thing that matters."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from weft.cli.job_output import error_of, shown_nodes, time_of
from weft.cli.job_tree import draw, items_of, shown_state
from weft.cli.output import clean, complain, is_quiet, one_line, remark, span
from weft.core.errors import DatabaseUnavailable, WeftError
from weft.jobs import events

if TYPE_CHECKING:
    from weft.cli.leaving import Leaving
    from weft.jobs.model import Job, JobNode
    from weft.sdk.client import Client

_LOOK_EVERY = 0.1
# Without any news a look is taken now and then: what waits may wait for something else by now.
_LOOK_AT_LEAST = 5.0
_REDRAW_EVERY = 0.5
_BEFORE = timedelta(seconds=30)
# A look at a job of 100,000 items takes a while: at most a tenth of the time is spent on it.
_SHARE = 10
_STUCK_AFTER = 1.0
_WONDER_AFTER = 1.2
_TELL_PROGRESS_EVERY = 5.0
_TAIL = 10
_MOST_HINTS = 3
_WAITS = {"approval": "for a person", "event": "for an event", "workflow": "for another job"}
_OUTAGE = (DatabaseUnavailable, TimeoutError)


async def watch(client: Client, job_id: int, leaving: Leaving) -> Job:
    """Show a job until it has ended or somebody leaves it, and return it."""
    view: _Tree | _Lines = _Tree() if sys.stderr.isatty() and not is_quiet() else _Lines()
    looking = _Looking(client, job_id)
    while not await looking.look():  # noqa: ASYNC110  (only PostgreSQL knows)
        await asyncio.sleep(looking.pause)
    news = _News(client, looking)
    left = asyncio.create_task(leaving.wished.wait())
    try:
        with view:
            while True:
                view.show(looking)
                if looking.job.state.is_final or left.done():
                    break
                if not await news.wait(left):
                    continue
                looked = asyncio.create_task(looking.look())
                await asyncio.wait([looked, left], return_when=asyncio.FIRST_COMPLETED)
                if not looked.done():
                    # Whoever leaves need not wait for an answer that may not come.
                    looked.cancel()
                    continue
                looked.result()
    finally:
        left.cancel()
        await asyncio.gather(left, news.stop(), return_exceptions=True)
    if not looking.job.state.is_final:
        leaving.tell()
    elif looking.job.state == "failed" and not is_quiet():
        await _print_tail(client, looking)
    return looking.job


class _News:
    """Tells when it is time to look again: something has happened, or nothing for so long that one may wonder why."""

    def __init__(self, client: Client, looking: _Looking) -> None:
        self._looking = looking
        self._happened = asyncio.Event()
        # From a while before the look on: what is told twice is only looked at once more.
        place = events.place_at(looking.job.id, looking.latest - _BEFORE)
        self._following = asyncio.create_task(self._follow(client, place))
        self._heard_at, self._next = time.monotonic(), _WONDER_AFTER

    async def _follow(self, client: Client, place: str) -> None:
        try:
            async for _ in client.jobs.follow(self._looking.job.id, after=place):
                self._happened.set()
        finally:
            self._happened.set()

    async def wait(self, left: asyncio.Task[Any]) -> bool:
        """Return whether there may be something new, and False when only time has passed.

        Raises what ended the stream before the job.
        """
        await asyncio.wait([left], timeout=self._looking.pause)
        if not (left.done() or self._happened.is_set()):
            happened = asyncio.create_task(self._happened.wait())
            await asyncio.wait([left, happened], timeout=_REDRAW_EVERY, return_when=asyncio.FIRST_COMPLETED)
            happened.cancel()
        if self._following.done():
            self._following.result()
        now = time.monotonic()
        since = now - self._heard_at
        is_due = self._happened.is_set() or since >= self._next
        if self._happened.is_set():
            self._happened.clear()
            self._heard_at, self._next = now, _WONDER_AFTER
        elif is_due:
            self._next = since + _LOOK_AT_LEAST
        return is_due

    async def stop(self) -> None:
        """Follow no more."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)


class _Looking:
    """What is known of a job by the latest look, and what it waits for when nothing happens."""

    job: Job

    def __init__(self, client: Client, job_id: int) -> None:
        self._client = client
        self._job_id = job_id
        self.nodes: Sequence[JobNode] = ()
        self.notes: dict[int, str] = {}
        self.footer: list[str] = []
        self._answers: dict[int, str] = {}
        self.pause = 0.0
        self._changed_at = time.monotonic()
        self._last: object = None

    async def look(self) -> bool:
        """Ask how the job goes; False when PostgreSQL is away: the job goes on without it."""
        begin = time.monotonic()
        jobs = self._client.jobs
        try:
            self.job, nodes = await jobs.show(self._job_id), await jobs.nodes(self._job_id)
            self.nodes = shown_nodes(self.job, nodes)
            await self._explain()
        except _OUTAGE:
            self.pause = 0.5
            return hasattr(self, "job")
        self.pause = max(_LOOK_EVERY, _SHARE * (time.monotonic() - begin))
        return True

    async def _explain(self) -> None:
        """Find out how to answer what waits, and why nothing happens when nothing does."""
        now = time.monotonic()
        seen = self.job.state, [(node.id, node.state, node.attempt, dict(node.items)) for node in self.nodes]
        if seen != self._last:
            self._last, self._changed_at, self.footer = seen, now, []
        waiting = {node.id: node for node in self.nodes if node.state == "waiting"}
        self.notes = {id: note for id, note in self.notes.items() if id in waiting}
        for id, node in waiting.items():
            if id not in self.notes:
                self._answers[id], self.notes[id] = await self._asked(node)
        is_stuck = now - self._changed_at > _STUCK_AFTER and not self.footer and not self.job.state.is_final
        if is_stuck and not any(shown_state(node) == "running" and not node.items for node in self.nodes):
            told = await self._client.jobs.why(self._job_id)
            self.footer = [
                f"{each.node or 'the engine'}: {each.text}" + (f"; {each.advice}" if each.advice else "")
                for each in told
                if each.state != "waiting" and each.cause not in ("running", "retry", "next", "ended")
            ]

    async def _asked(self, node: JobNode) -> tuple[str, str]:
        """Return how a node that waits is answered, and in a word or two whom it waits for."""
        for each in await self._client.jobs.why(self._job_id, node.node):
            if each.cause in _WAITS:
                # Nobody need do anything about another job.
                is_asked = each.advice is not None and each.cause != "workflow"
                return f"{node.node}: {each.advice}" if is_asked else "", _WAITS[each.cause]
        return "", ""

    @property
    def latest(self) -> datetime:
        """When the last thing happened that is known."""
        moments = [moment for node in self.nodes for moment in (node.claimed_at, node.ended_at) if moment is not None]
        return max([self.job.created_at, *moments])

    @property
    def hints(self) -> list[str]:
        """What somebody may do now: answer what waits, or mend what keeps everything from going on."""
        answers = [text for id, text in self._answers.items() if id in self.notes and text]
        return [*answers, *self.footer][:_MOST_HINTS]


class _Tree:
    """A tree that is drawn again and again in the same place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        # What tasks of this process print goes to their logs: nothing is left to be moved out of the way.
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            vertical_overflow="crop",
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> None:
        self._live.__enter__()

    def __exit__(self, *problem: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, found: _Looking) -> None:
        """Draw what is known now, in the size that the terminal has now."""
        from rich.console import Group

        width, height = self._console.size
        lines = draw(found.job, found.nodes, found.notes, found.hints, width, height - 1)
        for line in lines:
            line.no_wrap = True
        self._live.update(Group(*lines), refresh=True)


class _Lines:
    """A line for each node that ends, fails and is tried again, or waits for somebody; and how fan-outs come on."""

    def __init__(self) -> None:
        self._told: set[object] = set()
        self._progress: dict[int, tuple[float, str]] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *problem: object) -> None:
        pass

    def show(self, found: _Looking) -> None:
        """Tell what is new."""
        for node in found.nodes:
            self._tell_node(node)
        for text in found.hints:
            self._once(("hint", text), text)
        job = found.job
        if job.state.is_final:
            self._once("job", f"job {job.id} {job.state}, {time_of(job)}")
            if job.state != "completed" and is_quiet():
                complain(f"job {job.id} {job.state}: see `weft jobs show {job.id}`")

    def _tell_node(self, node: JobNode) -> None:
        word = shown_state(node)
        if word in ("completed", "failed", "dead", "skipped", "cancelled"):
            began, ended = node.claimed_at, node.ended_at
            took = f" in {span(ended - began)}" if began is not None and ended is not None and not node.items else ""
            items = f", {items_of(node)}" if node.items else ""
            error = f": {error_of(node)}" if node.error else ""
            self._once(("ended", node.id), f"{node.node} {word}{took}{items}{error}")
        elif word == "scheduled" and node.error:
            self._once(
                ("again", node.id, node.attempt),
                f"{node.node} is tried again, attempt {node.attempt} failed: {error_of(node)}",
            )
        elif node.items:
            self._tell_progress(node)

    def _tell_progress(self, node: JobNode) -> None:
        now, text = time.monotonic(), items_of(node)
        at, told = self._progress.setdefault(node.id, (now, ""))
        if text != told and now - at >= _TELL_PROGRESS_EVERY:
            self._progress[node.id] = now, text
            remark(f"{node.node} {text}")

    def _once(self, key: object, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            remark(text)


async def _print_tail(client: Client, found: _Looking) -> None:
    """Print the last lines that the task has written by which the job failed."""
    failed_id = found.job.failed_id
    if failed_id is None:
        return
    try:
        task, log = await client.get_task(failed_id), await client.read_log(failed_id)
    except WeftError:  # it is told where to look in any case
        log = None
    name = next((node.node for node in found.nodes if node.id == failed_id), None) or f"task {failed_id}"
    if log:
        lines = clean(log.decode(errors="replace")).splitlines()
        cut = f"the last {_TAIL} lines" if len(lines) > _TAIL else "what"
        print(f"weft: {cut} {one_line(name)} has printed, in attempt {task.attempt}:", file=sys.stderr)
        for line in lines[-_TAIL:]:
            print(f"  {line}", file=sys.stderr)
    print(f"weft: see `weft tasks show {failed_id}` and `weft jobs logs {found.job.id}`", file=sys.stderr)
