"""The page of the command line."""

from __future__ import annotations

import enum
import importlib
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from docs.pages.markdown import code, table

_HEAD = """\
# Command line

`weft` goes to the server of `WEFT_SERVER` or [`weft login`](../how-to/use-a-server.md), else to the database that
`WEFT_DATABASE_URL` names, else to an embedded PostgreSQL. It prints text for people; a
command with `--json` among its options prints one document for programs instead, in which ids are strings. An error is
one line on the standard error with what to do next; with `--json` also a document,
`{"error": {"code": …, "message": …, "field": …}}`, unless the command has answered before; errors of definitions and of
the history [tell more](../how-to/keep-workflows.md#what-an-error-tells-programs). `weft --install-completion` sets up
your shell; `--help` stands with every command.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | it ended without success, for example the awaited task failed |
| 2 | the call was wrong: an unknown option, a value that is refused, or no `--yes` where something cannot be undone |
| 3 | the installation needs attention: a setting, PostgreSQL, a role's rights, a folder, the disk |
| 4 | there is no such thing |
| 5 | the thing is in a state that does not allow the verb |
| 6 | the time given was not enough |
| 7 | an error that Weft did not expect; `WEFT_DEBUG=1` shows its traceback |
| 8 | the server does not know who asks, or whoever asks may not do that |
| 70 | `weft worker` only: a handler blocked the event loop past its timeout, so the process ended itself |
| 128 + n | `weft worker` only: the second signal n ended it before its tasks were done, for example 143 for SIGTERM |
| 130 | interrupted |

The exit code of each error is on the page of [errors](errors.md). `weft db psql` ends with the code of psql.

## Options of every command

{options}
`--quiet` and `--context` may also stand behind the command's name: `weft jobs list --context local`. Colours are for
terminals only, and `NO_COLOR` set to anything turns them off there too. Nothing is drawn over and over where `TERM` is
`dumb` or the standard error is no terminal; `WEFT_QUIET=true` is as `--quiet`.
"""


@dataclass(frozen=True)
class Parameter:
    """An argument or an option, as it is written on the command line."""

    shown: str
    is_argument: bool
    is_required: bool
    default: object
    help: str
    choices: tuple[str, ...] = ()


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield each command that does something: its full name, and the function behind it.

    Read from what is registered with Typer, not from the parser that it builds: that differs between its releases.
    """
    from weft.cli.apps import COMMANDS

    for name, (module, _) in COMMANDS.items():
        app: typer.Typer = importlib.import_module(f"weft.cli.{module}").app
        for found in app.registered_commands:
            function = found.callback
            assert function is not None
            own = found.name or function.__name__.replace("_", "-")
            is_group = len(app.registered_commands) > 1 or app.registered_callback is not None
            yield f"weft {name} {own}" if is_group else f"weft {name}", function


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a command, in their order."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if hints[name] is typer.Context:
            found.append(Parameter("[ARGUMENTS]...", True, False, None, "Handed on as they are."))
            continue
        kind, info = typing.get_args(hints[name])[:2]
        if info.hidden:
            continue
        plain = next(part for part in (typing.get_args(kind) or (kind,)) if part is not type(None))
        choices = _choices(plain)
        value = info.metavar or "|".join(choices) or {int: "N", float: "N"}.get(plain, name.upper())
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        is_argument = type(info).__name__ == "ArgumentInfo"
        if is_argument:
            shown = value
        else:
            # Inside Annotated, Typer keeps the first name of an option where its default would be.
            declared = [decl for decl in (info.default, *(info.param_decls or ())) if isinstance(decl, str)]
            declared = sorted(declared or [f"--{name.replace('_', '-')}"], key=len)
            shown = ", ".join(declared) + ("" if plain is bool else f" {value}")
        is_required = parameter.default is inspect.Parameter.empty
        found.append(Parameter(shown, is_argument, is_required, default, (info.help or "").strip(), choices))
    return found


def _choices(kind: Any) -> tuple[str, ...]:
    is_choice = isinstance(kind, type) and issubclass(kind, enum.Enum)
    return tuple(str(member.value) for member in kind) if is_choice else ()


def _meaning(parameter: Parameter) -> str:
    if not parameter.choices or parameter.choices[0] in parameter.shown + parameter.help:
        return parameter.help
    return f"{parameter.help} One of {', '.join(map(code, parameter.choices))}."


def _usage(path: str, found: list[Parameter]) -> str:
    arguments = [
        p.shown if p.is_required or p.shown.startswith("[") else f"[{p.shown}]" for p in found if p.is_argument
    ]
    return " ".join([path, *arguments, *(["[options]"] if any(not p.is_argument for p in found) else [])])


def _default(value: object) -> str:
    if value is None or value is False or value == "":
        return ""
    return code(getattr(value, "value", value))


def page() -> str:
    """Return the page."""
    from weft.cli.main import root

    own = [(code(each.shown), each.help) for each in parameters(root)]
    parts = [_HEAD.replace("{options}", table(("option", "meaning"), own))]
    for path, function in commands():
        found = parameters(function)
        text = inspect.cleandoc(function.__doc__ or "")
        parts.append(f"\n## `{path}`\n\n```text\n{_usage(path, found)}\n```\n\n{text}\n")
        rows = [(code(p.shown), _default(p.default), _meaning(p)) for p in found]
        if rows:
            parts.append("\n" + table(("argument or option", "default", "meaning"), rows))
    return "".join(parts)
