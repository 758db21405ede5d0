"""The servers that a person has signed in to, kept in a file that nobody else may read."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidInput, InvalidSetting, NotFound

# Stands for no server: the database of this machine.
LOCAL = "local"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Context:
    """A server, and the token by which it knows who asks."""

    name: str
    server: str
    token: str | None = field(default=None, repr=False)


@dataclass
class Contexts:
    """All contexts by name, and the one that is used where nothing else is said."""

    current: str | None = None
    by_name: dict[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """Return a context; raises `NotFound` with what there is."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "no other yet"
            raise NotFound("context", name, advice=f"there are {LOCAL} and {known}; `weft login URL` makes one")
        return self.by_name[name]


def file_path() -> Path:
    """Return where contexts are kept; the folder need not exist yet."""
    base = os.environ.get("XDG_CONFIG_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "weft" / "contexts.toml"


def check_context_name(name: str) -> str:
    """Return a name for a context, if it may be one."""
    if name == LOCAL:
        raise InvalidInput("context", f"{LOCAL!r} stands for the database of this machine: choose another name")
    if not _NAME.fullmatch(name):
        raise InvalidInput("context", f"{name!r} must be of letters, digits, '.', '_' and '-', and at most 100")
    return name


def read_contexts() -> Contexts:
    """Return what is kept; nothing when there is no file. A file that others may read is refused."""
    path = file_path()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise InvalidSetting(str(path), f"holds tokens, and others may read it: `chmod 600 {path}`")
            found = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidSetting(str(path), f"not valid TOML: {problem}: mend it, or remove it and sign in anew") from None
    return _read(path, found)


@contextmanager
def changing_contexts() -> Iterator[Contexts]:
    """Lend what is kept, and keep what it is in the end; others who change it wait."""
    path = file_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        contexts = read_contexts()
        yield contexts
        _write(path, contexts)
    finally:
        os.close(folder)


def _read(path: Path, found: dict[str, Any]) -> Contexts:
    try:
        by_name = {
            name: Context(name, str(entry["server"]), entry.get("token"))
            for name, entry in found.get("contexts", {}).items()
        }
    except (AttributeError, KeyError, TypeError):
        raise InvalidSetting(str(path), "each context must be a table with a server and a token") from None
    return Contexts(found.get("current"), by_name)


def _write(path: Path, contexts: Contexts) -> None:
    lines = [] if contexts.current is None else [f"current = {_text(contexts.current)}\n"]
    for context in contexts.by_name.values():
        lines.append(f"\n[contexts.{_text(context.name)}]\nserver = {_text(context.server)}\n")
        if context.token is not None:
            lines.append(f"token = {_text(context.token)}\n")
    new = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write("".join(lines))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _text(value: str) -> str:
    # A JSON string is one of TOML's too, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
