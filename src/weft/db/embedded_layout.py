"""Where the embedded PostgreSQL lives: its folders, its socket, its user."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EMFILE, ENFILE, ENOSPC, EPERM, EROFS
from pathlib import Path

from weft.core.errors import EmbeddedServerFailed
from weft.core.settings import Settings

PORT = 5432
_SYSTEM_HOME = Path("/var/lib/weft")
# What `sun_path` holds, less its closing zero.
_SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107


@dataclass(frozen=True)
class Account:
    """The unprivileged user as which root runs the server."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def of(cls, entry: pwd.struct_passwd) -> Account:
        """Read the account with all its groups, as a login would have them."""
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups))

    def may_enter(self, folder: os.stat_result) -> bool:
        """Tell from the mode bits whether this user may pass through ``folder``."""
        if folder.st_uid == self.uid:
            return bool(folder.st_mode & stat.S_IXUSR)
        if folder.st_gid in self.groups:
            return bool(folder.st_mode & stat.S_IXGRP)
        return bool(folder.st_mode & stat.S_IXOTH)


@dataclass(frozen=True)
class Layout:
    """All paths of one home, with the account that owns the data when root calls."""

    home: Path
    account: Account | None

    @property
    def data_dir(self) -> Path:
        """The cluster; it is there whole or not at all."""
        return self.home / "pgdata"

    @property
    def log_file(self) -> Path:
        """What the server writes to its standard error."""
        return self.home / "postgres.log"

    @property
    def config_file(self) -> Path:
        """Our settings, written anew at each start."""
        return self.home / "postgres.weft.conf"

    @property
    def start_lock(self) -> Path:
        """Held by whoever makes, starts, stops or replaces the server."""
        return self.home / "postgres.lock"

    @property
    def life_lock(self) -> Path:
        """Held by the server's processes for as long as one of them lives."""
        return self.home / "postgres.alive"

    @property
    def server_uid(self) -> int:
        """The user id of the server's processes."""
        return self.account.uid if self.account else os.geteuid()

    @property
    def socket_dir(self) -> Path:
        """The socket's folder: inside the home, or under ``/tmp`` when that path cannot be a socket's address.

        ``XDG_RUNTIME_DIR`` is not used: it vanishes at logout, while the server goes on, and cron has none.
        """
        inside = self.home / "run"
        # A comma separates hosts in a URL, so that no client could reach such a folder.
        if len(os.fsencode(socket_path(inside))) <= _SOCKET_PATH_LIMIT and "," not in str(inside):
            return inside
        from hashlib import blake2s

        digest = blake2s(os.fsencode(os.path.realpath(self.home)), digest_size=6).hexdigest()
        return Path("/tmp") / f"weft-{self.server_uid}-{digest}"


def socket_path(socket_dir: Path) -> Path:
    """Return the address of a server whose socket lies in ``socket_dir``."""
    return socket_dir / f".s.PGSQL.{PORT}"


def home_dir(settings: Settings) -> Path:
    """Return the folder of the embedded PostgreSQL, blobs and logs; it need not exist yet.

    Example::

        blobs = home_dir(settings) / "blobs"
    """
    if settings.home is not None:
        return settings.home
    home = _default_home()
    if os.geteuid() == 0:
        try:
            account = _chosen_account(settings)
        except EmbeddedServerFailed:
            return home  # without a user for the server there is no embedded server, but still logs
        if _barring_folder(home, account) is not None:
            return _SYSTEM_HOME
    return home


def layout_of(settings: Settings) -> Layout:
    """Return the paths that ``settings`` lead to, with the server's user when root calls."""
    home = home_dir(settings)
    if any(char in str(home) for char in "\n\r\0"):
        raise EmbeddedServerFailed(f"WEFT_HOME {str(home)!r} contains a line break", "choose another folder")
    if os.geteuid() != 0:
        return Layout(home, None)
    layout = Layout(home, _chosen_account(settings))
    try:
        owner = (layout.data_dir / "PG_VERSION").stat().st_uid
    except OSError:
        return layout
    if layout.account is None or owner == layout.account.uid:
        return layout
    return Layout(home, _owning_account(layout.data_dir, owner, settings))


def _default_home() -> Path:
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says to ignore a relative path.
    if data_home.is_absolute() and sys.platform != "darwin":
        return data_home / "weft"
    try:
        user_home = Path.home()
    except RuntimeError:
        raise EmbeddedServerFailed(
            f"user id {os.geteuid()} has no home folder", "set WEFT_HOME to a folder that this user may write"
        ) from None
    parts = ("Library", "Application Support") if sys.platform == "darwin" else (".local", "share")
    return user_home.joinpath(*parts, "weft")


