"""What a worker asks of whoever keeps its tasks: a database, or a server that speaks for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.db.blobs import Blobs
    from weft.queue.cache import Keys, Reuse
    from weft.queue.services import Upkeep
    from weft.queue.steps import Fence
    from weft.queue.work import Claim, Completed, Ended, Lane, Postponed
    from weft.queue.workers import Pulse
    from weft.worker.caching import Caching
    from weft.worker.lending import Lending
    from weft.worker.log_keeping import LogKeeping
    from weft.worker.relay import Relay
    from weft.worker.slots import Slots


class Line(Protocol):
    """The way by which a worker claims and completes, and hears what it is told."""

    @property
    def is_open(self) -> bool:
        """Whether it is thought to work."""
        ...

    async def open(self) -> None:
        """Make it work, trying again with growing pauses."""
        ...

    async def finish_and_claim(
        self, completed: Sequence[Completed], lanes: Sequence[Lane], wanted: int, *, from_head: bool
    ) -> tuple[list[Claim], list[int]]:
        """Complete attempts and claim up to ``wanted`` tasks in one go; return the claims and what was lost."""
        ...

    async def held(self) -> list[Claim]:
        """Return what the worker holds by the store's account."""
        ...

    async def finished(self, claims: Sequence[Claim]) -> set[int]:
        """Return those of the tasks whose attempts have completed by other means."""
        ...

    def drop(self) -> None:
        """Give it up at once."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


class Pulses(Protocol):
    """The way by which a worker says that it lives; used in a thread of its own, and made there."""

    async def beat(self, *, busy: bool, completed: int, failed: int, is_blocked: bool) -> Pulse | None:
        """Extend the lease of the worker; None when it is lost."""
        ...

    def drop(self) -> None:
        """Give the way up, so that the next beat takes another."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


class Answering(Protocol):
    """What does what handlers ask for."""

    @property
    def lending(self) -> Lending:
        """The keys that attempts have lent."""
        ...

    async def answer(self, fence: Fence, verb: str, arguments: dict[str, Any], is_over: Callable[[], bool]) -> Any:
        """Do what an attempt asks for; raises `LeaseLost` when the task is not its own any more."""
        ...

    async def close(self) -> None:
        """End what goes on beside."""
        ...


class Cache(Protocol):
    """What finds outputs for attempts."""

    async def find(self, claim: Claim, keys: Keys, caching: Caching) -> tuple[str, Reuse] | None:
        """Return an output that serves, as it is kept, and whose it is."""
        ...


class Pool(Protocol):
    """Connections that are lent to handlers."""

    async def close(self) -> None:
        """End all of them."""
        ...


class Store(Protocol):
    """Where the tasks of a worker are kept.

    A worker has one id from `enter` to `leave`; everything between is done in its name. ``has_database`` says whether
    a handler may complete its task in a transaction of its own.
    """

    has_database: bool

    @property
    def settings(self) -> Settings:
        """The settings by which the worker works."""
        ...

    async def enter(
        self, queue_names: Sequence[str], handlers: list[str], concurrency: int, version: str, codes: Mapping[str, str]
    ) -> tuple[int, list[int]]:
        """Register the worker; return its id and the ids of its queues."""
        ...

    async def leave(self, completed: int, failed: int) -> set[int]:
        """Take the worker's name out and give back all it holds; return the queues that others should hear of."""
        ...

    async def abandon(self) -> None:
        """Let the lease lapse: what the worker runs is lost."""
        ...

    async def settle(self, outcomes: Sequence[Postponed | Ended], *, patience: str = "1s") -> set[int]:
        """Write outcomes that are no successes; return the tasks for which that landed."""
        ...

    async def complete_one(self, outcome: Completed, *, patience: str) -> list[int]:
        """Complete one attempt apart from others; return it when it was lost."""
        ...

    async def set_aside(self, outcome: Completed | Postponed | Ended) -> set[int]:
        """Set an attempt aside of which no outcome can be written."""
        ...

    async def make_partitions(self) -> None:
        """Make the partitions that a write has missed."""
        ...

    async def hand_back(self, leases: Sequence[tuple[int, int]]) -> set[int]:
        """Give back what has not begun; return the queues that others should hear of."""
        ...

    async def extend_expiry(self, claim: Claim) -> bool:
        """Say that an attempt goes on; False when the lease is lost."""
        ...

    async def decline(self, claim: Claim, advice: str) -> timedelta | None:
        """Leave a task to workers that know its handler, and return when it comes back; None when it has failed."""
        ...

    def blobs_of(self, claim: Claim) -> Blobs:
        """Return where large values of a task are kept."""
        ...

    def line(self, on_message: Callable[[str], None]) -> Line:
        """Return the way by which the worker claims and completes."""
        ...

    def pulses(self) -> Pulses:
        """Return the way by which the worker says that it lives."""
        ...

    def slots(self, on_change: Callable[[], None]) -> Slots:
        """Return the worker's share of limited queues."""
        ...

    def relay(self) -> Relay:
        """Return what passes hints on to others."""
        ...

    def upkeep(self, has_settled: Callable[[], bool]) -> Upkeep:
        """Return the services that run while the worker leads."""
        ...

    def logs(self) -> LogKeeping:
        """Return what keeps logs where others can read them."""
        ...

    def answers(self) -> Answering:
        """Return what does what handlers ask for."""
        ...

    def cache(self) -> Cache:
        """Return what finds outputs."""
        ...

    def pool(self) -> Pool:
        """Return the connections that handlers may use."""
        ...

    def expire(self) -> None:
        """Give up connections that may lead nowhere."""
        ...

    async def close(self) -> None:
        """End what the store has opened by itself."""
        ...
