"""The options of ``weft`` itself, which may stand before a command's name or among its own options."""

from __future__ import annotations

import copy
import os
from typing import Annotated, Any

import typer

from weft.cli.completion import complete_context

# Set by --quiet, also for the processes that a command starts.
QUIET = "WEFT_QUIET"
ContextOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The server to go to, by its name in `weft context list`; `local` is this machine.",
        autocompletion=complete_context,
    ),
]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress and no remarks: answers and errors only.")
]


def take(name: str, value: Any) -> None:
    """Let an option hold for this process, and for those that it starts."""
    if name == "quiet" and value:
        os.environ[QUIET] = "1"
    if name == "context" and value is not None:
        if os.environ.get("WEFT_SERVER"):
            raise typer.BadParameter("WEFT_SERVER is set, and would win: unset it first", param_hint="--context")
        os.environ["WEFT_CONTEXT"] = value


def accept(ctx: Any, command: Any) -> Any:
    """Return a command that takes the options of ``weft`` too, but for those of a name that it has itself.

    What is handed on to another program as it is stays that program's.
    """
    if command is None or command.context_settings.get("ignore_unknown_options"):
        return command
    taken = {name for option in command.params for name in option.opts}
    for option in ctx.find_root().command.params:
        if option.name in ("context", "quiet") and not taken & set(option.opts):
            own = copy.copy(option)
            own.hidden, own.expose_value, own.callback = True, False, _take
            command.params.append(own)
    return command


def _take(ctx: Any, option: Any, value: Any) -> None:
    if not ctx.resilient_parsing:
        take(option.name, value)
