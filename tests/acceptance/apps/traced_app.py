"""Handlers that make spans of their own."""

from __future__ import annotations

from opentelemetry import trace

import weft


@weft.task(name="traced:inner")
async def inner(ctx: weft.Context) -> str:
    with trace.get_tracer("app").start_as_current_span("own work"):
        return ctx.traceparent


@weft.task(name="traced:flaky", retry=weft.Retry(max_attempts=2, initial_delay=0.01))
def flaky(ctx: weft.Context, secret: str) -> str:
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return secret


@weft.task(name="traced:apart", executor="process")
def apart(ctx: weft.Context) -> str:
    with trace.get_tracer("app").start_as_current_span("apart work"):
        return ctx.traceparent


@weft.task(name="traced:far")
async def far(ctx: weft.Context) -> None:
    await ctx.step("look", str)
