"""Where a command goes, to a server or to a database, and why there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.cli.contexts import LOCAL, Context, Contexts, read_contexts
from weft.core.errors import CallerError, InvalidInput
from weft.core.settings import Settings


@dataclass(frozen=True)
class Target:
    """The settings in force, with the server and the token of the context in force; ``why`` says what decided it."""

    settings: Settings
    why: str
    context: str | None = None

    @property
    def kind(self) -> str:
        """What commands go to: a ``server``, a ``database`` or the ``embedded`` one."""
        if self.settings.server is not None:
            return "server"
        return "embedded" if self.settings.database_url is None else "database"


def find_target() -> Target:
    """Return where commands go.

    WEFT_SERVER decides, then --context or WEFT_CONTEXT, then WEFT_DATABASE_URL, then the current context; where none of
    them says anything it is the embedded database.
    """
    settings = Settings.load()
    if os.environ.get("WEFT_SERVER"):
        return Target(settings, "WEFT_SERVER is set")
    if asked := os.environ.get("WEFT_CONTEXT"):
        why = f"--context or WEFT_CONTEXT is {asked}"
        if asked == LOCAL:
            return Target(replace(settings, server=None), why, LOCAL)
        return _of_context(settings, read_contexts().find(asked), why)
    if settings.server is not None:
        return Target(settings, "the file of settings names the server")
    if settings.database_url is not None:
        return Target(settings, "WEFT_DATABASE_URL or a setting of that meaning names it")
    contexts = read_contexts()
    if is_used(contexts):
        assert contexts.current is not None
        found = contexts.find(contexts.current)
        return _of_context(settings, found, f"{found.name} is the current context")
    return Target(settings, "nothing else is set")


def is_used(contexts: Contexts) -> bool:
    """Whether there is a current context that is a server."""
    return contexts.current is not None and contexts.current != LOCAL


def database_settings(what: str, **overrides: Any) -> Settings:
    """Return the settings for a command that needs the database itself; refuse where commands go to a server."""
    found = find_target()
    if found.kind == "server":
        raise CallerError(
            f"{what} works on the database itself, and commands go to {found.settings.server} because {found.why}: "
            f"do it where the database is, or unset WEFT_SERVER and use `weft --context {LOCAL}`"
        )
    return Settings.load(**overrides) if overrides else found.settings


def goes_to_server(modules: Sequence[str]) -> bool:
    """Whether jobs run where a server is, and only there; refuse handlers that would have to run here."""
    found = find_target()
    if found.kind == "server" and modules:
        raise InvalidInput(
            "--app", f"handlers run where the workers are, and commands go to {found.settings.server} because "
            f"{found.why}: leave it out"
        )  # fmt: skip
    return found.kind == "server"


def _of_context(settings: Settings, context: Context, why: str) -> Target:
    return Target(replace(settings, server=context.server, token=context.token or settings.token), why, context.name)
