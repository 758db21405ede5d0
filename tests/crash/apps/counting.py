"""An operator that counts on for ever, in slices; one of them waits where a test says so, until it is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weft.worker.live import LiveContext, operator

AT_ONCE, LAST = 5, 60


@operator("count")
async def count(live: LiveContext) -> None:
    """Emit the next numbers, or note one that was emitted."""
    if live.unit.kind != "slice":
        seen = await live.state("seen") or []
        await live.set_state([*seen, live.unit.payload], "seen")
        return
    folder, first = Path(live.config["folder"]), await live.state() or 0
    for number in range(first, min(first + AT_ONCE, LAST)):
        await live.emit({"key": str(number), "lane": "seen", "said": {"payload": number}})
    await live.set_state(min(first + AT_ONCE, LAST))
    if (folder / f"hold-{first}").exists():
        (folder / f"held-{first}").touch()
        await asyncio.sleep(3600)
    if first >= LAST:
        await live.caught_up()
        await live.rest(0.2)
