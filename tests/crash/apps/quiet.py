"""A handler that does nothing and notes nothing, for what only counts."""

from __future__ import annotations

import weft


@weft.task(name="quiet")
async def quiet(text: str) -> int:
    """Return how long the text is."""
    return len(text)
