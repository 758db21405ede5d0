"""Handlers that make further tasks and wait for them, as workers of crash tests have them."""

from __future__ import annotations

import asyncio

import weft


@weft.task(name="spawn:leaf")
async def leaf(number: int) -> int:
    """Take a moment."""
    await asyncio.sleep(0.02)
    return number


@weft.task(name="spawn:branch")
async def branch(number: int, ctx: weft.Context) -> int:
    """Make a few, one after the other, and add up what they give."""
    parts = [await ctx.spawn("spawn:leaf", {"number": number * 10 + each}) for each in range(5)]
    return sum(await ctx.gather(*parts))


@weft.task(name="spawn:root")
async def root(ctx: weft.Context) -> int:
    """Make a few that make a few."""
    parts = [await ctx.spawn("spawn:branch", {"number": each}, key=f"branch {each}") for each in range(5)]
    return sum(await ctx.gather(*parts))
