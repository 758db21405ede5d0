"""Params with expressions in them: kept with what they go by, and rendered by whoever claims the task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from weft.core.checks import check_key
from weft.core.errors import InvalidInput
from weft.core.json import GATHERED, Json, encode, referenced_blob
from weft.db.blobs import Blobs
from weft.flow.budget import ExpressionError
from weft.flow.expressions import Values
from weft.flow.templates import Template, read_value
from weft.flow.values import present

END = "@end"
_AT_ONCE = 16


def packed(
    spec: Json, inputs: Mapping[str, Json], nodes: Sequence[str], starts: Sequence[str], job: Mapping[str, Json]
) -> str:
    """Return what is kept of a task whose params are known only when other tasks have ended."""
    kept = {"$render": spec, "inputs": inputs, "nodes": nodes, "job": job}
    return orjson.dumps({**kept, "starts": starts} if starts else kept).decode()


def key_of(template: Template, values: Values, field: str) -> str:
    """Return the concurrency key of a task; what is no text stands as JSON. Raises `InvalidInput`."""
    try:
        found = present(template.render(values))
    except ExpressionError as problem:
        raise InvalidInput(field, str(problem)) from None
    return check_key(found if isinstance(found, str) else encode(found, field), field)


async def unpacked(
    text: str, given: Sequence[str | None] | None, blobs: Callable[[], Blobs], limit: int
) -> tuple[Json, dict[str, Any]]:
    """Return what is to be rendered, and the values by which; ``given`` are outputs of other tasks, in their order.

    Raises `InvalidInput` when a fan_in has gathered more from the blob storage than ``limit`` bytes.
    """
    kept = orjson.loads(text)
    parts = zip(kept["nodes"], given or (), strict=True)
    outputs = {name: {"output": await _loaded(name, output, blobs, limit)} for name, output in parts}
    return kept["$render"], values_of(kept["inputs"], outputs, kept.get("starts", ()), kept["job"])


def values_of(
    inputs: Mapping[str, Json], outputs: Mapping[str, Json], starts: Sequence[str], job: Mapping[str, Json]
) -> dict[str, Any]:
    """Return what expressions see; the output of a start is the inputs."""
    return {"inputs": inputs, "nodes": {**outputs, **{name: {"output": inputs} for name in starts}}, "job": job}


async def _loaded(name: str, output: str | None, blobs: Callable[[], Blobs], limit: int) -> Json:
    if output is None:
        return None
    if (digest := referenced_blob(output)) is not None:
        return orjson.loads(await blobs().get(digest))
    value = orjson.loads(output)
    return await _gathered(name, value, blobs, limit) if _is_gathered(value) else value


async def _gathered(name: str, value: dict[str, Any], blobs: Callable[[], Blobs], limit: int) -> Json:
    """Return what a fan_in has gathered, each with its own bytes, wherever they are kept."""
    references = list(_references(value))
    if (size := sum(reference["size"] for reference in references)) > limit:
        raise InvalidInput(
            f"nodes.{name}.output",
            f"has {size} bytes in all, and values may have {limit}: let its tasks give names of what they made",
        )
    found: dict[str, Json] = {}
    for start in range(0, len(references), _AT_ONCE):
        digests = {reference["$blob"] for reference in references[start : start + _AT_ONCE]} - found.keys()
        texts = await asyncio.gather(*(blobs().get(digest) for digest in digests))
        found.update(zip(digests, map(orjson.loads, texts), strict=True))
    return _filled(value, found)


def _references(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each in value[GATHERED]:
        if _is_gathered(each):
            yield from _references(each)
        elif _is_reference(each):
            yield each


def _filled(value: dict[str, Any], found: Mapping[str, Json]) -> Json:
    results = []
    for each in value[GATHERED]:
        if _is_gathered(each):
            results.append(_filled(each, found))
        elif _is_reference(each):
            results.append(found[each["$blob"]])
        else:
            results.append(each)
    return {"results": results}


def _is_reference(value: Json) -> bool:
    return isinstance(value, dict) and "$blob" in value and next(iter(value)) == "$blob"


def _is_gathered(value: Json) -> bool:
    """Whether a fan_in is meant: no task's own output begins with that key."""
    return isinstance(value, dict) and GATHERED in value and next(iter(value)) == GATHERED


def rendered(spec: Json, values: Values) -> str:
    """Return params as JSON; raises `ExpressionError`."""
    return encode(read_value(spec).render(values), "params")
