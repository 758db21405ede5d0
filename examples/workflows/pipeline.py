"""A pipeline in Python: tasks, one of them for each item of a list, executed by one call.

Shows: `@weft.workflow`, `.map`, `weft.run`. Run it: `python pipeline.py`
"""

import weft


@weft.task(retry=3, timeout=60)
async def fetch(url: str) -> list[int]:
    return [len(part) for part in url.split("/") if part]


@weft.task
def double(x: int) -> int:
    return 2 * x


@weft.task
def total(xs: list[int]) -> int:
    return sum(xs)


@weft.workflow
def pipeline(url: str) -> int:
    return total(double.map(fetch(url)))


if __name__ == "__main__":
    print(weft.run(pipeline, url="https://example.com/rows"))
