"""What a copy of a process does to be a command."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import weft
from weft.cli.main import run


def become(arguments: list[str], environment: dict[str, str], folder: str, streams: list[Any]) -> None:
    """Make of this copy what the command line would have made: a process that runs one command."""
    for descriptor, stream in enumerate(streams):
        os.dup2(stream.detach(), descriptor)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), write_through=True) for descriptor in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = [str(Path(weft.__file__).with_name("__main__.py")), *arguments]
    warnings.simplefilter("error")
    run()
