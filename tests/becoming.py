"""What a copy of a process does to be a program that was just started."""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import weft
from weft.cli.main import run

MODULE = str(Path(weft.__file__).with_name("__main__.py"))


def become(arguments: list[str], environment: dict[str, str], folder: str, streams: list[Any]) -> None:
    """Make of this copy what `python -m weft` would have made: a process that runs one command."""
    _run([MODULE, *arguments], environment, folder, folder, [stream.detach() for stream in streams])


def become_each(commands: list[list[str]], environment: dict[str, str], folder: str, streams: list[Any]) -> None:
    """Run commands one after the other, each in a copy of this copy, and print how each ended and what it printed."""
    _take_over([MODULE], environment, folder, folder, [stream.detach() for stream in streams])
    for arguments in commands:
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
            if (pid := os.fork()) == 0:
                own = [os.open(os.devnull, os.O_RDONLY), os.dup(printed.fileno()), os.dup(complained.fileno())]
                try:
                    _run([MODULE, *arguments], environment, folder, folder, own)
                except SystemExit as ended:
                    # What this copy was in the middle of is for the first one to go on with.
                    sys.stdout.flush()
                    os._exit(int(ended.code or 0))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            texts = []
            for file in (printed, complained):
                file.seek(0)
                texts.append(file.read().decode())
        print(json.dumps([code, *texts]))


def become_module(
    module: str, arguments: list[str], environment: dict[str, str], folder: str, streams: list[Any]
) -> None:
    """Make of this copy what `python -m` would have made of a module."""
    _take_over([module, *arguments], environment, folder, folder, [stream.detach() for stream in streams])
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def become_script(script: str, environment: dict[str, str], folder: str, streams: list[Any]) -> None:
    """Make of this copy what `python -W error` would have made of a file."""
    modules = os.path.dirname(script)
    _take_over([script], environment, folder, modules, [stream.detach() for stream in streams])
    warnings.simplefilter("error")
    runpy.run_path(script, run_name="__main__")


def serve(listening: Any) -> None:
    """Run the commands that `stand_in.py` asks for, each in a copy of this copy; never returns."""
    # Nobody waits for those that look after the commands.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(fileno=listening.detach())
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _look_after(connection)
            return
        connection.close()


def _look_after(connection: socket.socket) -> None:
    """Run the command that was asked for in a copy, and tell whoever asked how it ended."""
    start, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rw", encoding="ascii") as talk:
        argv, folder, environment = json.loads(start.decode() + talk.readline())
        if (pid := os.fork()) == 0:
            connection.close()
            # As for every script, the folder of the program is the first place of modules, not the one it runs in.
            _run(argv, environment, folder, os.path.dirname(argv[0]), streams)
        for stream in streams:
            os.close(stream)
        print(pid, file=talk, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=talk, flush=True)


def _run(argv: list[str], environment: dict[str, str], folder: str, modules: str, streams: list[int]) -> None:
    _take_over(argv, environment, folder, modules, streams)
    warnings.simplefilter("error")
    run()


def _take_over(argv: list[str], environment: dict[str, str], folder: str, modules: str, streams: list[int]) -> None:
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), write_through=True) for descriptor in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, modules)
    sys.argv = argv
