"""Params with expressions in them: kept with what they go by, and rendered by whoever claims the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from weft.core.json import Json, encode, referenced_blob
from weft.db.blobs import Blobs
from weft.flow.expressions import Values
from weft.flow.templates import read_value

RENDER_MARK = '{"$render":'
END = "@end"


def packed(
    spec: Json, inputs: Mapping[str, Json], nodes: Sequence[str], starts: Sequence[str], job: Mapping[str, Json]
) -> str:
    """Return what is kept of a task whose params are known only when other tasks have ended."""
    kept = {"$render": spec, "inputs": inputs, "nodes": nodes, "job": job}
    return orjson.dumps({**kept, "starts": starts} if starts else kept).decode()


async def unpacked(
    text: str, given: Sequence[str | None] | None, blobs: Callable[[], Blobs]
) -> tuple[Json, dict[str, Any]]:
    """Return what is to be rendered, and the values by which; ``given`` are outputs of other tasks, in their order."""
    kept = orjson.loads(text)
    parts = zip(kept["nodes"], given or (), strict=True)
    outputs = {name: {"output": await _loaded(output, blobs)} for name, output in parts}
    return kept["$render"], values_of(kept["inputs"], outputs, kept.get("starts", ()), kept["job"])


def values_of(
    inputs: Mapping[str, Json], outputs: Mapping[str, Json], starts: Sequence[str], job: Mapping[str, Json]
) -> dict[str, Any]:
    """Return what expressions see; the output of a start is the inputs."""
    return {"inputs": inputs, "nodes": {**outputs, **{name: {"output": inputs} for name in starts}}, "job": job}


async def _loaded(output: str | None, blobs: Callable[[], Blobs]) -> Json:
    if output is None:
        return None
    if (digest := referenced_blob(output)) is not None:
        return orjson.loads(await blobs().get(digest))
    return orjson.loads(output)


def rendered(spec: Json, values: Values) -> str:
    """Return params as JSON; raises `ExpressionError`."""
    return encode(read_value(spec).render(values), "params")
