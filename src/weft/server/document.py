"""The OpenAPI document: what FastAPI knows of the routes, and what it does not."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from weft.server.acting import schemas
from weft.server.cookies import SECURE
from weft.server.notes import complete
from weft.server.problems import Problem

# Of plain HTTP on the same machine it is called `weft`.
_SESSION = {
    "type": "apiKey", "in": "cookie", "name": SECURE,
    "description": "The session of a browser that was let in at `/sign-in`; requests that change something must come "
    "from a page of the server itself.",
}  # fmt: skip


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document that describes the whole interface, made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        made["components"]["schemas"] |= {"Problem": Problem.model_json_schema(), **schemas()}
        made["components"]["securitySchemes"]["session"] = _SESSION
        complete(made)
        app.openapi_schema = made
    return app.openapi_schema
