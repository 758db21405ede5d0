"""Shows each thing that a workflow in Python can say, and what comes of it."""

from typing import Annotated, Any, Literal

from pydantic import Field

import weft


@weft.task
async def read(path: str) -> list[int]:
    return [len(path), 20, 3]


@weft.task
def scale(value: int, factor: int = 2) -> int:
    return value * factor


@weft.task
def add(a: int, b: int) -> int:
    return a + b


@weft.task
def tell(text: str) -> str:
    return text


@weft.task
async def stat(path: str) -> dict[str, Any]:
    return {"size": len(path), "parts": path.split("/")}


# docs: begin values
@weft.workflow
async def describe(path: str) -> str:
    found = await stat(path)
    return tell(f"{found['parts'][0]} has {found['size'] * 2} bytes")


# docs: end values


# docs: begin inputs
@weft.workflow(description="Tiles a scan.", timeout=3600, defaults={"retry": 2, "timeout": 300})
def tile(
    path: str,
    size: Annotated[int, Field(ge=16, le=512)] = 256,
    mode: Literal["fast", "exact"] = "fast",
) -> str:
    return tell(f"{path} in tiles of {size}, {mode}")


# docs: end inputs


# docs: begin map
@weft.workflow
def sums(path: str) -> dict[str, Any]:
    scaled = scale.using(max_parallel=8, retry=5).map(read(path), factor=10)
    pairs = add.starmap([[1, 2], [scaled[0], 4]])
    return {"scaled": scaled, "pairs": pairs, "count": weft.filtered(scaled, "length")}


# docs: end map


# docs: begin when
@weft.workflow
async def route(path: str) -> str:
    found = await stat(path)
    with weft.when((found["size"] > 10) & (found["size"] < 1000)) as is_usual:
        usual = tell("as usual")
    with is_usual.otherwise:
        odd = tell.named("odd")(f"odd: {found['size']}")
    return tell.named("last")(is_usual.value(usual, odd))


@weft.workflow
async def shorter(path: str) -> str:
    found = await stat(path)
    text: str = weft.when(found["size"] > 10, lambda: tell("long"), lambda: tell("short"))
    return text


# docs: end when


# docs: begin order
@weft.workflow
def ordered(path: str) -> str:
    with weft.group("prepare") as prepare:
        first = tell.named("first")("first")
        with weft.group("rest"):
            tell.using(node="second", after=first)("second")
    done = tell.named("done")("done")
    prepare >> done
    return done


# docs: end order


# docs: begin parts
@weft.workflow
def all_of_them(paths: list[str]) -> list[Any]:
    return [sums(paths[0]), describe.using(allow_failure=True, node="words")(paths[1])]


# docs: end parts


# docs: begin refused
@weft.workflow
async def wrong(path: str) -> str:
    found = await stat(path)
    if found["size"] > 10:
        return tell("long")
    return tell("short")


# docs: end refused

if __name__ == "__main__":
    print(weft.run(describe, path="in/orders.csv"))
    print(weft.run(tile, path="alps.tif", size=64))
    print(weft.run(sums, path="x"))
    print(weft.run(route, path="in/orders.csv"), weft.run(route, path="x"))
    print(weft.run(shorter, path="in/orders.csv"), weft.run(shorter, path="x"))
    print(weft.run(ordered, path="x"))
    print(weft.run(all_of_them, paths=["x", "y/z"]))
    # docs: begin yaml
    print(sums.to_yaml())
    print(sums.version_hash)
    # docs: end yaml

    # docs: begin told
    try:
        print(wrong.definition)
    except weft.InvalidDefinition as problem:
        print(problem)  # python_flows.py:118:8: error: nodes.stat.output.size > 10 is known only when a job runs, …
    # docs: end told
