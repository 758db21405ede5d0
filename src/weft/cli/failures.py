"""Turns whatever a command raises into one line that says what to do, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from weft.core.errors import OperatorError, PermissionDenied, WeftError
from weft.core.server_errors import Unauthenticated

UNEXPECTED = 7

# What to do, by the beginning of PostgreSQL's SQLSTATE.
_ADVICE = {
    "08": "check that PostgreSQL runs and can be reached, then try again",
    "25006": "WEFT_DATABASE_URL leads to a standby: name the primary, or add target_session_attrs=read-write",
    "3F000": "the schema is not what this release needs, see `weft migrate current`",
    "42703": "the schema is not what this release needs, see `weft migrate current`",
    "42883": "the schema is not what this release needs, see `weft migrate current`",
    "42P01": "the schema is not what this release needs, see `weft migrate current`",
    "53100": "free space on the disk of PostgreSQL, then try again",
    "53200": "give PostgreSQL more memory, or lower its settings, then try again",
    "53": "give PostgreSQL more of what it lacks, or use fewer connections, then try again",
    "55P03": "another transaction holds the lock, see pg_stat_activity; then try again",
    "57014": "a limit such as statement_timeout, or a person, ended the statement; raise the limit, or try again",
    "57P": "check that PostgreSQL runs, then try again",
    "58": "PostgreSQL has trouble with its own files, see its log",
}


class Failure(NamedTuple):
    """What to tell, what to exit with, a word for programs, the field of the input that is wrong, and what else is."""

    message: str
    exit_code: int
    code: str
    field: str | None = None
    details: Mapping[str, object] = MappingProxyType({})


def failure_of(problem: Exception) -> Failure:
    """Return what to tell of ``problem``; what nobody expected is told by its type, with the way to its traceback."""
    failure = _failure_of(problem)
    # A note says what became of what the caller gave.
    return failure._replace(message="; ".join([failure.message, *getattr(problem, "__notes__", ())]))


def _failure_of(problem: Exception) -> Failure:
    if isinstance(problem, WeftError):
        said = f"{problem}; `weft login URL` signs in" if isinstance(problem, Unauthenticated) else str(problem)
        return Failure(said, problem.exit_code, problem.code, getattr(problem, "field", None), problem.details)
    if isinstance(problem, TimeoutError) and problem.errno is None:
        advice = "see whether it is overloaded or a long transaction holds a lock, then try again"
        return Failure(f"PostgreSQL did not answer in time: {advice}", OperatorError.exit_code, "timeout")
    if isinstance(problem, OSError):
        return Failure(_of_system(problem), OperatorError.exit_code, "system")
    # The first line only: PostgreSQL's detail may be a whole row, and params are nobody's business here.
    words = str(problem).partition("\n")[0]
    state = str(getattr(problem, "sqlstate", None) or "")
    if state == "42501":
        return Failure(str(PermissionDenied(words)), PermissionDenied.exit_code, PermissionDenied.code)
    for length in (5, 3, 2):
        if advice := _ADVICE.get(state[:length], ""):
            return Failure(f"PostgreSQL: {words}: {advice}", OperatorError.exit_code, "postgresql")
    kind = f"{type(problem).__name__}{f' ({state})' if state else ''}"
    return Failure(
        f"unexpected {kind}: {words}: this is an error in Weft; "
        "WEFT_DEBUG=1 shows the traceback, which belongs into a report",
        UNEXPECTED,
        "unexpected",
    )


def is_debugging() -> bool:
    """Whether WEFT_DEBUG asks for tracebacks."""
    from weft.cli.output import is_wished

    return is_wished("WEFT_DEBUG")


def drop_standard_output() -> bool:
    """Let what could not be printed go, and say whether there was any.

    Python would try once more when it ends, and complain in its own words.
    """
    try:
        sys.stdout.flush()
        return False
    except (OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        return True


def _of_system(problem: OSError) -> str:
    from weft.db.embedded_layout import advice

    reason = problem.strerror or str(problem) or type(problem).__name__
    if not isinstance(problem.filename, str | os.PathLike):
        return f"{reason}: see whether the disk, the limits of this user or what the output goes to is the cause"
    path = Path(os.fsdecode(problem.filename)).absolute()
    folder, setting = _place_of(path)
    return f"cannot use {path}: {reason}: {advice(problem.errno, folder, setting)}"


def _place_of(path: Path) -> tuple[Path, str]:
    """Return the folder of the settings in which ``path`` lies, with the setting that moves it."""
    from weft.core.settings import Settings
    from weft.db.blob_address import blob_address
    from weft.db.embedded_layout import home_dir
    from weft.worker.logs import log_dir

    try:
        settings = Settings.load()
        blobs = blob_address(settings)
        places = [(blobs, "WEFT_BLOB_URL")] if isinstance(blobs, Path) else []
        places += [(log_dir(settings), "WEFT_LOG_DIR"), (home_dir(settings), "WEFT_HOME")]
    except (WeftError, OSError):
        return path, "the path"
    # Also what lies above: a folder that is missing on the way is told by the way.
    near = (place for place in places if path.is_relative_to(place[0]) or place[0].is_relative_to(path))
    return next(near, (path, "the path"))
