"""What a server process holds: one open client, and one more for each org that has asked of late."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from weft.contract.operations import Access
from weft.sdk.client import Client
from weft.server.credentials import principal, require
from weft.server.live.hub import Hub
from weft.server.traffic import Traffic
from weft.server.vouching import provider_of

if TYPE_CHECKING:
    from weft.catalog.model import Principal
    from weft.server.live.guest import Guest

_ORGS = 1000


class State:
    """The clients of a server; those of orgs remember plans and queues, and share the connections."""

    def __init__(self, client: Client, traffic: Traffic) -> None:
        self.client = client
        self.provider = provider_of(client.settings)
        self.live = Hub(client.database, _admit)
        self.traffic = traffic
        # Told by /readyz, so that whoever spreads requests sends no more of them here.
        self.is_stopping = False
        self._by_org: OrderedDict[int, Client] = OrderedDict()

    def client_of(self, who: Principal) -> Client:
        """Return the client of an org."""
        found = self._by_org.get(who.org_id)
        if found is None:
            found = self._by_org[who.org_id] = self.client.of_org(who.org_id, who.org)
            if len(self._by_org) > _ORGS:
                self._by_org.popitem(last=False)
        self._by_org.move_to_end(who.org_id)
        return found


async def _admit(guest: Guest) -> None:
    """Refuse whoever may not look any more at what happens."""
    require(await principal(guest.request), Access.READER)
