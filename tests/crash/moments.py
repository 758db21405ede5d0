"""The statements of a process at which a test ends it, one round for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crash.proxy import Exchange

# How a session begins is no part of what is done in it.
SETTING_UP = ("pg_catalog", "pg_class", "schema_revision", "weft.machine", "weft.org")
# With its last the session is there, and nothing is done.
LAST_OF_SETTING_UP = "from weft.org o where o.slug"
# Amid a transaction every so many, from the first after its BEGIN on.
AMID = 4


def is_part_of_the_act(exchange: Exchange, text: str = "") -> bool:
    """Whether a statement does something, and not only sets up its session."""
    said = exchange.text.lower()
    return text in said and not said.startswith(("set", "show")) and not any(word in said for word in SETTING_UP)


def _is_telling(exchange: Exchange) -> bool:
    """Whether who ends here may leave something else than who ended before.

    In the database only what is committed is left; amid a transaction only what is done outside of it differs.
    """
    return exchange.is_committed or len(exchange.before) % AMID == 1


class Moments:
    """The numbers of the moments: in a long campaign each statement, in a short one those that tell most.

    Of an act that does many things alike, each in a transaction of its own, a short one has one moment in ``every``.
    """

    def __init__(self, campaign: str, *, every: int = 1) -> None:
        self._is_long = campaign == "long"
        self._every = 1 if self._is_long else every
        self._is_over = False
        # How many statements the act has, as far as it has come.
        self.statements = 0

    def __iter__(self) -> Iterator[int]:
        number = 1
        while not self._is_over:
            yield number
            number += self._every

    def over(self) -> None:
        """Tell that a process came to its end before the moment."""
        self._is_over = True

    def at(self, number: int, *, with_setting_up: bool = False) -> Callable[[Exchange], bool]:
        """Return what is true for one moment of a process only, by its number."""
        statements, moments = 0, 0

        def is_it(exchange: Exchange) -> bool:
            nonlocal statements, moments
            is_part = is_part_of_the_act(exchange)
            if with_setting_up:
                is_part = is_part or self._is_long or LAST_OF_SETTING_UP in exchange.text
            if not is_part:
                return False
            statements += 1
            self.statements = max(self.statements, statements)
            if not self._is_long and not _is_telling(exchange):
                return False
            moments += 1
            return moments == number

        return is_it
