"""Asks a server for whom it takes the holder of a token."""

from __future__ import annotations

from typing import Any

from weft.remote.transport import Transport


async def who_am_i(server: str, token: str | None) -> dict[str, Any]:
    """Return the org, the actor, the role and the end of a token; raises what is wrong with it, or with the server."""
    transport = Transport(server, token)
    try:
        return await transport.get("/me")
    finally:
        await transport.close()
