"""What a server process holds: one open client, and one more for each org that has asked of late."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from weft.contract.operations import Access
from weft.jobs.metrics import Metric
from weft.queue.blobs import KeptBlobs, OwnBlobs
from weft.queue.queues import QueueInfo
from weft.sdk.client import Client
from weft.server.credentials import identify, require
from weft.server.live.hub import Hub
from weft.server.seats import Seats
from weft.server.shared import Shared
from weft.server.traffic import Traffic
from weft.server.vouching import provider_of
from weft.worker.answers import Answers
from weft.worker.log_parts import LogParts
from weft.worker.logs import log_dir

if TYPE_CHECKING:
    from weft.catalog.model import Principal
    from weft.server.live.guest import Guest

_ORGS = 1000
_READY = 1.0
# Fewer tasks are counted anew each time: some 600 take a millisecond.
_MANY = 50_000
_A_SECOND, _LONGEST = 30_000, 60.0


class State:
    """The clients of a server; those of orgs remember plans and queues, and share the connections."""

    def __init__(self, client: Client, traffic: Traffic) -> None:
        self.client = client
        self.seats = Seats(client)
        self.provider = provider_of(client.settings)
        self.live = Hub(client.database, _admit)
        self.traffic = traffic
        # Told by /readyz, so that whoever spreads requests sends no more of them here.
        self.is_stopping = False
        # What anybody may ask for, and what counts all that waits.
        self.readiness = Shared(_READY)
        self.counts = Shared(lasts=lasts_counted)
        self._by_org: OrderedDict[int, Client] = OrderedDict()
        self._answers: OrderedDict[int, Answers] = OrderedDict()

    def answers_of(self, who: Principal) -> Answers:
        """Return what does what handlers of an org ask for; a database that is away is told, and not waited for."""
        found = self._answers.get(who.org_id)
        if found is None:
            database = self.client.database.of_org(who.org_id)
            found = self._answers[who.org_id] = Answers(
                database, self.blobs_of(who.org_id), self.client.settings, outages=()
            )
            if len(self._answers) > _ORGS:
                self._answers.popitem(last=False)
        self._answers.move_to_end(who.org_id)
        return found

    @cached_property
    def blobs(self) -> KeptBlobs:
        """Where large values are kept."""
        return KeptBlobs.of(self.client.database)

    def blobs_of(self, org_id: int) -> OwnBlobs:
        """Return the same for one org, which reads what it refers to and nothing else."""
        return OwnBlobs(self.blobs, self.client.database.of_org(org_id), org_id)

    @cached_property
    def logs(self) -> LogParts:
        """The logs that workers send."""
        return LogParts(log_dir(self.client.settings), self.client.settings.log_limit)

    def let_go(self) -> None:
        """End all waits: the server is about to stop."""
        self.is_stopping = True
        self.seats.let_go()

    async def close(self) -> None:
        """End what goes on beside the requests."""
        for answers in self._answers.values():
            await answers.close()
        await self.seats.close()

    def client_of(self, who: Principal) -> Client:
        """Return the client of an org."""
        found = self._by_org.get(who.org_id)
        if found is None:
            found = self._by_org[who.org_id] = self.client.of_org(who.org_id, who.org)
            if len(self._by_org) > _ORGS:
                self._by_org.popitem(last=False)
        self._by_org.move_to_end(who.org_id)
        return found


def lasts_counted(found: Sequence[QueueInfo] | Sequence[Metric]) -> float:
    """Return for how many seconds a count is kept: so that the database is busy counting for a fraction of the time."""
    count = 0.0
    for each in found:
        if isinstance(each, QueueInfo):
            count += sum(each.tasks.values())
        elif each.name == "task_queue_depth":
            count += sum(sample.value for sample in each.samples)
    return 0.0 if count < _MANY else min(_LONGEST, count / _A_SECOND)


async def _admit(guest: Guest) -> None:
    """Refuse whoever may not look any more at what happens."""
    # Anew: by whom the request came is known, and not whether he would still come in.
    require(await identify(guest.request), Access.READER)
