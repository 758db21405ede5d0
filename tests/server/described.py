"""The document of the server, which takes half a second to make, made once for all tests of a process."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import weft
from weft.server.app import make_app


@cache
def _made() -> dict[str, Any]:
    return make_app(weft.Settings.load(environ={})).openapi()


def described() -> dict[str, Any]:
    """Return a document of the caller's own, to be changed as it likes."""
    return copy.deepcopy(_made())
