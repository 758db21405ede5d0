"""Turns what a caller says of a new task into one that can be written: every field checked, params encoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from operator import is_
from types import FunctionType
from typing import Any

from weft.core.checks import (
    check_handler,
    check_key,
    check_moment,
    check_number,
    check_priority,
    check_queue,
    check_span,
)
from weft.core.errors import InvalidInput
from weft.core.json import blob_reference, check_size, encode, encode_plain, fields_of, size_of
from weft.core.settings import Settings
from weft.db.blobs import Blobs
from weft.queue.enqueue import Draft, Form
from weft.queue.model import NewTask
from weft.queue.retry import MAX_ATTEMPTS, Retry
from weft.worker.registry import REGISTRY, AnyHandler, Handler, retry_policy

SQL_LIMIT = 256 * 1024


class Drafting:
    """Makes drafts of new tasks; those alike in all but params and keys share the checks of the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._said: tuple[object, ...] = ()
        self._form: Form | None = None

    def draft(self, new: NewTask, encoder: Callable[[Any, str], str] = encode) -> Draft:
        """Check every field of a new task and encode it."""
        said = (
            new.handler, new.queue, new.priority, new.run_at, new.delay, new.max_attempts, new.retry, new.timeout,
            new.heartbeat_timeout,
        )  # fmt: skip
        # The same objects, not equal ones: True equals 1, and is no priority.
        if self._form is None or not all(map(is_, said, self._said)):
            self._form, self._said = _form(new, self._settings), said
        params = new.params if new.params is None or isinstance(new.params, dict) else fields_of(new.params)
        if params is None and new.params is not None:
            kind = type(new.params).__name__
            raise InvalidInput(
                "params", f"must be a dict, a model or a dataclass that has the handler's arguments, not {kind}"
            )
        return Draft(
            self._form,
            "{}" if not params else encoder(params, "params"),
            None if new.idempotency_key is None else check_key(new.idempotency_key, "idempotency_key"),
            None if new.concurrency_key is None else check_key(new.concurrency_key, "concurrency_key"),
        )


def _form(new: NewTask, settings: Settings) -> Form:
    """What the task does not say, its handler or the settings say."""
    known = _known(new.handler)
    if new.delay is not None and new.run_at is not None:
        raise InvalidInput("delay", "give either run_at or delay, not both")
    own = known.retry if known else None
    policy = own if new.retry is None else retry_policy(new.retry)
    if policy and policy.non_retryable and policy.non_retryable != (own and own.non_retryable):
        raise InvalidInput(
            "retry.non_retryable", "belongs to the handler, not to one task: give it in @weft.task(retry=…)"
        )
    timeout = new.timeout if new.timeout is not None or known is None else known.timeout
    beat = new.heartbeat_timeout if new.heartbeat_timeout is not None or known is None else known.heartbeat_timeout
    queue = _queue_of(new, known)
    return Form(
        handler=known.name if known else check_handler(new.handler),
        queue=queue if queue == "default" else check_queue(queue),
        priority=check_priority(new.priority),
        run_at=None if new.run_at is None else check_moment(new.run_at),
        delay=None if new.delay is None else check_span(new.delay, "delay", zero=True),
        max_attempts=_max_attempts(new, known, policy, settings),
        retry=None if policy is None else policy.to_json(),
        timeout=None if timeout is None else check_span(timeout, "timeout"),
        heartbeat_timeout=None if beat is None else check_span(beat, "heartbeat_timeout"),
    )


class Unready(Exception):
    """A task that cannot be made while rows are being written: wrong, or large, or not of JSON's own types."""


