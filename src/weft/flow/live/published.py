"""The JSON Schema of live DAGs, by which editors complete and check them."""

from __future__ import annotations

from typing import Any

from weft.flow.live.model import SOURCES, DagDefinition

_DESCRIPTION = (
    "A live DAG: jobs that go on for ever, and the datasets between them. `weft validate` checks more than a JSON "
    "Schema can say: that each dataset has one producer, that nothing waits for itself, and when a schedule ticks."
)
# What each kind of job must have, and what is not for it.
_SOURCE = {
    "required": ["source"],
    "properties": {
        "source": {"type": "object"},
        "inputs": {"maxItems": 0},
        "execution_strategy": {"type": "null"},
        "idle_timeout": {"type": "null"},
    },
}
_REACTIVE = {
    "required": ["inputs", "execution_strategy"],
    "properties": {"inputs": {"minItems": 1}, "source": {"type": "null"}, "bootstrap": {"type": "null"}},
}


def dag_schema() -> dict[str, Any]:
    """Return the JSON Schema of a live DAG, draft 2020-12."""
    schema = DagDefinition.model_json_schema(by_alias=True)
    schema["properties"]["defaults"]["default"] = {}
    schema["properties"]["$schema"] = {"type": "string", "description": "Where this schema is, for editors; no part."}
    # The author's own, for anchors.
    schema["patternProperties"] = {"^x-": {}}
    job = schema["$defs"]["JobSpec"]
    job["properties"]["source"] = {
        "anyOf": [*({"$ref": f"#/$defs/{model.__name__}"} for model in SOURCES.values()), {"type": "null"}],
        "description": job["properties"]["source"]["description"],
        "default": None,
    }
    job["allOf"] = [
        {"if": {"properties": {"activation": {"const": "source"}}}, "then": _SOURCE, "else": _REACTIVE},
        {
            "if": {"required": ["update_strategy"], "properties": {"update_strategy": {"const": "append"}}},
            "then": {"required": ["unique_key"], "properties": {"unique_key": {"type": "array", "minItems": 1}}},
        },
    ]
    about = {"title": "Weft live DAG", "description": _DESCRIPTION}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **about}
