"""The JSON Schema of definitions, by which editors complete and check them.

It refuses what the loader refuses in any one field, and accepts what that accepts. What only the loader sees: whether
the nodes hang together, expressions, spans beyond 20,000 days written as text, a default beyond its own bounds, and
that 1.0 is no whole number.
"""

from __future__ import annotations

from typing import Any

from weft.flow.inputs import ABOUT, TYPES
from weft.flow.model import WorkflowDefinition


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a workflow definition, draft 2020-12."""
    schema = WorkflowDefinition.model_json_schema(by_alias=True)
    schema["properties"]["defaults"]["default"] = {}
    # The author's own, for anchors.
    schema["patternProperties"] = {"^x-": {}}
    schema["$defs"]["Input"]["allOf"] = [_of_type(kind) for kind in TYPES]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Weft workflow definition"}


def _of_type(kind: str) -> dict[str, Any]:
    """Return what holds for an input of a type: its default is of it, and no bound is about something else."""
    foreign = {field: {"type": "null"} for field, kinds in ABOUT.items() if kind not in kinds}
    return {
        "if": {"required": ["type"], "properties": {"type": {"const": kind}}},
        "then": {"properties": {"default": {"type": [kind, "null"]}, **foreign}},
    }
