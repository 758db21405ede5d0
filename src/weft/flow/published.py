"""The JSON Schema of definitions, by which editors complete and check them.

It refuses what the loader refuses in any one field, and accepts what that accepts, as far as JSON Schema can say it.
"""

from __future__ import annotations

from typing import Any

from weft.flow.inputs import ABOUT, TYPES
from weft.flow.model import WorkflowDefinition

# What the schema says of itself: that it is not all.
_DESCRIPTION = (
    "A workflow: a graph of nodes with typed inputs. `weft validate` checks more than a JSON Schema can say: that the "
    "nodes hang together, expressions, that a whole number is written without a point (1, and not 1.0), that a span "
    "of several parts is at most 20,000 days, that a pattern is one of Rust's regex, and that the default and the "
    "values of an input are within its own bounds."
)

_ABOUT = {"title": "Weft workflow definition", "description": _DESCRIPTION}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a workflow definition, draft 2020-12."""
    schema = WorkflowDefinition.model_json_schema(by_alias=True)
    schema["properties"]["defaults"]["default"] = {}
    schema["properties"]["$schema"] = {"type": "string", "description": "Where this schema is, for editors; no part."}
    # The author's own, for anchors.
    schema["patternProperties"] = {"^x-": {}}
    schema["$defs"]["Input"]["allOf"] = [_of_type(kind) for kind in TYPES]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **_ABOUT}


def _of_type(kind: str) -> dict[str, Any]:
    """Return what holds for an input of a type: its default is of it, and no bound is about something else."""
    foreign = {field: {"type": "null"} for field, kinds in ABOUT.items() if kind not in kinds}
    return {
        "if": {"required": ["type"], "properties": {"type": {"const": kind}}},
        "then": {"properties": {"default": {"type": [kind, "null"]}, **foreign}},
    }
