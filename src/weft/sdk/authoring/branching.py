"""The words of a Python workflow beside its tasks: ways that are taken or not, groups, waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

from weft.core.errors import InvalidInput
from weft.sdk.authoring.composition import Group, current
from weft.sdk.authoring.execution import seconds
from weft.sdk.authoring.places import cannot_compile
from weft.sdk.authoring.steps import Branch
from weft.sdk.authoring.symbols import Symbol, chosen, template

_NOTHING: Any = object()


class When:
    """A condition that a job will decide by; what is called in its body runs only when it holds."""

    def __init__(self, condition: Symbol, node: str | None) -> None:
        self._condition = condition
        self._node = current("weft.when").decide(condition, node)
        self._body: AbstractContextManager[None] | None = None

    def __enter__(self) -> When:
        self._body = current("weft.when").within(Branch(self._node, 0))
        self._body.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        assert self._body is not None
        self._body.__exit__(*problem)

    @property
    def otherwise(self) -> AbstractContextManager[None]:
        """What is called in this body runs only when the condition does not hold."""
        return current("otherwise").within(Branch(self._node, 1))

    def value(self, then: Any, otherwise: Any = None) -> Any:
        """Return what is one value when the condition holds, and another when not.

        Whatever takes it runs in both cases. Example::

            with weft.when(size > 100) as is_large:
                large = split(path)
            with is_large.otherwise:
                small = read(path)
            store(is_large.value(large, small))
        """
        return chosen(self._condition, then, otherwise, self._node)


def when(condition: Any, then: Any = _NOTHING, otherwise: Any = None, *, node: str | None = None) -> Any:
    """Take one of two ways, by a condition that only a job can decide: the ``if`` of workflows.

    Given functions, it calls both while the workflow is composed, and returns what is the value of the way that a job
    takes. Given only a condition, it is for ``with``. Example::

        report = weft.when(rows.count > 0, lambda: summarise(rows), lambda: say_empty())

        with weft.when(rows.count > 1000) as many:
            warn(rows.count)
    """
    if not isinstance(condition, Symbol):
        raise cannot_compile(
            f"the condition of weft.when is {condition!r} already: compare an input or an output, or use a plain `if`"
        )
    made = When(condition, node)
    if then is _NOTHING:
        return made
    with made:
        first = _value_of(then)
    with made.otherwise:
        second = _value_of(otherwise)
    return made.value(first, second)


def _value_of(way: Any) -> Any:
    if isinstance(way, Symbol):
        raise cannot_compile(
            "this was called before weft.when, so it would run in any case: give a function, as in `lambda: task(…)`"
        )
    return way() if callable(way) else way


@contextmanager
def group(name: str) -> Iterator[Group]:
    """Put what is called in the body into a group; inside of another it is a part of that.

    What comes after all of it is said by ``>>``. Example::

        with weft.group("extract") as extract:
            orders, users = read("orders"), read("users")
        extract >> publish()
    """
    with current("weft.group").grouped(name) as path:
        yield Group(path)


def wait_for_approval(
    node: str = "approval", *, form: Mapping[str, Any] | None = None, timeout: float | timedelta | None = None,
    on_timeout: str = "fail",
) -> Any:  # fmt: skip
    """Wait in a workflow until a person approves; the output has ``approved``, ``by``, ``message`` and ``values``.

    ``form`` says what the person is asked for, as inputs are declared. It is answered by `Jobs.approve`, or by
    ``weft jobs approve``. Example::

        with weft.when(amount > 1000):
            weft.wait_for_approval("release", form={"reason": {"type": "string"}}, timeout=3600)
    """
    entry: dict[str, Any] = {"type": "wait", "for": "approval"}
    if form is not None:
        entry["form"] = dict(form)
    return current("weft.wait_for_approval").wait(node, entry | _patience(timeout, on_timeout), (), node)


def wait_for_event(
    event: str, *, match: Mapping[str, Any] | None = None, timeout: float | timedelta | None = None,
    on_timeout: str = "fail", node: str | None = None,
) -> Any:  # fmt: skip
    """Wait in a workflow for an event; its payload is the output.

    ``match`` are fields that it must have, which may be values of the job. It is told by `Jobs.send_event`, or by
    ``weft events send``. Example::

        arrived = weft.wait_for_event("file.arrived", match={"day": day}, timeout=86400, on_timeout="skip")
    """
    fields, needs = template(dict(match or {}))
    entry: dict[str, Any] = {"type": "wait", "for": "event", "event": event}
    if fields:
        entry["match"] = fields
    return current("weft.wait_for_event").wait("event", entry | _patience(timeout, on_timeout), needs, node)


def _patience(timeout: float | timedelta | None, on_timeout: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if timeout is not None:
        try:
            found["timeout_seconds"] = seconds(timeout, "timeout")
        except InvalidInput as problem:
            raise cannot_compile(str(problem)) from None
    if on_timeout != "fail":
        found["on_timeout"] = on_timeout
    return found
