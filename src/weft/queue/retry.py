"""When a failed attempt is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

import orjson

from weft.core.errors import InvalidInput

MAX_ATTEMPTS = 32767
LONGEST_DELAY = 366 * 86400.0
_STORED = ("backoff", "initial_delay", "max_delay", "jitter")


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
    non_retryable: type[BaseException] | tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise InvalidInput("retry.max_attempts", f"must be a whole number between 1 and {MAX_ATTEMPTS}")
        if self.backoff not in ("exponential", "linear", "fixed"):
            raise InvalidInput("retry.backoff", f"{self.backoff!r} is not one of exponential, linear, fixed")
        for name, most in (("initial_delay", LONGEST_DELAY), ("max_delay", LONGEST_DELAY), ("jitter", 1.0)):
            value: object = getattr(self, name)
            if isinstance(value, timedelta):
                value = value.total_seconds()
                object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
                raise InvalidInput(f"retry.{name}", f"must be a number between 0 and {most:g}")
        types = self.non_retryable if isinstance(self.non_retryable, tuple) else (self.non_retryable,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in types):
            raise InvalidInput("retry.non_retryable", "must be an exception type or a tuple of them")
        object.__setattr__(self, "non_retryable", types)

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

    def gives_up_on(self, problem: BaseException) -> bool:
        """Whether an error is one that no further attempt can mend."""
        return isinstance(problem, self.non_retryable)

    def to_json(self) -> str | None:
        """Return the policy as it is stored with a task; None when it is the default."""
        found = {key: getattr(self, key) for key in _STORED}
        if all(value == getattr(Retry, key) for key, value in found.items()):
            return None
        return orjson.dumps(found).decode()

    @classmethod
    def from_json(cls, text: str | None, max_attempts: int, general: Retry | None = None) -> Retry:
        """Return the policy of a task; what it does not say is as in ``general``, or as by default.

        A stored one that cannot be read falls back to the default.
        """
        max_attempts = max(1, max_attempts)  # less stands only in a row that was made by hand
        if text is None:
            return cls(max_attempts=max_attempts)
        try:
            found, usual = orjson.loads(text), general or cls()
            return cls(max_attempts, **{key: found[key] if key in found else getattr(usual, key) for key in _STORED})
        except (ValueError, TypeError, InvalidInput):
            return cls(max_attempts=max_attempts)
