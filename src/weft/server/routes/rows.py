"""The routes of rows of datasets: a few of them, and those that differ between two states; each runs as a query."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from weft.contract.bounds import Text
from weft.contract.operations import Access
from weft.core.json import exact
from weft.sdk import row_diff as sdk
from weft.sdk.datasets import QueryAnswer, sample_query
from weft.sdk.session import seeing
from weft.server import paths
from weft.server.bodies import JsonRoute
from weft.server.credentials import admitted
from weft.server.endpoints import check_once
from weft.server.paths import PREFIX
from weft.server.problems import refusals
from weft.server.routes.query import datasets_of, streamed

# Names in paths may have slashes.
assert paths is not None
router = APIRouter(prefix=PREFIX, tags=["datasets"], route_class=JsonRoute)
_JSON = "application/json"
_SAYS = (
    "Takes the role `reader`. Numbers are as exact as they were. It runs as a query, within the limits of one; what "
    "goes wrong after the first rows ends the connection amid the answer. It may end with `invalid_query` (422), "
    "`query_limit_reached` (422)."
)
_SAMPLE = "Return a few rows of a dataset."
_DIFF = "Return the rows that differ from one state to another, in the columns that both have."
_KEY = (
    "Rows are told apart by `key`, by default the unique key of the dataset: one that is in both with other values is "
    "changed; without a key it is removed and added. "
)
_ROW = {"id": 1, "price": 9.5}


class SampledRows(BaseModel):
    """A few rows of a dataset."""

    dataset: str
    rows: list[dict[str, Any]]


class RowChange(BaseModel):
    """A row that differs; null on the side where it is not."""

    change: Literal["added", "removed", "changed"]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class RowDiff(BaseModel):
    """The rows that differ between two states; as many as were asked for, and how many there are."""

    old: str
    new: str
    key: list[str]
    columns: list[str]
    added: int
    removed: int
    changed: int
    rows: list[RowChange]


def _like(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    return {"description": "The rows.", "model": model, "content": {_JSON: {"example": example}}}


_SAMPLED = _like(SampledRows, {"dataset": "orders", "rows": [_ROW]})
_DIFFERENT = _like(RowDiff, {
    "old": "orders@1.2", "new": "orders@1.3", "key": ["id"], "columns": ["id", "price"], "added": 0, "removed": 0,
    "changed": 1, "rows": [{"change": "changed", "before": _ROW, "after": _ROW | {"price": 8.5}}],
})  # fmt: skip


@router.get(
    "/datasets/{name:name}/sample", name="datasets.sample", operation_id="datasets_sample", response_class=Response,
    summary=_SAMPLE, description=_SAYS, responses={200: _SAMPLED, **refusals()},
)  # fmt: skip
async def sample(
    request: Request, who: admitted(Access.READER),  # type: ignore[valid-type]
    name: Annotated[Text, Path(description="A dataset, or a state of one: `orders`, `orders@3`, `orders@3.12`.")],
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many rows.")] = 10,
) -> Response:  # fmt: skip
    """Answer with a few rows, as they are read."""
    check_once(request)
    head = b'{"dataset":%s,"rows":[' % orjson.dumps(name)

    async def told(answer: QueryAnswer) -> AsyncIterator[bytes]:
        """Yield the rows of an answer, which are lines, as a list: no other end of a line is in them."""
        last = head
        async for piece in answer:
            if piece:
                yield last
                last = piece.replace(b"\n", b",")
        yield last.removesuffix(b",") + b"]}"

    with seeing(who.sees):
        return await streamed(request, datasets_of(request, who).query(sample_query(name, limit)), told, _JSON)


@router.get(
    "/datasets/{name:name}/diff/rows", name="datasets.diff_rows", operation_id="datasets_diff_rows",
    response_class=Response, summary=_DIFF, description=_KEY + _SAYS, responses={200: _DIFFERENT, **refusals()},
)  # fmt: skip
async def diff_rows(
    request: Request, who: admitted(Access.READER),  # type: ignore[valid-type]
    name: Annotated[
        Text, Path(description="A state, `orders@1.3`; without `other` it is compared with the one before it.")
    ],
    other: Annotated[Text | None, Query(description="The state to compare it with.")] = None,
    key: Annotated[list[Text] | None, Query(description="A column that tells rows apart; may be repeated.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many rows.")] = 100,
) -> Response:  # fmt: skip
    """Answer with how many rows differ, and with the first of them."""
    check_once(request, several={"key"})
    with seeing(who.sees):
        datasets = datasets_of(request, who)
        asked = sdk.RowQuery.of(await datasets.diff(name, other, limit=1), key, limit)

        async def told(answer: QueryAnswer) -> AsyncIterator[bytes]:
            """Yield what is known of all rows, which stands with each of them, and then the rows."""
            has_begun = False
            async for row in answer.records():
                found = asked.answer([row])
                yield (b"," if has_begun else _head(found)) + orjson.dumps(exact(asdict(found.rows[0])))
                has_begun = True
            yield b"]}" if has_begun else _head(asked.answer([])) + b"]}"

        return await streamed(request, datasets.query(asked.sql), told, _JSON)


def _head(found: sdk.RowDiff) -> bytes:
    return orjson.dumps(asdict(found) | {"rows": []}).removesuffix(b"]}")
