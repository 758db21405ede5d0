"""The operator `python`: a function of one's own, by its name; a deploy lets its tasks call that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    from weft.worker.live import LiveContext


async def run(live: LiveContext) -> Any:
    """Refuse: tasks of such a job are those of the function that it names."""
    raise InvalidInput(
        "config.handler", f"{live.job} names no function: say the name of one that workers have by @weft.operator"
    )
