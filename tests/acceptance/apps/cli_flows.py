"""Python workflows that the tests of the command line execute, and a program that runs them by one call."""

from __future__ import annotations

import asyncio
from typing import Any

import weft


@weft.task(name="flows.scheme", queue="flows")
def scheme(count: int) -> list[int]:
    """Return so many tiles."""
    return list(range(count))


@weft.task(name="flows.process", retry=0, queue="flows")
async def process(tile: int) -> int:
    """Return a tile's area; the seventh is broken."""
    if tile == 7:
        raise ValueError("tile 7 is broken")
    return tile * tile


@weft.workflow
def areas(count: int = 3) -> list[int]:
    """The areas of tiles."""
    return process.map(scheme(count))  # type: ignore[no-any-return]


@weft.workflow
def broken(count: int) -> Any:
    """Cannot be compiled."""
    return scheme(count) if count > 3 else None


FILE = """
workflow_id: one
inputs: {n: {type: integer, required: true}}
nodes:
  START: {type: start, next: one}
  one: {handler: flows.process, queue: flows, params: {tile: "{{ inputs.n }}"}, next: END}
  END: {type: end, output: "{{ nodes.one.output }}"}
"""


async def _in_a_loop() -> None:
    print(weft.run(areas, count=2))
    job = await weft.submit(areas, count=4)
    print(job.created, (await job.show()).state)


def main() -> None:
    """Run workflows by all that can name them."""
    from pathlib import Path

    print(weft.run(areas), weft.run(areas, count=1))
    Path("one.yaml").write_text(FILE, encoding="utf-8")
    print(weft.run("one.yaml", n=3), weft.run(Path("one.yaml"), n=4))
    nodes = areas.document["nodes"]
    misspelt = {**areas.document, "nodes": {**nodes, "scheme": {**nodes["scheme"], "handler": "flows.sceme"}}}
    for problem in (
        lambda: weft.run(areas, count=8),
        lambda: weft.run(areas, counts=8),
        lambda: weft.run(misspelt),
        lambda: weft.run("no/such/tag"),
    ):
        try:
            problem()
        except weft.WeftError as told:
            print(type(told).__name__, told)
    asyncio.run(_in_a_loop())


if __name__ == "__main__":
    main()
