"""Answers to calls that take long: a line of JSON each second says how far they are, and the last what came out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from weft.contract.operations import NDJSON
from weft.core.errors import WeftError
from weft.db.database import PASSING
from weft.server.problems import of_error, of_outage, of_surprise

logger = logging.getLogger("weft.server")
# Often enough for whoever watches, and for whatever cuts connections on which nothing comes.
_EVERY = 1.0


def is_wanted(request: Request) -> bool:
    """Whether the caller asks to be told how far a call is."""
    return NDJSON in request.headers.get("accept", "")


def answer(work: Callable[[Callable[[int], None]], Awaitable[bytes]]) -> Response:
    """Answer with how far a call is, and with what it returns; it ends when nobody is there any more to be told."""
    return StreamingResponse(_lines(work), media_type=NDJSON)


async def _lines(work: Callable[[Callable[[int], None]], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    count = 0

    def note(done: int) -> None:
        nonlocal count
        count = done

    working = asyncio.ensure_future(work(note))
    try:
        while not (await asyncio.wait([working], timeout=_EVERY))[0]:
            yield orjson.dumps({"progress": count}) + b"\n"
        yield orjson.dumps(await _outcome(working)) + b"\n"
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _outcome(working: asyncio.Future[bytes]) -> dict[str, object]:
    try:
        return {"answer": orjson.Fragment(await working)}
    except WeftError as problem:
        return {"problem": orjson.Fragment(of_error(problem).body)}
    except PASSING as problem:
        return {"problem": orjson.Fragment(of_outage(problem).body)}
    except Exception as problem:
        logger.error("a call ended with a surprise", exc_info=problem)
        return {"problem": orjson.Fragment(of_surprise().body)}
