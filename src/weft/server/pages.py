"""The few pages that the server has by itself: made here, with nothing on them from anywhere else."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

from starlette.responses import Response

from weft.server.headers import page_policy

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f4f4f4; border-radius: 3px; padding: .1em .3em; }
pre { padding: .6em; overflow-x: auto; } summary { cursor: pointer; padding: .2rem 0; } details { margin: .2rem 0; }
th { text-align: left; } td, th { padding: .1rem 1rem .1rem 0; vertical-align: top; } .verb { font-weight: 600; }
"""
_POLICY = page_policy(_STYLE)
_CODE = re.compile(r"`([^`]+)`")


def page(title: str, body: str, status: int = 200) -> Response:
    """Return a page; ``body`` is HTML, the title is text."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return Response(text, status, {"content-security-policy": _POLICY}, "text/html; charset=utf-8")


def interface(document: dict[str, Any]) -> tuple[str, str]:
    """Return title and body of the page of the HTTP interface: each route with what it takes, as the document says."""
    parts: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            parts.setdefault((told.get("tags") or ["other"])[0], []).append(_route(method, path, told, document))
    body = "".join(f'<h2 id="{escape(name)}">{escape(name)}</h2>{"".join(routes)}' for name, routes in parts.items())
    lead = (
        "<p>A browser that has signed in may ask for all of this, and so may whoever sends a token of "
        "<code>weft tokens create</code> as <code>Authorization: Bearer weft_…</code>. "
        'For programs there is <a href="/openapi.json">the OpenAPI document</a>.</p>'
    )
    places = " · ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in parts)
    return f"{document['info']['title']} {document['info']['version']}", f"{lead}<p>{places}</p>{body}"


def _route(method: str, path: str, told: dict[str, Any], document: dict[str, Any]) -> str:
    rows = [
        (each["name"], each["in"], each.get("description", ""), each.get("required", False))
        for each in told.get("parameters", ())
    ]
    content = told.get("requestBody", {}).get("content", {}).get("application/json", {})
    fields = _fields(content.get("schema", {}), document)
    rows += [(name, "body", field.get("description", ""), needed) for name, field, needed in fields]
    table = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{place}{'' if needed else ', optional'}</td>"
        f"<td>{_text(said)}</td></tr>"
        for name, place, said, needed in rows
    )
    about = f"<p>{_text(told.get('description', ''))}</p>" + (f"<table>{table}</table>" if table else "")
    for example in content.get("examples", {}).values():
        about += f"<p>For example:</p><pre>{escape(json.dumps(example['value'], ensure_ascii=False, indent=2))}</pre>"
    answers = ", ".join(f"{status} {escape(each.get('description', ''))}" for status, each in told["responses"].items())
    head = f'<span class="verb">{method.upper()}</span> <code>{escape(path)}</code> {_text(told.get("summary", ""))}'
    return f"<details><summary>{head}</summary>{about}<p>Answers: {answers}</p></details>"


def _text(said: str) -> str:
    """Return a text of the document as HTML: what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(said))


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    for each in (schema, *schema.get("anyOf", ())):
        if "$ref" in each:
            model = document["components"]["schemas"][each["$ref"].rpartition("/")[2]]
            needed = set(model.get("required", ()))
            return [(name, field, name in needed) for name, field in model.get("properties", {}).items()]
    return []
