"""The process that begins those of queries: it has everything loaded, and each query gets a copy of it.

A copy takes milliseconds where a new interpreter takes half a second. This process itself sees no SQL and no data: it
copies itself when told, and tells how the copies ended. It ends with whoever started it, and takes the copies along.
"""

from __future__ import annotations

import gc
import os
import selectors
import shutil
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from weft.data import query_frames

if TYPE_CHECKING:
    import duckdb


def main(place: int, folder: str) -> NoReturn:
    """Obey the orders that come at ``place`` until there are no more."""
    control = socket.socket(fileno=place)
    try:
        from weft.data import query_child

        connection = query_child.connect()
        query_child.warm(connection)
        # What a copy does not touch it does not have to copy.
        gc.collect()
        gc.freeze()
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is told to whoever waits
        control.sendall(query_frames.ENDED.pack(0, 1) + f"{type(problem).__name__}: {problem}".encode()[:4000])
        os._exit(1)
    control.sendall(query_frames.ENDED.pack(0, 0))
    _Nursery(control, connection, folder).run()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


class _Nursery:
    def __init__(self, control: socket.socket, connection: duckdb.DuckDBPyConnection, folder: str) -> None:
        self._control = control
        self._connection = connection
        self._folder = folder
        self._pids: dict[int, int] = {}

    def run(self) -> None:
        """Serve until whoever gives the orders is gone."""
        heard, ended = os.pipe()
        os.set_blocking(ended, False)
        os.set_blocking(heard, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._control, selectors.EVENT_READ)
            waiting.register(heard, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select():
                    if key.fd == heard:
                        _drain(heard)
                        self._tell_ends()
                    elif not self._obey():
                        self._end_all()
                        return

    def _obey(self) -> bool:
        try:
            order, places, _, _ = socket.recv_fds(self._control, query_frames.ORDER.size, 1)
        except ConnectionResetError:
            # Gone before it has read what it was told last.
            return False
        if len(order) < query_frames.ORDER.size:
            return False
        verb, number = query_frames.ORDER.unpack(order)
        if verb == query_frames.BEGIN and places:
            self._begin(number, places[0])
        elif verb == query_frames.KILL and number in self._pids:
            os.kill(self._pids[number], signal.SIGKILL)
        return True

    def _begin(self, number: int, place: int) -> None:
        pid = os.fork()
        if pid == 0:
            _be_a_query(place, self._connection, f"{self._folder}/{number}")
        self._pids[number] = pid
        os.close(place)

    def _tell_ends(self) -> None:
        numbers = {pid: number for number, pid in self._pids.items()}
        while self._pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = numbers[pid]
            del self._pids[number]
            try:
                self._control.sendall(query_frames.ENDED.pack(number, os.waitstatus_to_exitcode(status)))
            except OSError:
                return

    def _end_all(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)


def _be_a_query(place: int, connection: duckdb.DuckDBPyConnection, folder: str) -> NoReturn:
    """Be the process of one query, which has nothing open but what it answers to."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(place, 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX") if sys.platform != "linux" else 1 << 20)

        from weft.data import query_child

        query_child.serve(3, connection, folder)
        status = 0
    except EOFError:
        status = 0  # nobody needed it
    finally:
        # No clean-up of the interpreter's: the copy shares it with the original.
        os._exit(status)


def _drain(place: int) -> None:
    try:
        while os.read(place, 4096):
            pass
    except BlockingIOError:
        pass
