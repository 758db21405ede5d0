"""Takes events that were accepted to the nodes that wait for them, as many at once as one transaction should hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import Database
    from weft.queue.outbox import Effect

# Apart from those of jobs, of which a worker needs nothing else.
SQL = Statements("weft.jobs", "sql/routing.sql")
AT_ONCE = 500


class Routing:
    """Carries out the effects of kind ``route_event``: what is left of an event for which a great many wait."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def route(self, effect: Effect) -> None:
        """Answer all who wait; a repeat finds those who do not wait any more, and does nothing for them."""
        payload: Any = effect.payload
        if not isinstance(payload, dict) or not str(payload.get("event_id")).isdecimal():
            raise InvalidInput("payload", "must be a mapping with the event_id of an event that was accepted")
        event_id, after = int(payload["event_id"]), int(payload.get("after") or 0)
        while after is not None:
            said = event_id, after, AT_ONCE
            after = await self._database.run(lambda conn, said=said: conn.fetchval(SQL.route_event, *said))  # type: ignore[misc]
