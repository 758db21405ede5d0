"""Says to those who speak HTTP what docstrings say to those who speak Python."""

from __future__ import annotations

import re

from weft.core import data_errors, errors, server_errors

_MODULES = (errors, server_errors, data_errors)
_RAISED = re.compile(r"(?:is raised as|raises) `([A-Z]\w+)`")
_ERROR = re.compile(r"`([A-Z]\w+)`")
_GIVEN = re.compile(r"`(\w+)=(False|True)`")
_CHOSEN = re.compile(r'`(\w+)="(\w+)"`')
_VALUES = {"None": "null", "False": "false", "True": "true"}
_VALUE = re.compile(rf"\b({'|'.join(_VALUES)})\b")
_CALLS = {"`Client.audit`": "`GET /audit`", "; pass `page.next` as `before` for the next page": ""}


def code_of(name: str) -> str | None:
    """Return the code of an error by the name of its class, if there is one of that name."""
    kind = next((found for each in _MODULES if (found := getattr(each, name, None)) is not None), None)
    return None if kind is None else str(kind.code)


def for_http(text: str) -> str:
    """Return what is said of a call or a record in the words of its answers."""
    told = text.replace("``", "`")
    for call, route in _CALLS.items():
        told = told.replace(call, route)
    told = _RAISED.sub(lambda found: f"is refused with `{code_of(found[1]) or found[1]}`", told)
    told = _ERROR.sub(lambda found: f"`{code_of(found[1]) or found[1]}`", told)
    told = _GIVEN.sub(lambda found: f"`{found[1]}: {found[2].lower()}`", told)
    told = _CHOSEN.sub(r"`\1=\2`", told)
    return _VALUE.sub(lambda found: _VALUES[found[1]], told)
