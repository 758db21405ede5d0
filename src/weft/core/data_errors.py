"""Errors of datasets; a part of the tree in `weft.core.errors`."""

from __future__ import annotations

from weft.core.errors import WeftError


class WriteConflict(WeftError):
    """Others have written into the same dataset meanwhile; nothing of the task was written, and it is tried again."""

    code = "write_conflict"
    http_status = 409

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; the task is tried again")
