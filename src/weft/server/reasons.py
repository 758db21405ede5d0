"""Why a request is made: a header that every route takes which changes something, kept with the act."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import Header

from weft.core.errors import InvalidInput
from weft.queue.audit import LONGEST_REASON

_SAID = (
    f"Why it is done, for the audit: at most {LONGEST_REASON} characters, and those that are not ASCII, and %, "
    "as in an address (UTF-8, %C3%A9)."
)
# Four bytes of a character are twelve signs.
Reason = Annotated[
    str | None, Header(description=_SAID, max_length=12 * LONGEST_REASON, pattern=r"^[!-~]([ -~]*[!-~])?$")
]


def reason_in(header: str | None) -> str | None:
    """Return the reason that a header tells; how long it may be is looked at where it is kept."""
    if header is None:
        return None
    try:
        return unquote_to_bytes(header).decode()
    except UnicodeDecodeError:
        raise InvalidInput("weft-reason", "is not UTF-8 after its %XX are read: write a % itself as %25") from None
