"""How the process of a query and whoever started it speak: a request, then frames, each with a letter and a length."""

from __future__ import annotations

import os
import struct

HEAD = struct.Struct("!cI")
COLUMNS, DATA, END, ERROR, NAMES = b"C", b"D", b"E", b"X", b"N"
LARGEST = 256 * 1024
LARGEST_TOLD = 4 * 1024 * 1024

# Orders to the process that begins the others, and what it tells of them: their number, and how they ended.
ORDER = struct.Struct("!cQ")
BEGIN, KILL = b"B", b"K"
ENDED = struct.Struct("!Qi")


def write_all(place: int, data: bytes | memoryview) -> None:
    """Write all of it, however long the other side takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(place, rest) :]


def read_exactly(place: int, count: int) -> bytes:
    """Return so many bytes; raises EOFError if the other side ends before."""
    parts = []
    while count:
        part = os.read(place, min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_frame(place: int, letter: bytes, data: bytes | memoryview) -> None:
    """Write one frame."""
    write_all(place, HEAD.pack(letter, len(data)))
    write_all(place, data)
