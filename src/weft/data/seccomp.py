"""Which calls of the kernel a query's process may still make: a short list, and everything else is refused.

A list of what is allowed, not of what is forbidden: a call that a later kernel brings is refused too. A refused call
fails with EPERM as if a right were missing, so that DuckDB tells of it as of any other failure.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

# What reading files, computing with threads, spilling and answering take, by the numbers of each architecture.
_X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
    "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17,
    "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "sched_yield": 24, "mremap": 25, "madvise": 28,
    "nanosleep": 35, "getpid": 39, "exit": 60, "uname": 63, "fsync": 74, "fdatasync": 75,
    "ftruncate": 77, "getcwd": 79, "unlink": 87, "readlink": 89, "getrlimit": 97, "getrusage": 98, "sysinfo": 99,
    "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "gettid": 186,
    "futex": 202, "sched_getaffinity": 204, "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "newfstatat": 262, "unlinkat": 263,
    "readlinkat": 267, "faccessat": 269, "set_robust_list": 273, "fallocate": 285, "preadv": 295, "pwritev": 296,
    "getcpu": 309, "getrandom": 318, "membarrier": 324, "statx": 332, "rseq": 334, "faccessat2": 439,
    "mmap": 9, "mprotect": 10, "clone": 56, "tgkill": 234, "openat": 257, "prlimit64": 302, "clone3": 435,
    "fcntl": 72,
}  # fmt: skip
_AARCH64 = {
    "getcwd": 17, "unlinkat": 35, "ftruncate": 46, "fallocate": 47, "faccessat": 48, "close": 57,
    "getdents64": 61, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68,
    "preadv": 69, "pwritev": 70, "ppoll": 73, "readlinkat": 78, "newfstatat": 79, "fstat": 80, "fsync": 82,
    "fdatasync": 83, "exit": 93, "exit_group": 94, "futex": 98, "set_robust_list": 99, "nanosleep": 101,
    "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
    "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
    "times": 153, "uname": 160, "getrusage": 165, "getcpu": 168, "getpid": 172, "getuid": 174, "geteuid": 175,
    "getgid": 176, "getegid": 177, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216,
    "madvise": 233, "getrandom": 278, "membarrier": 283, "statx": 291, "rseq": 293, "faccessat2": 439,
    "mmap": 222, "mprotect": 226, "clone": 220, "tgkill": 131, "openat": 56, "prlimit64": 261, "clone3": 435,
    "fcntl": 25,
}  # fmt: skip
# Each by what `uname` calls it: how the kernel marks its calls, and their numbers.
ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
# Allowed with some arguments only; see `_guarded`.
_GUARDED = ("mmap", "mprotect", "clone", "tgkill", "openat", "open", "prlimit64", "clone3", "fcntl")

_LOAD, _AND, _JUMP_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_PROT_EXEC, _CLONE_THREAD, _READ_AND_TRUNCATE, _TRUNCATE = 0x4, 0x10000, 0x203, 0x200
_SHARED_WITHOUT_FILE, _GROWS_DOWN = 0x21, 0x100
# To copy a descriptor, to read and set its flags, and to lock what it is of.
_OF_FILES = (*range(8), 1030)
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(libc: ctypes.CDLL) -> None:
    """Refuse all other calls from now on, in this thread and those it starts; raises OSError where that cannot be."""
    if platform.machine() not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no list of calls for {platform.machine()}")
    code = b"".join(struct.pack("=HBBI", *each) for each in program(platform.machine(), os.getpid()))
    filtering = _Program(len(code) // 8, code)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filtering), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp is refused")


def program(machine: str, pid: int) -> list[Instruction]:
    """Return the filter for an architecture, as the kernel takes it."""
    mark, numbers = ARCHITECTURES[machine]
    found = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, mark),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for name in _GUARDED:
        if name in numbers:
            steps = _guarded(name, pid)
            found += [(_JUMP_EQUAL, 0, len(steps), numbers[name]), *steps]
    for name, number in numbers.items():
        if name not in _GUARDED:
            found += [(_JUMP_EQUAL, 0, 1, number), _answer()]
    return [*found, _answer(errno.EPERM)]


def _answer(failure: int = 0) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | failure if failure else _ALLOW)


def _guarded(name: str, pid: int) -> list[Instruction]:
    """Return the steps that decide on a call by its arguments; each ends in an answer."""
    refused, allowed = _answer(errno.EPERM), _answer()
    match name:
        case "mprotect":  # no memory that can be executed: no code but what is loaded
            return [_argument(2), (_AND, 0, 0, _PROT_EXEC), (_JUMP_EQUAL, 0, 1, 0), allowed, refused]
        case "mmap":  # nor memory that is shared or grows as a stack: it does not count against the limit of memory
            return [
                *(_argument(2), (_AND, 0, 0, _PROT_EXEC), (_JUMP_EQUAL, 0, 7, 0)),
                *(_argument(3), (_AND, 0, 0, _GROWS_DOWN), (_JUMP_EQUAL, 0, 4, 0)),
                *(_argument(3), (_AND, 0, 0, _SHARED_WITHOUT_FILE), (_JUMP_EQUAL, 1, 0, _SHARED_WITHOUT_FILE)),
                *(allowed, refused),
            ]
        case "fcntl":  # not whom a file sends which signal: that may be any process of the user
            most = len(_OF_FILES)
            wanted = [(_JUMP_EQUAL, most - place, 0, command) for place, command in enumerate(_OF_FILES)]
            return [_argument(1), *wanted, refused, allowed]
        case "clone":  # threads, no processes
            return [_argument(0), (_AND, 0, 0, _CLONE_THREAD), (_JUMP_EQUAL, 0, 1, _CLONE_THREAD), allowed, refused]
        case "tgkill":  # a process may end itself
            return [_argument(0), (_JUMP_EQUAL, 0, 1, pid), allowed, refused]
        case "open" | "openat":  # Landlock before its third version does not see files emptied by opening to read
            flags = _argument(1 if name == "open" else 2)
            return [flags, (_AND, 0, 0, _READ_AND_TRUNCATE), (_JUMP_EQUAL, 1, 0, _TRUNCATE), allowed, refused]
        case "prlimit64":  # limits are read, not set
            return [
                _argument(2),
                (_JUMP_EQUAL, 0, 3, 0),
                _argument(2, high=True),
                (_JUMP_EQUAL, 0, 1, 0),
                allowed,
                refused,
            ]
        case _:  # clone3: its arguments cannot be seen; the C library then falls back to clone
            return [_answer(errno.ENOSYS)]


def _argument(place: int, *, high: bool = False) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * place + (4 if high else 0))
