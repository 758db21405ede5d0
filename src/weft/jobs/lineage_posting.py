"""Tells a receiver of OpenLineage of each write into a dataset: after it, and again until it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from weft.catalog import openlineage
from weft.core.states import OutboxKind
from weft.jobs.posting import Poster
from weft.queue import outbox
from weft.version import __version__

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.db.database import Database
    from weft.queue.outbox import Effect

_FIELD = "WEFT_OPENLINEAGE_URL"


class LineagePosting:
    """Carries out the effects of kind ``openlineage``, which it notes itself when it hears of a write."""

    def __init__(self, database: Database, settings: Settings, url: str) -> None:
        self._database = database
        self._url = url
        self._namespace = settings.openlineage_namespace
        self._token = settings.openlineage_token
        parts = urlsplit(url)
        # Whoever operates the installation says where it goes: it may be inside.
        self._poster = Poster((parts.hostname or "",), settings.callback_timeout.total_seconds())

    async def note(self, event_id: int) -> None:
        """Add an effect for an event that tells of a write; of any other nothing. A repeat adds one more."""
        found = await self._database.run(lambda conn: openlineage.note_of(conn, event_id))
        if found is not None:
            org_id, told, actor = found
            await self._database.run(lambda conn: outbox.add(conn, org_id, OutboxKind.OPENLINEAGE, told, actor=actor))

    async def send(self, effect: Effect) -> None:
        """Post what there is to tell of a write; a repeat is about the same run, by which the receiver knows it."""
        events = await self._database.run(
            lambda conn: openlineage.events_of(conn, effect.org, effect.payload, self._namespace)
        )
        for event in events:
            await self._poster.post(self._url, orjson.dumps(event), self._headers(), _FIELD)

    def _headers(self) -> dict[str, Any]:
        headers = {"User-Agent": f"weft/{__version__}"}
        return headers if self._token is None else {**headers, "Authorization": f"Bearer {self._token}"}
