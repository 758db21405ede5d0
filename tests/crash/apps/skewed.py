"""Another program of this package under a clock that is wrong, and wrong in another way each time it is read.

Named by its first argument; the clock is shifted before anything else is imported, so that nobody has the true one.
"""

from __future__ import annotations

import itertools
import runpy
import sys
import time
from datetime import timedelta

SKEWS = {
    "ahead": [3600.0],
    "behind": [-3600.0],
    # Neither two readings nor the difference of two readings mean anything.
    "erratic": [86400.0, -3600.0, 0.25, -86400.0 * 400],
}


def skew(name: str) -> None:
    """Shift `time.time` and what `datetime` calls now, in this process and for good."""
    import datetime

    offsets = itertools.cycle(SKEWS[name])
    true_time, true_time_ns, true_datetime = time.time, time.time_ns, datetime.datetime

    class Skewed(true_datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Skewed:
            return super().now(tz) + timedelta(seconds=next(offsets))

        @classmethod
        def utcnow(cls) -> Skewed:
            return super().now(datetime.UTC).replace(tzinfo=None) + timedelta(seconds=next(offsets))

    time.time = lambda: true_time() + next(offsets)
    time.time_ns = lambda: true_time_ns() + int(next(offsets) * 1e9)
    datetime.datetime = Skewed  # type: ignore[misc]


if __name__ == "__main__":
    how, module, *arguments = sys.argv[1:]
    skew(how)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
