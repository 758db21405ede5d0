"""Snowflake ids: 41 bits of milliseconds since 2024, 10 bits of machine number, 12 bits of sequence."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH_MS = int(EPOCH.timestamp() * 1000)
MACHINES = 1024
_SEQUENCES = 4096
_SHIFT = 22
# The queue of control steps, which every installation has.
CONTROL_QUEUE = 2


class IdMaker:
    """Makes ids that grow, for as long as its lease on a machine number lasts.

    Ids may run ahead of the clock by as much as one large batch needs (4096 a millisecond); the lease is kept
    back from the next holder for longer than that.
    """

    def __init__(
        self, machine: int, database_now: datetime, lease: timedelta, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._base = machine << 12
        self._offset_ms = database_now.timestamp() * 1000 - EPOCH_MS - clock() * 1000
        self._valid_until = clock() + lease.total_seconds()
        self._last_ms = 0
        self._sequence = 0
        self.machine = machine

    @property
    def has_lapsed(self) -> bool:
        """Whether the lease on the machine number is too old to make further ids."""
        return self._clock() >= self._valid_until

    def take(self, count: int) -> list[int]:
        """Return ``count`` new ids, each above all that were made before."""
        now_ms = int(self._clock() * 1000 + self._offset_ms)
        if now_ms > self._last_ms:
            self._last_ms, self._sequence = now_ms, 0
        made: list[int] = []
        while len(made) < count:
            if self._sequence == _SEQUENCES:
                self._last_ms, self._sequence = self._last_ms + 1, 0
            upto = min(_SEQUENCES, self._sequence + count - len(made))
            start = (self._last_ms << _SHIFT) | self._base
            made.extend(range(start + self._sequence, start + upto))
            self._sequence = upto
        return made