def _chosen_account(settings: Settings) -> Account:
    names = [settings.postgres_user] if settings.postgres_user else ["weft", "nobody"]
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid == 0:
            raise EmbeddedServerFailed(
                f"PostgreSQL does not run as {name}", "set WEFT_POSTGRES_USER to an unprivileged user"
            )
        return Account.of(entry)
    raise EmbeddedServerFailed(
        f"root runs PostgreSQL as another user, and there is no user {' or '.join(map(repr, names))}",
        "set WEFT_POSTGRES_USER to an unprivileged user of this machine",
    )


def _owning_account(data_dir: Path, owner: int, settings: Settings) -> Account:
    """Return the user whose data it is: PostgreSQL serves only a folder of its own user."""
    try:
        account = Account.of(pwd.getpwuid(owner))
    except KeyError:
        raise EmbeddedServerFailed(
            f"{data_dir} belongs to user id {owner}, which has no name",
            "give it to a user of this machine with chown -R",
        ) from None
    if owner == 0:
        raise EmbeddedServerFailed(
            f"{data_dir} belongs to root, and PostgreSQL does not run as root",
            "give it to an unprivileged user with chown -R",
        )
    if settings.postgres_user not in (None, account.name):
        raise EmbeddedServerFailed(
            f"{data_dir} belongs to {account.name}, and WEFT_POSTGRES_USER is {settings.postgres_user}",
            f"set WEFT_POSTGRES_USER={account.name}, or give the folder away with chown -R",
        )
    return account


def _barring_folder(path: Path, account: Account) -> Path | None:
    """Return the topmost folder on the way to ``path`` that ``account`` may not enter, if there is one."""
    for folder in reversed(path.parents):
        try:
            found = folder.stat()
        except OSError:
            return None
        if not account.may_enter(found):
            return folder
    return None


def prepare_home(layout: Layout) -> None:
    """Make the home where it is missing, passable for the server's user."""
    layout.home.parent.mkdir(parents=True, exist_ok=True)
    layout.home.mkdir(mode=0o700, exist_ok=True)
    found, account = layout.home.stat(), layout.account
    if account is None or account.may_enter(found):
        return
    if found.st_gid == 0 or not found.st_mode & stat.S_IRWXG:
        os.chown(layout.home, -1, account.gid)
        layout.home.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IRWXG | stat.S_IXGRP)
    else:  # its group has rights of its own, which must stay
        layout.home.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXOTH)


def prepare_socket_dir(layout: Layout) -> None:
    """Make the socket's folder, or refuse one that others could put a socket into."""
    folder = layout.socket_dir
    try:
        folder.mkdir(mode=0o700)
        if layout.account:
            os.chown(folder, layout.account.uid, layout.account.gid)
    except FileExistsError:
        pass
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise EmbeddedServerFailed(f"{folder} is not a folder", "remove it: PostgreSQL's socket goes there")
    if found.st_uid != layout.server_uid:
        raise EmbeddedServerFailed(
            f"the socket's folder {folder} belongs to user id {found.st_uid}, not to {layout.server_uid}",
            "remove it, or set WEFT_HOME to another folder",
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def open_own(layout: Layout, path: Path, flags: int) -> int:
    """Open a file at the top of the home, made for the home's owner when it is missing; the caller closes it."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if layout.account:
        # Root may call in the home of another, who must be able to go on without root.
        owner = layout.home.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


@contextmanager
def explained(layout: Layout) -> Iterator[None]:
    """Turn an error of the operating system into one line that says what to do."""
    try:
        yield
    except OSError as problem:
        where = problem.filename if isinstance(problem.filename, str | os.PathLike) else layout.home
        raise EmbeddedServerFailed(
            f"cannot use {os.fspath(where)}: {problem.strerror or problem}", advice(problem.errno, layout.home)
        ) from problem


def advice(number: int | None, folder: Path, setting: str = "WEFT_HOME") -> str:
    """Say what to do about an error of the operating system in a folder that ``setting`` names."""
    if number in (ENOSPC, EDQUOT):
        return f"free space on the disk of {folder}, then try again"
    if number in (EACCES, EPERM, EROFS):
        return f"set {setting} to a folder that this user may write"
    if number in (EMFILE, ENFILE):
        return "raise the limit on open files (ulimit -n), then try again"
    return f"look at {folder}, or set {setting} to another folder"
