"""The handler of drawn workflows, as workers of crash tests have it: it notes in the ledger when it starts and ends."""

from __future__ import annotations

import os
from pathlib import Path

import weft
from crash import ledger


@weft.task(name="act")
async def act(ctx: weft.Context, ok: bool = True, failures: int = 0) -> dict[str, int]:
    """Do as was drawn."""
    ledger.note(Path.cwd(), "start", ctx.task_id, ctx.attempt)
    if not ok or ctx.attempt <= failures:
        raise ValueError("as drawn")
    ledger.note(Path.cwd(), "end", ctx.task_id, ctx.attempt)
    return {"attempt": ctx.attempt, "pid": os.getpid()}
