"""The JSON Schema of definitions, by which editors complete and check them."""

from __future__ import annotations

from typing import Any

from weft.flow.model import WorkflowDefinition


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a workflow definition, draft 2020-12."""
    schema = WorkflowDefinition.model_json_schema(by_alias=True)
    _drop_null(schema)
    schema["properties"]["defaults"]["default"] = {}
    # The author's own, for anchors.
    schema["patternProperties"] = {"^x-": {}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Weft workflow definition"}


def _drop_null(part: Any) -> None:
    """What need not be given is left out, not written as null: take that away as a choice."""
    if isinstance(part, dict):
        choices = part.get("anyOf")
        if isinstance(choices, list) and {"type": "null"} in choices and part.get("default", 0) is None:
            choices = [choice for choice in choices if choice != {"type": "null"}]
            del part["anyOf"], part["default"]
            part |= choices[0] if len(choices) == 1 else {"anyOf": choices}
        for entry in list(part.values()):
            _drop_null(entry)
    elif isinstance(part, list):
        for entry in part:
            _drop_null(entry)
