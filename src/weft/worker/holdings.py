"""What a worker holds: attempts that run, claims that have not begun, outcomes that are not settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from weft.queue.work import Claim, Completed, Ended, Postponed
from weft.worker.attempt import Attempt, Outcome

_MISMATCHES = 3
_PULSES_PER_LOOK = 20


class Holdings:
    """Everything a worker answers for, each task in ``running`` or ``unbegun`` until its outcome has landed."""

    def __init__(self, on_room: Callable[[], None] = lambda: None) -> None:
        self._on_room = on_room
        self._resting: Counter[int] = Counter()
        self.running: dict[int, Attempt] = {}
        self.unbegun: list[Claim] = []
        self.completed: list[Completed] = []
        self.unsuccessful: list[Postponed | Ended] = []
        self._missing: set[tuple[int, int]] = set()
        self._mismatches = 0
        self._pulses = 0

    def __len__(self) -> int:
        """Return how many tasks are held."""
        return len(self.running) + len(self.unbegun)

    @property
    def busy(self) -> int:
        """How many of them take up a slot: what waits for tasks that it made takes none."""
        return len(self) - sum(task_id in self.running for task_id in self._resting)

    @contextmanager
    def resting(self, task_id: int) -> Iterator[None]:
        """Take no slot for a task in the body; others may have it."""
        self._resting[task_id] += 1
        self._on_room()
        try:
            yield
        finally:
            self._resting[task_id] -= 1
            if not self._resting[task_id]:
                del self._resting[task_id]

    @property
    def has_news(self) -> bool:
        """Whether there are outcomes to settle."""
        return bool(self.completed or self.unsuccessful)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held and nothing is to be settled."""
        return not (self.running or self.unbegun or self.completed or self.unsuccessful)

    def note(self, outcome: Outcome) -> None:
        """Keep an outcome until it is settled."""
        if isinstance(outcome, Completed):
            self.completed.append(outcome)
        else:
            self.unsuccessful.append(outcome)

    def take_unbegun(self) -> list[Claim]:
        """Take the claims that have not begun, to begin them or hand them back."""
        taken, self.unbegun = self.unbegun, []
        return taken

    def take_completed(self, most: int) -> list[Completed]:
        """Take outcomes to send; their tasks stay held until they have landed."""
        taken, self.completed = self.completed[:most], self.completed[most:]
        return taken

    def put_back(self, completed: Sequence[Completed]) -> None:
        """Keep outcomes of which nobody knows whether they landed; finishing the same attempt twice is harmless."""
        self.completed[:0] = [outcome for outcome in completed if outcome.id in self.running]

    def take_outcomes(self) -> list[Outcome]:
        """Take all outcomes, to settle them apart; their tasks stay held."""
        taken = [*self.completed, *self.unsuccessful]
        self.completed, self.unsuccessful = [], []
        return taken

    def still_ours(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Return those outcomes whose attempts are held and not settled yet."""
        attempts = {id: attempt.claim.attempt for id, attempt in self.running.items()}
        return [outcome for outcome in outcomes if attempts.get(outcome.id) == outcome.attempt]

    def forget_unsuccessful(self, outcomes: Sequence[Postponed | Ended]) -> None:
        """Let go of outcomes that were sent; others may have come or gone meanwhile."""
        sent = {id(outcome) for outcome in outcomes}
        self.unsuccessful = [outcome for outcome in self.unsuccessful if id(outcome) not in sent]

    def note_again(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes that were taken and are not settled yet."""
        for outcome in self.still_ours(outcomes):
            self.note(outcome)

    def settle(self, outcomes: Iterable[Outcome]) -> None:
        """Let go of tasks whose outcomes have landed or were refused."""
        for outcome in outcomes:
            attempt = self.running.get(outcome.id)
            if attempt is not None and attempt.claim.attempt == outcome.attempt:
                del self.running[outcome.id]

    def drop(self, attempt: Attempt) -> None:
        """Let go of a task that is no longer ours."""
        self.running.pop(attempt.claim.id, None)
        self.completed = [outcome for outcome in self.completed if outcome.id != attempt.claim.id]
        self.unsuccessful = [outcome for outcome in self.unsuccessful if outcome.id != attempt.claim.id]

    def forget_unbegun(self, task_id: int, attempt: int) -> None:
        """Let go of a claim that has not begun: it leaves nothing behind."""
        self.unbegun = [claim for claim in self.unbegun if (claim.id, claim.attempt) != (task_id, attempt)]

    def clear(self) -> None:
        """Let go of everything."""
        self.running, self.unbegun, self.completed, self.unsuccessful = {}, [], [], []
        self._missing.clear()

    def in_use(self, settling: Sequence[Completed] = ()) -> Counter[int]:
        """Return how many tasks of each queue are held, those about to be settled not counted."""
        count = Counter(a.claim.queue_id for id, a in self.running.items() if id not in self._resting)
        count.subtract(
            self.running[o.id].claim.queue_id for o in settling if o.id in self.running and o.id not in self._resting
        )
        count.update(claim.queue_id for claim in self.unbegun)
        return count

    def overdue(self, now: float) -> str | None:
        """Return an attempt on the event loop that should have ended before ``now``."""
        for attempt in list(self.running.values()):
            if attempt.handler.is_async and not attempt.is_over and attempt.is_overdue(now):
                return f"{attempt.claim.id} ({attempt.claim.handler})"
        return None

    def end_overdue(self, now: float) -> None:
        """End attempts that have run for longer than any may; those with a timeout of their own have a timer."""
        for attempt in list(self.running.values()):
            if attempt.timeout is None and attempt.is_overdue(now):
                attempt.end("timeout")

    def should_be_compared(self, count: int | None) -> bool:
        """Whether to ask the database what we hold, after a pulse in which it counted so many.

        The counts are taken at different moments, so they differ often: several times one after the other means that
        something was lost. None says nothing, as amid a flood, so we ask now and then in any case.
        """
        self._pulses += 1
        if count is not None:
            self._mismatches = 0 if count == len(self) else self._mismatches + 1
        return self._mismatches >= _MISMATCHES or self._pulses % _PULSES_PER_LOOK == 0

    def compare(self, held: Sequence[Claim]) -> tuple[list[Attempt], list[Claim]]:
        """Compare with what the database says; return what was taken away, and claims that were not heard of."""
        self._mismatches = 0
        attempts = {claim.id: claim.attempt for claim in held}
        missing = [a for a in self.running.values() if attempts.get(a.claim.id) != a.claim.attempt]
        self._missing.update((attempt.claim.id, attempt.claim.attempt) for attempt in missing)
        # What has not begun leaves nothing behind: it is simply not ours.
        self.unbegun = [claim for claim in self.unbegun if attempts.get(claim.id) == claim.attempt]
        settling = {outcome.id for outcome in (*self.completed, *self.unsuccessful)}
        known = {*self.running, *(claim.id for claim in self.unbegun)}
        return (
            [attempt for attempt in missing if attempt.claim.id not in settling],
            [claim for claim in held if claim.id not in known],
        )

    def accept(self, claims: list[Claim]) -> list[Claim]:
        """Keep new claims to begin with; return those that must be handed back instead.

        A server that crashed may have forgotten a claim and give the same attempt again: its fence would let through
        whatever is left of the first.
        """
        again = [c for c in claims if (c.id, c.attempt) in self._missing] if self._missing else []
        self.unbegun += [claim for claim in claims if claim not in again] if again else claims
        return again
