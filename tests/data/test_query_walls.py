"""The walls around queries, each tried from inside a process of its own."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.data import landlock, seccomp

HEADERS = {
    "x86_64": "asm/unistd_64.h",
    "aarch64": "asm-generic/unistd.h",
}
PLACES = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu")
TRIED = """
import ctypes, fcntl, json, mmap, os, resource, signal, socket, sys, threading
from weft.data import walls

folder, allowed, refused, user = sys.argv[1:]
if user != "same":
    # Here, because that user may be able to enter neither the interpreter's folders nor these.
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
bounds = walls.Bounds(memory=50_000_000, spill=1_000_000, cpu_seconds=60, seconds=60)
missing = walls.put_up(bounds, [allowed], folder)
libc = ctypes.CDLL(None, use_errno=True)

def called(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), "")
    return answer

def in_thread(step):
    found = []
    def run():
        try:
            found.append(step())
        except OSError as problem:
            found.append(problem)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]

def write(path, size=1):
    place = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(size // 1000 + 1):
            os.write(place, b"x" * 1000)
    finally:
        os.close(place)

tries = {
    "read what is allowed": lambda: os.read(os.open(allowed, os.O_RDONLY), 1),
    "write a temporary file": lambda: write(folder + "/t"),
    "remove a temporary file": lambda: os.unlink(folder + "/t"),
    "start a thread": lambda: in_thread(lambda: 0),
    "copy a descriptor": lambda: os.close(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 0)),
    "take memory of one's own": lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
    "take some memory": lambda: bytearray(20_000_000),
    "read another file": lambda: os.open(refused, os.O_RDONLY),
    "read another file in a thread": lambda: in_thread(lambda: os.open(refused, os.O_RDONLY)),
    "write what may be read": lambda: os.open(allowed, os.O_WRONLY),
    "empty what may be read": lambda: os.open(allowed, os.O_RDONLY | os.O_TRUNC),
    "empty a temporary file by reading": lambda: os.open(folder + "/kept", os.O_RDONLY | os.O_TRUNC),
    "write another file": lambda: os.open(refused, os.O_WRONLY),
    "cut another file": lambda: os.truncate(refused, 0),
    "make a file outside": lambda: os.open(refused + ".new", os.O_CREAT | os.O_WRONLY),
    "make a folder": lambda: os.mkdir(refused + ".new"),
    "make a folder among temporary files": lambda: os.mkdir(folder + "/new"),
    "remove a file": lambda: os.unlink(refused),
    "rename a file": lambda: os.rename(refused, refused + ".new"),
    "link a file": lambda: os.link(refused, folder + "/new"),
    "link a file by name": lambda: os.symlink(refused, folder + "/new"),
    "list a folder": lambda: os.listdir(os.path.dirname(refused)),
    "change rights": lambda: os.chmod(allowed, 0o777),
    "change an owner": lambda: os.chown(allowed, 1, 1),
    "another root": lambda: os.chroot(folder),
    "another folder": lambda: os.chdir("/"),
    "mount": lambda: called(libc.mount(b"x", b"/", b"tmpfs", 0, None)),
    "another user": lambda: os.setuid(1),
    "a namespace": lambda: called(libc.unshare(0x10000000)),
    "a socket": lambda: socket.socket(),
    "a socket of the machine": lambda: socket.socket(socket.AF_UNIX),
    "a raw socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "a pair of sockets": lambda: socket.socketpair(),
    "a process": lambda: os.fork(),
    "a process by the other call": lambda: called(libc.syscall(58 if os.uname().machine == "x86_64" else 9999)),
    "a program": lambda: os.execv("/bin/true", ["true"]),
    "a program by spawning": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "a signal to the one that began it": lambda: os.kill(os.getppid(), 0),
    "a signal to all": lambda: os.kill(-1, 0),
    "a debugger": lambda: called(libc.ptrace(16, os.getppid(), 0, 0)),
    "another's memory": lambda: called(libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0)),
    "memory that is executed": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC),
    "memory that becomes executable": lambda: called(libc.mprotect(ctypes.c_void_p(id(tries) & ~4095), 4096, 7)),
    "memory that could be shared": lambda: mmap.mmap(-1, 4096),
    "memory that grows as a stack": lambda: mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | 0x120),
    "a signal that a file sends": lambda: fcntl.fcntl(1, fcntl.F_SETOWN, os.getpid()),
    "which signal a file sends": lambda: fcntl.fcntl(1, fcntl.F_SETSIG, 9),
    "a lease of a file": lambda: fcntl.fcntl(os.open(allowed, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "a ring of calls": lambda: called(libc.syscall(425, 8, None)),
    "a program for the kernel": lambda: called(libc.syscall(321, 0, None, 0)),
    "a file in memory": lambda: os.memfd_create("x"),
    "a watch": lambda: called(libc.inotify_init()),
    "a higher limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600)),
    "no limit": lambda: resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)),
    "a higher priority": lambda: os.nice(-1),
    "the clock": lambda: called(libc.syscall(227, 0, b"0" * 16)),
    "the name of the machine": lambda: called(libc.sethostname(b"x", 1)),
    "device control": lambda: fcntl.ioctl(0, 0x5412, b"x"),
    "shared memory": lambda: called(libc.shmget(0, 4096, 0o1600)),
    "messages": lambda: called(libc.msgget(0, 0o1600)),
    "keys": lambda: called(libc.syscall(250, 0, 0, 0, 0, 0)),
    "modules": lambda: called(libc.syscall(313, 0, b"", 0)),
    "a large temporary file": lambda: write(folder + "/large", 2_000_000),
    "many files": lambda: [os.open(allowed, os.O_RDONLY) for _ in range(2000)],
    "much memory": lambda: bytearray(1_000_000_000),
}
found = {}
for name, step in tries.items():
    try:
        step()
        found[name] = "done"
    except (OSError, MemoryError, ValueError, AttributeError) as problem:
        found[name] = type(problem).__name__
    if name == "many files":
        os.closerange(3, 1000)
