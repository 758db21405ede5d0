"""Which files a query's process may open: those it was given, by the kernel's Landlock, whatever its user may open."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ASK_VERSION, _BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_REG, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8, 1 << 14
_SPILL = _WRITE_FILE | _READ_FILE | _READ_DIR | _REMOVE_FILE | _MAKE_REG
# What each version of Landlock can refuse of the file system: everything it knows is refused unless a rule allows it.
_REFUSABLE = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_REFUSABLE_NOW = (1 << 16) - 1
_TCP, _SCOPES = 0b11, 0b11
_SINCE_TCP, _SINCE_SCOPES = 4, 6


def version(libc: ctypes.CDLL) -> int:
    """Return which version of Landlock the kernel has; 0 for none."""
    return max(0, int(libc.syscall(_CREATE, None, 0, _ASK_VERSION)))


def confine(libc: ctypes.CDLL, files: Iterable[str], spill: str | None) -> None:
    """Refuse all files from now on but ``files``, to read, and what is in ``spill``; raises OSError if that cannot be.

    It holds for this thread and those it starts. Where the kernel can, it refuses TCP and signals to others as well.
    """
    known = version(libc)
    if known == 0:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or it is switched off")
    refusable = _REFUSABLE.get(known, _REFUSABLE_NOW)
    asked = struct.pack("=Q", refusable)
    if known >= _SINCE_TCP:
        asked += struct.pack("=Q", _TCP)
    if known >= _SINCE_SCOPES:
        asked += struct.pack("=Q", _SCOPES)
    rules = _checked(libc.syscall(_CREATE, asked, len(asked), 0), "a set of rules")
    try:
        for path in files:
            _allow(libc, rules, path, _READ_FILE)
        if spill is not None:
            _allow(libc, rules, spill, (_SPILL | _TRUNCATE) & refusable)
        _checked(libc.syscall(_RESTRICT, rules, 0), "the rules")
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        # A rule is for the file itself: one whose path has become a link since it was looked at is another.
        if os.readlink(f"/proc/self/fd/{place}") != os.path.abspath(path):
            raise OSError(errno.ELOOP, f"{path} has become a link")
        _checked(libc.syscall(_ADD, rules, _BENEATH, struct.pack("=Qi", rights, place), 0), "a rule")
    finally:
        os.close(place)


def _checked(answer: int, what: str) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock refuses {what}")
    return answer
