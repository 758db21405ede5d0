"""How what happens travels: frames of Server-Sent Events, as browsers read them."""

from __future__ import annotations

from typing import Any

import orjson

MEDIA_TYPE = "text/event-stream"


def frame(data: Any, *, name: str | None = None, id: str | None = None) -> bytes:
    """Return one event; one without a name is what browsers call a message. JSON has no line breaks of its own."""
    head = b"" if name is None else b"event: %s\n" % name.encode()
    tail = b"\n" if id is None else b"id: %s\n\n" % id.encode()
    return head + b"data: " + orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS) + b"\n" + tail


def heartbeat(id: str | None) -> bytes:
    """Return what keeps a connection open and is no event; a place in it is where to go on from."""
    return b": still here\n\n" if id is None else b": still here\nid: %s\n\n" % id.encode()


def farewell(code: str, detail: str) -> bytes:
    """Return the last event of a stream that ends before what it tells of has."""
    return frame({"code": code, "detail": detail}, name="closed")
