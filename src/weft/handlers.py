"""Small handlers to try things with: ``weft worker --app weft.handlers``."""

from __future__ import annotations

import asyncio
from typing import Any

from weft.core.errors import InvalidInput
from weft.core.signals import Snooze
from weft.worker.handling import HandlerContext, HandlerResult, register_handler

_LONGEST = 86400.0


@register_handler("echo")
async def echo(ctx: HandlerContext) -> HandlerResult:
    """Give back the params."""
    return HandlerResult(success=True, output=dict(ctx.params))


@register_handler("hello_world")
async def hello_world(ctx: HandlerContext) -> HandlerResult:
    """Greet ``name``."""
    return HandlerResult(success=True, output={"message": f"Hello, {ctx.params.get('name', 'World')}!"})


@register_handler("sleep")
async def sleep(ctx: HandlerContext) -> HandlerResult:
    """Wait for ``seconds``."""
    seconds = _number(ctx, "seconds", 1.0)
    await asyncio.sleep(seconds)
    return HandlerResult(success=True, output={"slept_seconds": seconds})


@register_handler("fail")
async def fail(ctx: HandlerContext) -> HandlerResult:
    """Fail with ``message``; with ``times`` only in so many attempts."""
    if "times" in ctx.params and ctx.attempt > _number(ctx, "times", 0):
        return HandlerResult(success=True, output={"attempt": ctx.attempt})
    return HandlerResult(success=False, error_message=str(ctx.params.get("message", "failed, as it was asked to")))


@register_handler("multi_phase")
async def multi_phase(ctx: HandlerContext) -> HandlerResult:
    """Go through ``phases``, each of ``seconds``; a later attempt goes on after the last that was done.

    With ``fail_after`` the first attempt fails after that phase. When its worker stops, another goes on.
    """
    phases = int(_number(ctx, "phases", 3))
    seconds = _number(ctx, "seconds", 0.0)
    found = await ctx.checkpoint.load(validator=lambda data: data["done"] <= phases)
    first = done = 0 if found is None else int(found.data["done"])
    while done < phases:
        if ctx.shutdown_requested:
            raise Snooze(0)
        await asyncio.sleep(seconds)
        done += 1
        await ctx.checkpoint.save(f"phase_{done}", {"done": done})
        if done == ctx.params.get("fail_after") and ctx.attempt == 1:
            return HandlerResult(success=False, error_message=f"failed after phase {done}, as it was asked to")
    return HandlerResult(success=True, output={"phases": phases, "resumed_after": first}, metrics={"ran": done - first})


@register_handler("size_check")
async def size_check(ctx: HandlerContext) -> HandlerResult:
    """Say whether ``size_mb`` is above ``threshold_mb``, for a branch to go by."""
    size, threshold = _number(ctx, "size_mb", 0.0), _number(ctx, "threshold_mb", 100.0)
    output = {"size_mb": size, "threshold_mb": threshold, "is_large": size > threshold}
    return HandlerResult(success=True, output=output)


@register_handler("chunk_processor")
async def chunk_processor(ctx: HandlerContext) -> HandlerResult:
    """Count the items of one ``chunk`` of many, and add up those that are numbers."""
    chunk = ctx.params.get("chunk", [])
    if not isinstance(chunk, list):
        raise InvalidInput("params.chunk", f"must be a list, not {type(chunk).__name__}")
    numbers = [item for item in chunk if type(item) in (int, float)]
    output = {"chunk_index": ctx.params.get("chunk_index"), "count": len(chunk), "sum": sum(numbers)}
    return HandlerResult(success=True, output=output, metrics={"items": len(chunk)})


def _number(ctx: HandlerContext, name: str, default: float) -> float:
    value: Any = ctx.params.get(name, default)
    if type(value) not in (int, float) or not 0 <= value <= _LONGEST:
        raise InvalidInput(f"params.{name}", f"must be a number between 0 and {_LONGEST:g}")
    return float(value)