print(json.dumps({"missing": missing, "found": found}))
"""
ALLOWED = {
    "read what is allowed", "write a temporary file", "remove a temporary file", "start a thread", "take some memory",
    "copy a descriptor", "take memory of one's own",
}  # fmt: skip


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can enter."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "user", ["same", pytest.param("65534", marks=pytest.mark.skipif(os.getuid() != 0, reason="needs root"))]
)
def test_behind_the_walls_only_what_a_query_needs_is_possible(place: Path, user: str) -> None:
    """As root, and as somebody who has no rights to give up."""
    spill, allowed, refused = place / "spill", place / "allowed", place / "refused"
    spill.mkdir()
    (spill / "kept").write_text("kept")
    allowed.write_text("allowed")
    refused.write_text("refused")
    for path in (place, spill, spill / "kept", allowed, refused):
        path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", TRIED, str(spill), str(allowed), str(refused), user],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["missing"] == {}
    assert {name for name, what in answer["found"].items() if what == "done"} == ALLOWED
    assert [path.read_text() for path in (allowed, refused, spill / "kept")] == ["allowed", "refused", "kept"]
    assert {path.name for path in place.iterdir()} == {"spill", "allowed", "refused"}


def test_a_file_that_has_become_a_link_since_it_was_looked_at_is_not_let_through_the_wall(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / "looked-at").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="has become a link"):
        landlock.confine(ctypes.CDLL(None, use_errno=True), [str(tmp_path / "looked-at")], None)


def test_walls_are_not_put_up_around_one_of_several_threads() -> None:
    program = """
import threading
from weft.data import walls
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(sorted(walls.put_up(walls.Bounds(1, 1, 1, 1), [], None).items())[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "('calls', 'other threads run already')\n"


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_calls_have_the_numbers_of_the_kernels_headers(machine: str) -> None:
    header = next((path for place in PLACES if (path := Path(place, HEADERS[machine])).exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed here")
    text = header.read_text(encoding="ascii")
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", text)}
    # Where a number depends on the width of the machine, the headers have the older name for the wide one.
    known |= {"newfstatat": known.get("newfstatat", known.get("fstatat", -1))}
    _, numbers = seccomp.ARCHITECTURES[machine]
    assert {name: number for name, number in numbers.items() if known.get(name) != number} == {}


def test_a_call_of_another_architecture_ends_the_process() -> None:
    """Its numbers mean other calls."""
    other = next(machine for machine in seccomp.ARCHITECTURES if machine != platform.machine())
    mark, _ = seccomp.ARCHITECTURES[other]
    assert seccomp.program(other, 1)[1] == (0x15, 1, 0, mark)
    assert seccomp.program(other, 1)[2] == (0x06, 0, 0, 0x80000000)
