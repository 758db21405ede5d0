"""The ids of a moment, told apart from the SQL function that partitions use, which is held against this."""

from __future__ import annotations

from datetime import datetime, timedelta

from weft.core.ids import EPOCH


def first_id_at(moment: datetime) -> int:
    """Return the lowest id that can be made at ``moment``."""
    return max(0, int((moment - EPOCH) / timedelta(milliseconds=1))) << 22
