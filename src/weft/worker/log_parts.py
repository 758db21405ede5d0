"""Puts the log of an attempt together that runs elsewhere, from the pieces that come of it."""

from __future__ import annotations

import fcntl
import os
from collections import OrderedDict
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from weft.worker.logs import cut_mark, heading_of, log_path, open_own, place_of

_REMEMBERED = 10_000


class LogParts:
    """The logs that grow by pieces, and where each of them ended when the last piece came."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._places: OrderedDict[tuple[int, int], tuple[int, int, int]] = OrderedDict()

    def append(self, task_id: int, attempt: int, offset: int, data: bytes) -> int:
        """Append what an attempt has printed elsewhere from ``offset`` on; return how long its part is now.

        What is there already is passed over, so it may be sent again. Nothing is written when something before it is
        missing, nor below the part of a later attempt. Beyond the limit it is cut with a marker, and what follows is
        lost. What finds no room on the disk is not counted.
        """
        path = log_path(self._folder, task_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b", buffering=0, opener=open_own) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # others may append at the same time
            length = os.fstat(file.fileno()).st_size
            place = self._place(file, length, task_id, attempt)
            size = 0 if place is None else place[1] - place[0]
            if length >= self._limit:
                return max(size, offset + len(data))
            rest = data[size - offset :] if offset <= size else b""
            if not rest or (place is not None and place[1] < length):
                return size
            heading = b"" if place is not None else heading_of(attempt, has_text=length > 0)
            room = self._limit - length - len(heading)
            cut = rest if len(rest) <= room else rest[: max(0, room)] + cut_mark(self._limit)
            written = file.write(heading + cut) - len(heading)
            if written < 0:
                # The disk is full: half a heading would be text of the attempt before.
                file.truncate(length)
                return size
            begin = length + len(heading) if place is None else place[0]
            self._remember(file, task_id, attempt, begin)
            # Of a disk that is full only that is told which is there; the rest may be sent again.
            return size + (len(rest) if written == len(cut) else min(written, len(rest)))

    def _place(self, file: FileIO, length: int, task_id: int, attempt: int) -> tuple[int, int] | None:
        """Return where the part of an attempt begins and ends: as it was left, unless others have written since."""
        known = self._places.get((task_id, attempt))
        if known is not None and known[1:] == (length, os.fstat(file.fileno()).st_ino):
            return known[0], length
        file.seek(0)
        return place_of(file.read(), attempt)

    def _remember(self, file: FileIO, task_id: int, attempt: int, begin: int) -> None:
        found = os.fstat(file.fileno())
        self._places[task_id, attempt] = begin, found.st_size, found.st_ino
        self._places.move_to_end((task_id, attempt))
        if len(self._places) > _REMEMBERED:
            self._places.popitem(last=False)


def pieces(data: bytes, most: int, *, is_all: bool) -> Iterator[bytes]:
    """Yield pieces of at most so many bytes that end between characters.

    What is the beginning of a character is left for later, unless it is all.
    """
    while data:
        size = len(piece := data[:most])
        if not is_all or size < len(data):
            size -= _unfinished(piece)
        if not size:
            return
        yield data[:size]
        data = data[size:]


def _unfinished(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character of UTF-8."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        size = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
        return back if size > back else 0
    return 0
