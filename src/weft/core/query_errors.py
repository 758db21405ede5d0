"""Errors of queries over datasets; a part of the tree in `weft.core.errors`.

WeftError
├── CallerError
│   ├── InvalidQuery            the SQL is wrong, or asks for what a query may not do
│   ├── QueryLimitReached       the query took more than it may
│   └── QueryCancelled          the query was ended before it was done
├── OperatorError
│   └── WallsMissing            this machine cannot hold back untrusted SQL as it must
└── QueryCrashed                the process of the query broke down, and nothing else did
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.core.errors import CallerError, OperatorError, WeftError


class InvalidQuery(CallerError):
    """The SQL is wrong, or asks for what a query may not do; ``kind`` says which, as DuckDB or Weft calls it."""

    code = "invalid_query"
    http_status = 422

    def __init__(self, problem: str, kind: str = "refused") -> None:
        self.problem = problem
        self.kind = kind
        super().__init__(problem)


# How each limit is told, with what can be done to stay below it.
_LIMITS = {
    "rows": "the answer has more than {value:,} rows: ask for fewer (`limit`, `where`), or aggregate",
    "bytes": "the answer is larger than {value:,} bytes: ask for fewer rows or columns",
    "memory": "the query needs more than {value:,} bytes of memory: ask for less at once",
    "spill": "the query needs more than {value:,} bytes of temporary files: ask for less at once",
    "fetch": "a dataset has more than {value:,} bytes that must be copied for the query: raise WEFT_QUERY_FETCH",
    "seconds": "the query did not end within {value} s: ask for less",
    "cpu_seconds": "the query took more than {value} s of processor time: ask for less",
    "sql": "the SQL is longer than {value:,} characters",
}


class QueryLimitReached(CallerError):
    """The query took more than it may; ``limit`` is which one, as `QueryLimits` calls it."""

    code = "query_limit_reached"
    http_status = 422

    def __init__(self, limit: str, value: int) -> None:
        self.limit = limit
        self.value = value
        super().__init__(_LIMITS[limit].format(value=value))


class QueryCancelled(CallerError):
    """The query was ended before it was done."""

    code = "query_cancelled"
    http_status = 409
    exit_code = 5

    def __init__(self) -> None:
        super().__init__("the query was cancelled")


class QueryCrashed(WeftError):
    """The process of the query broke down, and nothing else did."""

    code = "query_crashed"

    def __init__(self, how: str, datasets: Sequence[str]) -> None:
        read = f"; it read {', '.join(datasets)}, of which a file may be damaged" if datasets else ""
        super().__init__(f"the process of the query ended by {how}{read}: nothing else is touched by that")


class QueryStartFailed(OperatorError):
    """The process that begins those of queries does not start."""

    code = "query_start_failed"

    def __init__(self, problem: str) -> None:
        super().__init__(f"queries cannot be run here: {problem}: see that the packages of weft[data] are whole")


class WallsMissing(OperatorError):
    """This machine cannot hold back untrusted SQL as it must; ``missing`` says which walls cannot stand, and why."""

    code = "walls_missing"

    def __init__(self, missing: Mapping[str, str]) -> None:
        self.missing = dict(missing)
        told = "; ".join(f"{name}: {why}" for name, why in sorted(missing.items()))
        super().__init__(
            f"queries are not run here, because walls around them cannot stand ({told}): "
            "see docs/explanation/query-walls.md for what each needs"
        )
