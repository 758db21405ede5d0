"""The route of queries over datasets, whose answers are streamed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect

from weft.contract.bounds import Text
from weft.contract.operations import Access
from weft.contract.wire import Moment
from weft.core.errors import WeftError
from weft.data.query_model import LONGEST_SQL, MEDIA_TYPES
from weft.sdk.datasets import QueryAnswer
from weft.sdk.session import seeing
from weft.server.bodies import JsonRoute
from weft.server.credentials import admitted
from weft.server.paths import PREFIX
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.server.state import State

logger = logging.getLogger("weft.server")
router = APIRouter(prefix=PREFIX, route_class=JsonRoute)
_EXAMPLES = {
    "json": '{"day":"2026-11-14","total":15.0}\n', "csv": '"day","total"\n"2026-11-14",15.0\n',
    "arrow": "a stream of Arrow", "parquet": "a Parquet file",
}  # fmt: skip
_LIKE: dict[str, Any] = {
    MEDIA_TYPES[format]: {"schema": {"type": "string"}, "example": example} for format, example in _EXAMPLES.items()
}


class AskedQuery(BaseModel):
    """A query over datasets: one ``select``; ``"orders@3"`` is the version 3 of a dataset."""

    model_config = ConfigDict(extra="forbid")

    sql: Text = Field(min_length=1, max_length=LONGEST_SQL, description="The query, as DuckDB reads it.")
    format: Literal["json", "csv", "arrow", "parquet"] = Field(
        "json", description="How the answer is written; `json` is a row a line."
    )
    as_of: Moment | None = Field(None, description="The datasets as they were at this moment.")


@router.post(
    "/query", name="query", operation_id="query", tags=["datasets"], response_class=Response,
    summary="Run a query over datasets.",
    description="Takes the role `reader`. It sees the datasets that the caller may see, and nothing else. What goes "
    "wrong after the first rows ends the connection amid the answer. It may end with `invalid_query` (422), "
    "`query_limit_reached` (422).",
    responses={200: {"description": "The answer, as it is computed.", "content": _LIKE}, **refusals()},
)  # fmt: skip
async def query(
    request: Request, who: admitted(Access.READER),  # type: ignore[valid-type]
    body: Annotated[AskedQuery, Body(openapi_examples={"usual": {"value": {"sql": "select 1 as one"}}})],
) -> Response:  # fmt: skip
    """Answer with the rows of a query, piece by piece."""
    state: State = request.app.state.weft
    stack = AsyncExitStack()
    try:
        with seeing(who.sees):
            lent = state.client_of(who).datasets.query(body.sql, format=body.format, as_of=body.as_of)
            answer = await _unless_gone(request, stack.enter_async_context(lent))
    except BaseException:
        await stack.aclose()
        raise
    return StreamingResponse(_pieces(stack, answer), media_type=MEDIA_TYPES[body.format])


async def _unless_gone(request: Request, begin: Coroutine[Any, Any, QueryAnswer]) -> QueryAnswer:
    """Return what a query begins with; one that nobody waits for any more is ended, and gives its place to others."""
    beginning, leaving = asyncio.create_task(begin), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([beginning, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            raise ClientDisconnect
        return beginning.result()
    finally:
        for each in (beginning, leaving):
            each.cancel()
        await asyncio.gather(beginning, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _pieces(stack: AsyncExitStack, answer: QueryAnswer) -> AsyncIterator[bytes]:
    async with stack:
        try:
            async for piece in answer:
                yield piece
        except WeftError as problem:
            # The beginning is sent: that the rest is missing is told by the end of the connection.
            logger.warning("a query ended amid its answer: %s", problem)
            raise
