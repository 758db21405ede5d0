"""A running task maps a handler over a list, in chunks."""

from typing import Any

import weft

# docs: begin map
from weft.orchestration import map as map_chunks


@weft.task(name="squares.of")
def squares(chunk: list[int], power: int) -> list[int]:
    return [number**power for number in chunk]


@weft.task(name="squares.all")
async def all_squares(count: int) -> list[int]:
    found: list[int] = await map_chunks(squares, list(range(count)), chunk_size=4, power=2)
    return found


# docs: end map


@weft.workflow
async def mapped(count: int) -> Any:
    return await all_squares(count)


if __name__ == "__main__":
    print(weft.run(mapped, count=10))
