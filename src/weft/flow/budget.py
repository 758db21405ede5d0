"""What one expression may cost: counted in values and characters, so that it is the same on every machine."""

from __future__ import annotations

MAX_STEPS = 200_000
MAX_SIZE = 16 * 1024 * 1024


class ExpressionError(Exception):
    """An expression cannot be read, or cannot be evaluated with these values."""


class Budget:
    """What is left of the values that an expression may touch and of the characters that it may produce."""

    __slots__ = ("_size", "_steps")

    def __init__(self, steps: int = MAX_STEPS, size: int = MAX_SIZE) -> None:
        self._steps = steps
        self._size = size

    def spend(self, steps: int) -> None:
        """Take ``steps`` values off; asked before they are touched."""
        self._steps -= steps
        if self._steps < 0:
            raise ExpressionError(f"the expression goes through more than {MAX_STEPS:,} values")

    def read(self, size: int) -> None:
        """Take the reading of ``size`` characters off: a hundred of them count as one value."""
        self.spend(size // 100)

    def fill(self, size: int) -> None:
        """Take ``size`` characters off; asked before they are made."""
        self._size -= size
        if self._size < 0:
            raise ExpressionError(f"the expression makes a text of more than {MAX_SIZE:,} characters")
