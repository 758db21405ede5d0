"""How far a worker has claimed in each queue, and when it looks again from the head."""

from __future__ import annotations

import time
from collections.abc import Iterable

from weft.queue.work import HEAD, Claim, Lane

# A share of one tenth of the time: nine times as long between two looks as one look costs extra.
_REST_PER_COST = 9.0
_CHEAP = 0.005
# However long a look took: it may have been held up, as by a database that did not answer, and what came late waits for
# the next one.
_LONGEST = 30.0


class Marks:
    """Chooses between claiming above the mark and from the head.

    With the vacuum horizon held back, dead entries pile up at the head of the ready index, and a claim from there walks
    them all. So a worker claims above what it claimed last, and looks from the head, for what is more urgent or came
    late, as long as that costs no more than a tenth of the time. Usually it costs nothing extra, and every claim does.
    """

    def __init__(self) -> None:
        self._head_cost = 0.0
        self._mark_cost = 0.0
        self._headed_at = 0.0
        self.has_looked_back = True

    def choose(self, lanes: list[Lane]) -> tuple[list[Lane], bool, bool]:
        """Return the lanes to claim from, whether that is from the head, and whether a short claim may look there."""
        if self._due_in() <= 0:
            self.has_looked_back = True
            return [Lane(lane.queue_id, lane.room, HEAD) for lane in lanes], True, True
        self.has_looked_back = self._extra_cost() < _CHEAP
        return lanes, False, self.has_looked_back

    def look_back_in(self, longest: float) -> float:
        """Return after how many seconds, at most ``longest``, a worker that found nothing should look again."""
        return longest if self.has_looked_back else min(longest, max(0.0, self._due_in()))

    def _extra_cost(self) -> float:
        return max(0.0, self._head_cost - self._mark_cost)

    def _due_in(self) -> float:
        return self._headed_at + min(_LONGEST, _REST_PER_COST * self._extra_cost()) - time.monotonic()

    def note(self, lanes: Iterable[Lane], claims: Iterable[Claim], from_head: bool, seconds: float) -> None:
        """Move the marks to what was claimed and remember what the call cost."""
        if from_head:
            self._headed_at = time.monotonic()
            self._head_cost += (seconds - self._head_cost) / 2
        else:
            self._mark_cost += (seconds - self._mark_cost) / 4
        by_id = {lane.queue_id: lane for lane in lanes}
        for claim in claims:
            lane = by_id[claim.queue_id]
            place = (claim.rank, claim.order_id, claim.id)
            lane.mark = max(lane.mark, place)
