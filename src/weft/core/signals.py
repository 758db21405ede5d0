"""What a handler raises to tell the engine how its attempt ended."""

from __future__ import annotations

from datetime import timedelta

_LONGEST = timedelta(days=20_000)


class Snooze(Exception):
    """Put the task back for a while; the attempt does not count as a failure.

    Example::

        if not report_is_ready():
            raise weft.Snooze(60)
    """

    def __init__(self, delay: float | timedelta) -> None:
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        if not timedelta(0) <= self.delay <= _LONGEST:
            raise ValueError(f"a task can be snoozed for 0 to 20,000 days, not for {delay!r} (a number means seconds)")
        super().__init__(f"snoozed for {self.delay}")


class NonRetryable(Exception):
    """The task cannot succeed, so it is ``failed`` at once, without further attempts.

    Example::

        raise weft.NonRetryable("this customer was deleted")
    """


class Parked(Exception):
    """The attempt is over without an outcome: its task waits for somebody else, who will end it."""
