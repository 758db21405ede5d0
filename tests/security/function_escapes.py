"""What functions of Python try in their limited process; each returns what it got, ESCAPED where that is too much.

Each does no harm to the machine where it succeeds: it touches only the world of the test, or asks for what there is
not, which without walls is another error. ``{secret}``, ``{outside}``, ``{own}`` and ``{port}`` are places that they
must not reach, and ``{pid}`` is a process of the same user.
"""

from __future__ import annotations

ESCAPES: dict[str, str] = {
    "read a file": "open({secret!r}).read()",
    "read a file by os": "os.read(os.open({secret!r}, os.O_RDONLY), 100)",
    "read a file by io": "io.FileIO({secret!r}).read()",
    "read a file by Arrow": "str(pa.memory_map({secret!r}).read())",
    "read a file by Parquet": "str(pq.read_table({outside!r} + '/secret.parquet').to_pylist())",
    "read through a link": "str(pq.read_table({own!r} + '/link.parquet').to_pylist())",
    "read by a link of one's own": "(os.symlink({secret!r}, 'x'), open('x').read())",
    "read by a hard link": "(os.link({secret!r}, 'x'), open('x').read())",
    "read a folder": "gave(os.listdir({outside!r}))",
    "read the root": "gave(os.listdir('/'))",
    "read the passwords": "gave(open('/etc/passwd').read())",
    "read one's own memory": "gave(open('/proc/self/mem', 'rb'))",
    "read one's environment": "open('/proc/self/environ').read()",
    "read the parent's environment": "open('/proc/{pid}/environ').read()",
    "see the environment": "str(dict(os.environ))",
    "write a file": "gave(open({outside!r} + '/evil', 'w').write('x'))",
    "write into the datasets": "gave(open({own!r} + '/evil.parquet', 'w').write('x'))",
    "write over the input": "gave(open({own!r} + '/orders.parquet', 'w').write('x'))",
    "empty the input": "gave(os.truncate({own!r} + '/orders.parquet', 0))",
    "write temporary files": "gave([open(f'spill/{{n}}', 'wb').write(b'x') for n in range(3)])",
    "remove a file": "gave(os.remove({secret!r}))",
    "rename a file": "gave(os.rename({secret!r}, {outside!r} + '/moved'))",
    "make a folder": "gave(os.mkdir({outside!r} + '/folder'))",
    "change rights": "gave(os.chmod({secret!r}, 0o777))",
    "change times": "gave(os.utime({secret!r}, (1, 1)))",
    "leave by root": "gave(os.chroot({outside!r}))",
    "connect": "gave(socket.create_connection(('127.0.0.1', {port}), 2))",
    "make a socket": "gave(socket.socket())",
    "make a unix socket": "gave(socket.socket(socket.AF_UNIX))",
    "send a datagram": "gave(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port})))",
    "ask for a name": "gave(socket.getaddrinfo('example.com', 80))",
    "fork": "gave(os.fork())",
    "start a program": "gave(os.spawnv(os.P_WAIT, '/bin/true', ['true']))",
    "start by os": "gave(os.posix_spawn('/bin/true', ['true'], {{}}))",
    "become a program": "gave(os.execv('/bin/true', ['true']))",
    "run a shell": "('ESCAPED' if os.system('true') == 0 else 'no')",
    "kill the parent": "gave(os.kill({pid}, 0))",
    "kill all": "gave(os.kill(-1, 0))",
    "trace the parent": "called(libc.ptrace(16, {pid}, 0, 0))",
    "become root": "gave(os.setuid(0))",
    "a namespace": "called(libc.unshare(0x10000000))",
    "mount": "called(libc.mount(b'x', b'/there/is/no/such/folder', b'tmpfs', 0, 0))",
    "memory that runs": "called(libc.mmap(None, 4096, 7, 0x22, -1, 0))",
    "let memory run": "called(libc.mprotect(ctypes.c_void_p(ctypes.addressof(page) & ~4095), 4096, 7))",
    "a library": "gave(ctypes.CDLL({outside!r} + '/secret.txt'))",
    "more memory": "gave(resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)))",
    "more time": "gave(signal.setitimer(signal.ITIMER_REAL, 10000))",
    "memory beyond the limit": "called(shared(1 << 20))",
    "let a file kill others": "gave([fcntl.fcntl(3, fcntl.F_SETSIG, 0), fcntl.fcntl(3, fcntl.F_SETOWN, {pid})])",
    "see what others have open": "gave(os.readlink('/proc/{pid}/cwd'))",
    "a file of memory": "gave(os.memfd_create('x'))",
    "a user's keys": "called(libc.syscall(248, b'no-such-kind', b'x', b'y', 1, -5))",
    "an event of the kernel": "called(libc.syscall(298, 0, 0, -1, -1, 0))",
    "a program in the kernel": "called(libc.syscall(321, 0, 0, 0))",
    "the io ring": "called(libc.syscall(425, 1, ctypes.create_string_buffer(256)))",
    "open by handle": "called(libc.syscall(304, -100, ctypes.create_string_buffer(64), 0))",
    "memory of others": "called(libc.syscall(310, {pid}, 0, 0, 0, 0, 0))",
    "descriptors of others": "called(libc.syscall(438, {pid}, 0, 0))",
    "other files that are open": "gave([fd for fd in range(4, 200) if is_foreign(fd, {own!r})] or no())",
    "import what is not loaded": "gave(__import__('sqlite3'))",
    "a pipe": "gave(os.pipe())",
}
PROLOGUE = """
import ctypes, fcntl, io, os, resource, signal, socket
import pyarrow as pa
import pyarrow.parquet as pq

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_ssize_t
page = ctypes.create_string_buffer(8192)

def gave(value):
    return f"ESCAPED {value!r}"

def called(answer):
    return "refused" if answer < 0 and ctypes.get_errno() == 1 else f"ESCAPED {answer} {ctypes.get_errno()}"

def shared(size):
    return libc.mmap(None, ctypes.c_size_t(size), 3, 0x21, -1, ctypes.c_long(0))

def is_foreign(fd, own):
    try:
        return os.fstat(fd).st_ino != os.stat(own + "/orders.parquet").st_ino
    except OSError:
        return False

def no():
    raise OSError("none")

def transform(table):
"""


def code_of(expression: str, places: dict[str, object]) -> str:
    """Return the code of an attempt in a world."""
    return f"{PROLOGUE}    return [{{'got': str({expression.format(**places)})}}]\n"
