"""The handler of drawn workflows, as workers of crash tests have it."""

from __future__ import annotations

import weft


@weft.task(name="act")
async def act(ok: bool) -> bool:
    """Do as was drawn."""
    if not ok:
        raise ValueError("as drawn")
    return True
