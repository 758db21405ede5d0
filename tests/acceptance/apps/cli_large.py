"""A handler with much to say."""

from __future__ import annotations

import weft


@weft.task(name="cli:double")
async def double(text: str) -> str:
    return text + text
