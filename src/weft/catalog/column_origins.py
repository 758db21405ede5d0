"""What the columns of a write are made of, as the attempt that writes says: checked by what it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.catalog.dataset_reading import read_name
from weft.catalog.datasets import columns_of
from weft.core.errors import InvalidInput
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

STAGING = Statements("weft.catalog", "sql/staging.sql")
FIELD = "columns_from"
MOST = 10_000


@dataclass(frozen=True, slots=True)
class _Read:
    """A dataset that an attempt has read, with its columns."""

    id: int
    name: str
    columns: frozenset[str]


def pairs_of(said: object) -> list[tuple[str, Any]]:
    """Return what somebody says of columns, one by one: each with ``orders.price``, or the dataset and the column."""
    if not isinstance(said, Mapping):
        raise InvalidInput(FIELD, "must be a mapping of columns to those that they are made of")
    found: list[tuple[str, Any]] = []
    for column, origins in said.items():
        if isinstance(origins, str) or not isinstance(origins, Sequence):
            raise InvalidInput(FIELD, f"{column}: must be a list, such as ['orders.price', 'orders.quantity']")
        for each in origins:
            is_pair = isinstance(each, Sequence) and len(each) == 2 and all(isinstance(part, str) for part in each)
            if not isinstance(each, str) and not is_pair:
                raise InvalidInput(FIELD, f"{column}: write 'orders.price', or ('orders', 'price')")
            found.append((str(column), each if isinstance(each, str) else list(each)))
    if len(found) > MOST:
        raise InvalidInput(FIELD, f"has {len(found):,} pairs of columns, and may have {MOST:,}")
    return found


async def checked(
    conn: type_Connection, fence: Fence, pairs: Sequence[Sequence[Any]], columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what is kept of it; raises `InvalidInput` for columns that are not there or were not read."""
    if not pairs:
        return []
    if len(pairs) > MOST:
        raise InvalidInput(FIELD, f"has {len(pairs):,} pairs of columns, and may have {MOST:,}")
    known: dict[str, _Read] = {}
    for row in await conn.fetch(STAGING.read_columns, fence.task_id, fence.attempt):
        names = frozenset(each.name for each in columns_of(row["columns"]))
        before = known[row["name"]].columns if row["name"] in known else frozenset[str]()
        known[row["name"]] = _Read(row["id"], row["name"], names | before)
    mine, found = frozenset(columns), []
    for output, origin in pairs:
        if not isinstance(output, str) or not (isinstance(origin, str) or len(origin) == 2):
            raise InvalidInput(
                FIELD, "each is a column, and what it is made of: orders.price, or a dataset and a column"
            )
        if output not in mine:
            raise InvalidInput(FIELD, f"there is no column {output!r} in what is written; there are {_list(mine)}")
        read, column = _split(known, origin) if isinstance(origin, str) else _pair(known, origin)
        if column not in read.columns:
            raise InvalidInput(FIELD, f"{output}: {read.name} has no column {column!r}; it has {_list(read.columns)}")
        found.append({"output": output, "input_id": read.id, "input": column})
    return found


def _split(known: Mapping[str, _Read], origin: str) -> tuple[_Read, str]:
    """Return the dataset and the column that a text names, where either may have dots."""
    found: tuple[_Read, str] | None = None
    for place in (place for place, sign in enumerate(origin) if sign == "."):
        read = known.get(origin[:place].partition("@")[0])
        if read is not None and (found is None or origin[place + 1 :] in read.columns):
            found = read, origin[place + 1 :]
    return found or _pair(known, origin.rpartition(".")[::2])


def _pair(known: Mapping[str, _Read], origin: Sequence[str]) -> tuple[_Read, str]:
    dataset, column = origin
    read = known.get(read_name(dataset).name) if dataset else None
    if read is None:
        told = f"this attempt has not read {dataset}" if dataset else f"{column!r} names no dataset: write orders.price"
        raise InvalidInput(FIELD, f"{told}; it has read {_list(known) or 'nothing'} so far")
    return read, column


def _list(names: Any) -> str:
    shown = sorted(names)
    return ", ".join(shown[:20]) + (" and more" if len(shown) > 20 else "")