class Drafts(Collection[Draft]):
    """The tasks of one call, each made when it is first asked for: the last while PostgreSQL writes the first.

    That is for plain ones only. No author's code runs meanwhile, nor is anything refused: `check` does both, and its
    errors say which task they mean. What comes from an iterator is made as it comes.
    """

    def __init__(self, tasks: Iterable[NewTask], settings: Settings) -> None:
        if not isinstance(tasks, Iterable):
            raise InvalidInput("tasks", f"must be a list of weft.NewTask, not {type(tasks).__name__}")
        self._drafting = Drafting(settings)
        self._large = min(settings.inline_limit, settings.value_limit) // 4
        self._tasks: list[NewTask] = []
        self._made: list[Draft] = []
        self._has_moved = False
        is_stream = isinstance(tasks, Iterator)
        for index, task in enumerate(tasks):
            if not isinstance(task, NewTask):
                raise InvalidInput(f"tasks[{index}]", f"must be a weft.NewTask, not {type(task).__name__}")
            self._tasks.append(task)
            if is_stream:
                self.check()

    @property
    def has_keys(self) -> bool:
        """Whether any task has an idempotency key."""
        return any(task.idempotency_key is not None for task in self._tasks)

    @property
    def has_times(self) -> bool:
        """Whether any task is not due at once."""
        return any(task.delay is not None or task.run_at is not None for task in self._tasks)

    def queues(self) -> set[str]:
        """Return the queues that the tasks are for, but for names that no queue can have."""
        names: set[str] = set()
        last: NewTask | None = None
        for task in self._tasks:
            if last is None or task.handler is not last.handler or task.queue is not last.queue:
                last = task
                with suppress(InvalidInput):  # told with its place when its turn comes
                    names.add(check_queue(_queue_of(task, _known(task.handler))))
        return names

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, draft: object) -> bool:
        return draft in self._made

    def __iter__(self) -> Iterator[Draft]:
        """Yield the drafts, made before or now; raises `Unready`."""
        for draft in self._made:
            if len(draft.params) > self._large and not self._has_moved:
                raise Unready("large params")
            yield draft
        for index in range(len(self._made), len(self._tasks)):
            task = self._tasks[index]
            if type(task.params) is not dict and task.params is not None:
                raise Unready("not plain")
            try:
                draft = self._drafting.draft(task, encode_plain)
            except InvalidInput:
                raise Unready("not plain, or wrong") from None
            if len(draft.params) > self._large:
                raise Unready("large params")
            self._made.append(draft)
            yield draft

    def check(self) -> None:
        """Make all that are not made yet, as `Drafting` does."""
        for index in range(len(self._made), len(self._tasks)):
            try:
                self._made.append(self._drafting.draft(self._tasks[index]))
            except InvalidInput as problem:
                raise _placed(index, problem) from None

    async def move_large(self, move: Callable[[Draft], Awaitable[Draft]]) -> None:
        """``move`` the params of those that have large ones."""
        for index, draft in enumerate(self._made):
            if len(draft.params) > self._large:
                try:
                    self._made[index] = await move(draft)
                except InvalidInput as problem:
                    raise _placed(index, problem) from None
        self._has_moved = True


def _placed(index: int, problem: InvalidInput) -> InvalidInput:
    return InvalidInput(f"tasks[{index}].{problem.field}", problem.problem)


async def moved_to_blobs(
    drafted: Draft, settings: Settings, blobs: Callable[[], Blobs], *, for_sql: bool = False
) -> Draft:
    """Return the draft with large params moved to the blob storage; refuse what is too large for that.

    ``for_sql`` keeps to what ``weft.enqueue`` takes, which does not know the settings.
    """
    check_size("params", drafted.params, settings.value_limit)
    size = size_of(drafted.params)
    if size <= (min(settings.inline_limit, SQL_LIMIT) if for_sql else settings.inline_limit):
        return drafted
    return replace(drafted, params=blob_reference(await blobs().put(drafted.params.encode()), size))


def _queue_of(new: NewTask, known: AnyHandler | None) -> str:
    return new.queue if new.queue is not None else known.queue if known else "default"


def _known(handler: object) -> AnyHandler | None:
    if isinstance(handler, Handler):
        return handler
    if isinstance(handler, FunctionType):
        raise InvalidInput("handler", f"{handler.__qualname__} is no handler: decorate it with @weft.task")
    return REGISTRY.get(handler) if isinstance(handler, str) else None


def _max_attempts(new: NewTask, known: AnyHandler | None, policy: Retry | None, settings: Settings) -> int | None:
    """How often it is attempted; None when only the worker that knows the handler can say."""
    if new.max_attempts is not None:
        return check_number(new.max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
    if policy is not None:
        return policy.max_attempts
    return settings.worker_max_attempts if known else None
