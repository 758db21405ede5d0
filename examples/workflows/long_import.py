"""Imports a large file block by block, and goes on where it was when an attempt ends in the middle.

Shows: checkpoints of a long task; a handler that gives way when its worker is told to stop; a step that is done once.
Run it: `python long_import.py FILE`. The first attempt loses its connection after three blocks; killed with -9 instead,
the next worker would go on from the same place.
"""

import sys
from itertools import islice
from pathlib import Path

import weft

BLOCK = 100


@weft.task(retry=weft.Retry(max_attempts=3, initial_delay=0.1))
async def import_rows(path: str, ctx: weft.Context) -> dict[str, int]:
    target = await ctx.step("open", open_target, path)
    found = await ctx.checkpoint.load()
    done = 0 if found is None else int(found.data["done"])
    started = done
    while rows := read_rows(path, done):
        write_rows(target, done, rows)
        done += len(rows)
        await ctx.checkpoint.save("rows", {"done": done})
        if ctx.shutdown_requested:
            raise weft.Snooze(0)  # another worker goes on at once
        if ctx.attempt == 1 and done >= 3 * BLOCK:
            raise ConnectionError("the connection was lost")
    return {"rows": done, "attempts": ctx.attempt, "started_at": started}


def open_target(path: str) -> str:
    target = Path(path).with_suffix(".imported")
    target.write_text("", encoding="utf-8")
    return str(target)


def read_rows(path: str, start: int) -> list[str]:
    with Path(path).open(encoding="utf-8") as file:
        return list(islice(file, start, start + BLOCK))


def write_rows(target: str, start: int, rows: list[str]) -> None:
    """Write a block in its place: a block that was written and not noted is written again, and nothing is doubled."""
    kept = Path(target).read_text(encoding="utf-8").splitlines(keepends=True)[:start]
    Path(target).write_text("".join([*kept, *rows]), encoding="utf-8")


@weft.workflow(timeout=24 * 3600)
async def long_import(path: str) -> dict[str, int]:
    return await import_rows.using(timeout=6 * 3600)(path)


if __name__ == "__main__":
    print(weft.run(long_import, path=sys.argv[1]))
