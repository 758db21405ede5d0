"""Lets a command be told why it is used: kept in the audit with what it does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

Command = TypeVar("Command", bound=Callable[..., None])
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit.")]


def says_why(command: Command) -> Command:
    """Give a command the option ``--reason``; all that it does is kept with it."""

    @functools.wraps(command)
    def told(*given: Any, reason: str | None = None, **named: Any) -> None:
        if reason is not None:
            from weft.queue.audit import say_why

            say_why(reason)
        command(*given, **named)

    # Typer reads what the options are from the types themselves, and not from their names.
    signature = inspect.signature(command, eval_str=True)
    why = inspect.Parameter("reason", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Reason)
    told.__signature__ = signature.replace(parameters=[*signature.parameters.values(), why])  # type: ignore[attr-defined]
    told.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()} | {"reason": Reason}
    return told  # type: ignore[return-value]
