"""What ids tell of time, said apart from the SQL functions that partitions use, which are held against this."""

from __future__ import annotations

from datetime import datetime, timedelta

from weft.core.ids import EPOCH


def time_of(id: int) -> datetime:
    """Return the moment at which an id was made, by the clock of the database."""
    return EPOCH + timedelta(milliseconds=id >> 22)


def first_id_at(moment: datetime) -> int:
    """Return the lowest id that can be made at ``moment``."""
    return max(0, int((moment - EPOCH) / timedelta(milliseconds=1))) << 22
