"""Handlers that make further tasks and wait for them, as workers of crash tests have them."""

from __future__ import annotations

import asyncio

import asyncpg

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


async def _alone(url: str) -> None:
    """Be at work for a moment in which nobody else of the key may be; else fail for good."""
    conn = await asyncpg.connect(url)
    try:
        if not await conn.fetchval("select pg_try_advisory_lock(7)"):
            raise weft.NonRetryable("at work beside another of the same key")
        await asyncio.sleep(0.02)
    finally:
        await conn.close()


@weft.task(name="spawn:young")
async def young(url: str) -> int:
    """Work with the key."""
    await _alone(url)
    return 1


@weft.task(name="spawn:elder")
async def elder(url: str, ctx: weft.Context) -> int:
    """Work with the key before and after others that need it too."""
    await _alone(url)
    parts = [await ctx.spawn("spawn:young", {"url": url}, concurrency_key="k") for _ in range(2)]
    total = sum(await ctx.gather(*parts))
    await _alone(url)
    return total
