"""Makes an example of any schema of the document, the same at each time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.server.likenesses import DIGEST, EARLY, ID, LIKE

_DEEPEST = 8
# What the fields of a name are like; else an example is made of the type alone.
_BY_NAME: Mapping[str, Any] = {
    "actor": "token:nightly", "attempt": 1, "attempts": 1, "callback_url": "https://example.com/hooks/weft",
    "code": "ok", "concurrency_key": "customer-7", "count": 3, "cursor": "12.0", "detail": "",
    "definition": "workflow_id: etl\nnodes:\n  START: {type: start, next: END}\n  END: {type: end}\n",
    "email": "ada@example.com", "external_id": "ada@example.com", "field": "nodes.fetch.params.size",
    "handler": "etl:fetch", "hint": "weft_Zk3p", "idempotency_key": "order-7", "kind": "task", "limit": 50,
    "message": "larger pages", "moved_by": "user:ada@example.com", "name": "etl/main", "next": None, "node": "fetch",
    "old": "etl~1", "new": "etl", "org": "acme", "queue": "default", "reason": "ordered twice", "role": "writer",
    "secret": "weft_Zk3pXn0v…", "slug": "acme", "state": "completed", "tag": "etl/main", "type": "task",
    "user": "ada@example.com", "version": 12, "version_hash": "7f4c1d9a5be0", "which": "etl/main", "workflow": "etl",
    "workflow_id": "etl", "id": ID, "job_id": ID, "task_id": ID, "base_kind": "tag", "base_ref": "etl/main",
    "code_version": "9c1e5f0a7b23", "digest": DIGEST, "item": "default", "key": "customer-7",
    "lease_token": "7340085817581568.1", "node_id": "fetch", "path": "nodes.fetch.params.size",
    "problem": "it cannot be read", "refused": ID, "lost": ID, "task": ID, "verb": "push", "saved_at": EARLY,
}  # fmt: skip


def sample(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
    """Return an example of a schema; ``schemas`` are those that it may refer to, ``name`` is the field it is for."""
    if "$ref" in schema:
        return sample(schemas[schema["$ref"].rpartition("/")[2]], schemas, name, depth)
    for told in ("example", "const"):
        if told in schema:
            return schema[told]
    for told in ("examples", "enum"):
        if schema.get(told):
            return schema[told][0]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return _of_choices(choices, schemas, name, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return _of_object(schema, schemas, depth)
    if kind == "array":
        return [] if depth > _DEEPEST else [sample(schema.get("items", {}), schemas, name.rstrip("s"), depth + 1)]
    return _of_value(kind, schema, name)


def _of_choices(choices: list[dict[str, Any]], schemas: Mapping[str, Any], name: str, depth: int) -> Any:
    can_be_nothing = any(each.get("type") == "null" for each in choices)
    if can_be_nothing and (depth > _DEEPEST or (name in _BY_NAME and _BY_NAME[name] is None)):
        return None
    return sample(next(each for each in choices if each.get("type") != "null"), schemas, name, depth)


def _of_object(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int) -> dict[str, Any]:
    parts, like = schema.get("properties", {}), LIKE.get(schema.get("title", ""), {})
    return {
        part: like[part] if part in like else sample(inner, schemas, part, depth + 1) for part, inner in parts.items()
    }


def _of_value(kind: str | None, schema: Mapping[str, Any], name: str) -> Any:
    known = _BY_NAME.get(name)
    if kind == "string":
        if schema.get("format") == "date-time":
            return EARLY
        if "pattern" in schema:
            return DIGEST if "a-f" in schema["pattern"] else ID
        return known if isinstance(known, str) else "…" if not name else name.replace("_", "-")
    if kind == "integer":
        return known if isinstance(known, int) else max(1, schema.get("minimum", 1))
    if kind == "number":
        return min(1.5, schema.get("maximum", 1.5))
    if kind == "boolean":
        return True
    return None
