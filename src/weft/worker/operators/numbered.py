"""A column by which rows are in order, whole numbers or times, and the ranges of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from weft.core.errors import InvalidInput
from weft.worker.operators.intervals import Intervals, intervals_of

_ENDS = re.compile(r'\s*(first|last)\s*\(\s*("(?:[^"]|"")+"|\w+)\s*\)\s*', re.IGNORECASE)
_MICROSECONDS = 1_000_000
# So many ranges, of which some may be the same, are kept before they are told apart.
_TOGETHER = 1_000_000


@dataclass(frozen=True, slots=True)
class Numbered:
    """A column of a type, and how many of its numbers, or seconds, a range has."""

    column: str
    type: pa.DataType
    size: int

    @classmethod
    def of(cls, schema: pa.Schema, column: str, size: int, field: str) -> Numbered:
        """Return it for a table that has the column; raises `InvalidInput` where that has no order."""
        place = schema.get_field_index(column)
        if place < 0:
            raise InvalidInput(field, f"there is no column {column!r}; there are {', '.join(schema.names)}")
        type = schema.field(place).type
        tests = (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_timestamp, kinds.is_date)
        if not any(test(type) for test in tests):
            raise InvalidInput(field, f"{column} is {type}: ranges are of numbers or times")
        return cls(column, type, size)

    @property
    def _is_time(self) -> bool:
        return bool(kinds.is_timestamp(self.type) or kinds.is_date(self.type))

    def ranges(self, several: Iterable[pa.Array], field: str) -> tuple[Intervals, int | None]:
        """Return the ranges that values fall into, and the highest value; None where there are none."""
        found, room, highest = list[pa.Array](), _TOGETHER, None
        for values in several:
            if len(values) == 0:
                continue
            number, quotients = self._of(values, field)
            highest = number if highest is None else max(highest, number)
            found.append(quotients)
            # Of a great many rows there are mostly few ranges.
            if sum(map(len, found)) > room:
                found = [pc.unique(pa.chunked_array(found))]
                room = max(_TOGETHER, 2 * len(found[0]))
        return intervals_of(pc.unique(pa.chunked_array(found, pa.int64())).to_pylist()), highest

    def _of(self, values: pa.Array, field: str) -> tuple[int, pa.Array]:
        """Return the highest of some values, and the ranges that they fall into."""
        if values.null_count:
            raise InvalidInput(field, f"{self.column} has nulls, which belong to no range")
        if self._is_time:
            whole = _micros(values)
            return int(pc.max(whole).as_py() // _MICROSECONDS), _divided(whole, self.size * _MICROSECONDS)
        try:
            whole = (values if kinds.is_integer(self.type) else pc.floor(values)).cast(pa.int64())
        except pa.ArrowInvalid as problem:
            raise InvalidInput(field, f"{self.column} has a value that is no number of 64 bits: {problem}") from None
        return int(pc.max(whole).as_py()), _divided(whole, self.size)

    @property
    def number(self) -> str:
        """The number of a row, as DuckDB computes it."""
        name = quoted(self.column)
        if self._is_time:
            return f"floor(epoch_us({name}::timestamp{self._zone}) / 1000000)::bigint"
        return f"{name}::bigint" if kinds.is_integer(self.type) else f"floor({name})::bigint"

    @property
    def start(self) -> str:
        """Where the range of a row begins, as DuckDB computes it."""
        return f"({self.number} - (({self.number} % {self.size}) + {self.size}) % {self.size})"

    def within(self, ranges: Intervals) -> str:
        """Return the condition that a row is in one of some ranges, so that DuckDB passes over what is elsewhere."""
        return " or ".join(
            f"({self._at_least(first * self.size)} and {self._before((last + 1) * self.size)})"
            for first, last in ranges
        )

    def expression(self, text: str) -> str:
        """Return an aggregate as it was written; `first` and `last` go by the column."""
        if (found := _ENDS.fullmatch(text)) is None:
            return text
        return f"{'arg_min' if found[1].lower() == 'first' else 'arg_max'}({found[2]}, {quoted(self.column)})"

    @property
    def _zone(self) -> str:
        return "tz" if kinds.is_timestamp(self.type) and self.type.tz is not None else ""

    def _bound(self, number: int) -> str:
        if not self._is_time:
            return str(number)
        made = f"make_timestamp({number * _MICROSECONDS}::bigint)"
        return f"to_timestamp({number})" if self._zone else made

    def _at_least(self, number: int) -> str:
        return f"{quoted(self.column)} >= {self._bound(number)}"

    def _before(self, number: int) -> str:
        return f"{quoted(self.column)} < {self._bound(number)}"


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _micros(values: pa.Array) -> pa.Array:
    zone = values.type.tz if kinds.is_timestamp(values.type) else None
    return values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())


def _divided(values: pa.Array, size: int) -> pa.Array:
    """Return the different quotients, each the largest whole number that is not larger."""
    quotient = pc.divide(values, size)
    is_short = pc.less(pc.subtract(values, pc.multiply(quotient, size)), 0)
    return pc.unique(pc.subtract(quotient, is_short.cast(pa.int64())))
