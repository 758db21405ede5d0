"""Which operators come with Weft: each is loaded when a task first needs it."""

from __future__ import annotations

import asyncio
import functools
import importlib
from typing import Any

from weft.worker.live import LiveContext, handler_of
from weft.worker.registry import OWN_OPERATORS, AnyHandler

NAMES = frozenset({
    "alert_evaluate", "block_follower", "http_fetch", "python", "range_aggregator", "scan_files", "sql_transform",
    "udf",
})  # fmt: skip


@functools.cache
def handler_named(name: str) -> AnyHandler | None:
    """Return the handler of an operator; None for a name that is none of them."""
    if name not in NAMES:
        return None

    async def run(live: LiveContext) -> Any:
        # Some need Arrow, and to load it takes longer than others may be held up.
        module = await asyncio.to_thread(importlib.import_module, f"weft.worker.operators.{name}")
        try:
            return await module.run(live)
        finally:
            await live.workshop.put_away()

    run.__qualname__ = name
    return handler_of(run, f"{OWN_OPERATORS}{name}")
