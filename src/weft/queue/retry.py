"""When a failed attempt is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

import orjson

from weft.core.errors import InvalidInput

MAX_ATTEMPTS = 32767
_LONGEST = 366 * 86400.0


@dataclass(frozen=True)
class Retry:
    """How often and how late a failed attempt is tried again.

    ``jitter`` is the share of each delay that is drawn at random, so that what failed together does not come back
    together. Example::

        weft.Retry(max_attempts=5, backoff="exponential", initial_delay=2, max_delay=600)
    """

    max_attempts: int = 3
    backoff: str = "exponential"
    initial_delay: float = 1.0
    max_delay: float = 3600.0
    jitter: float = 0.2
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise InvalidInput("retry.max_attempts", f"must lie between 1 and {MAX_ATTEMPTS}")
        if self.backoff not in ("exponential", "linear", "fixed"):
            raise InvalidInput("retry.backoff", f"{self.backoff!r} is not one of exponential, linear, fixed")
        for name in ("initial_delay", "max_delay"):
            value = getattr(self, name)
            if isinstance(value, timedelta):
                object.__setattr__(self, name, value := value.total_seconds())
            if not 0 <= value <= _LONGEST:
                raise InvalidInput(f"retry.{name}", "must lie between 0 and a year")
        if not 0 <= self.jitter <= 1:
            raise InvalidInput("retry.jitter", "must lie between 0 and 1")

    def delay(self, failures: int) -> timedelta:
        """Return the time to wait after the ``failures``-th failure (1-based)."""
        if self.backoff == "exponential":
            # Beyond 2**60 every delay is at its maximum; the cap keeps the power from overflowing.
            seconds = self.initial_delay * 2.0 ** min(failures - 1, 60)
        elif self.backoff == "linear":
            seconds = self.initial_delay * failures
        else:
            seconds = self.initial_delay
        seconds = min(seconds, self.max_delay)
        return timedelta(seconds=seconds * (1 - self.jitter * random.random()))

    def to_json(self) -> str | None:
        """Return the policy as it is stored with a task; None when it is the default."""
        found = (self.backoff, self.initial_delay, self.max_delay, self.jitter)
        if found == (Retry.backoff, Retry.initial_delay, Retry.max_delay, Retry.jitter):
            return None
        keys = ("backoff", "initial_delay", "max_delay", "jitter")
        return orjson.dumps(dict(zip(keys, found, strict=True))).decode()

    @classmethod
    def from_json(cls, text: str | None, max_attempts: int) -> Retry:
        """Return the policy of a task; a stored one that cannot be read falls back to the default."""
        if text is None:
            return cls(max_attempts=max_attempts)
        try:
            return cls(max_attempts=max_attempts, **orjson.loads(text))
        except (ValueError, TypeError, InvalidInput):
            return cls(max_attempts=max_attempts)


DEFAULT_RETRY = Retry()
