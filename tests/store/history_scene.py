"""What tests of the history share: a small definition, and a workflow with a past."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import weft
from weft.core.settings import Settings

FLOW: dict[str, Any] = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"handler": "fetch", "params": {"size": 1}, "next": "END"},
        "END": {"type": "end"},
    },
}
SIZE = "nodes.fetch.params.size"


@asynccontextmanager
async def three_versions(settings: Settings) -> AsyncIterator[weft.Workflows]:
    """Lend the workflows of a database in which `etl` was pushed and patched twice."""
    async with weft.Client(settings=settings) as client:
        await client.workflows.push(FLOW)
        for size in (2, 3):
            await client.workflows.patch("etl", set={SIZE: size})
        yield client.workflows
