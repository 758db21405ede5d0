"""Random graphs of tasks and nested groups, and what a plain program says becomes of each task."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from job_oracle import COMPLETED, FAILED, POISONED
from weft.jobs.items import Group, Item, Task

ONCE = 1


@dataclass
class Drawn:
    """A task, or a group with what is in it; from ``start`` to ``end`` are the places of all that belongs to it."""

    name: str
    start: int
    end: int = 0
    above: Drawn | None = None
    is_group: bool = False
    ok: bool = True
    lenient: bool = False
    is_late: bool = False
    before: list[Drawn] = field(default_factory=list)
    members: list[Drawn] = field(default_factory=list)

    def tasks(self) -> list[Drawn]:
        """Return the tasks in it, or itself."""
        return [task for member in self.members for task in member.tasks()] if self.is_group else [self]

    @property
    def all_before(self) -> list[Drawn]:
        """All that comes before it, and before the groups that it is in."""
        return [*self.before, *(self.above.all_before if self.above is not None else [])]


@dataclass
class Graph:
    """All that was drawn, in an order in which it may run."""

    seed: int
    drawn: list[Drawn]
    items: dict[str, Item]

    @property
    def tasks(self) -> list[Drawn]:
        """The tasks."""
        return [each for each in self.drawn if not each.is_group]

    def expected(self) -> dict[str, str]:
        """Return what becomes of each task when independent ones are finished."""
        found: dict[str, str] = {}
        for each in self.drawn:
            spoiled = any(self._is_spoiled(before, found) for before in each.all_before)
            found[each.name] = POISONED if spoiled else COMPLETED if each.ok else FAILED
        return found

    def _is_spoiled(self, before: Drawn, found: dict[str, str]) -> bool:
        if found[before.name] == POISONED:
            return True
        if before.is_group:
            return any(self._is_spoiled(member, found) for member in before.members)
        return found[before.name] == FAILED and not before.lenient

    @property
    def fails(self) -> bool:
        """Whether a job of it fails."""
        expected = self.expected()
        return any(expected[task.name] == FAILED and not task.lenient for task in self.tasks)

    def disorder(self, log: list[tuple[str, str]]) -> list[str]:
        """Return which tasks began before one had ended that comes before them; ``log`` is what happened, in order."""
        begun = {name: place for place, (what, name) in enumerate(log) if what == "begun"}
        over = {name: place for place, (what, name) in enumerate(log) if what == "ended"}
        return [
            f"seed {self.seed}: {task.name} began before {earlier.name} had ended"
            for task in self.tasks
            if task.name in begun
            for before in task.all_before
            for earlier in before.tasks()
            if over.get(earlier.name, len(log)) > begun[task.name]
        ]


def draw(seed: int, failing: float = 0.1, late: float = 0.0) -> Graph:
    """Draw up to thirty tasks in groups of any depth; some of them, and all in them, ``late``."""
    chance = random.Random(seed)
    drawn: list[Drawn] = []
    clock = iter(range(10**9))

    def some(above: Drawn | None, depth: int, is_late: bool) -> list[Drawn]:
        made = []
        for _ in range(chance.randint(0 if above else 1, 5)):
            if len(drawn) > 30:
                break
            each = Drawn(f"n{len(drawn)}", next(clock), above=above, is_late=is_late or chance.random() < late)
            each.is_group = depth < 5 and chance.random() < 0.35
            drawn.append(each)
            if each.is_group:
                each.members = some(each, depth + 1, each.is_late)
            else:
                each.ok, each.lenient = chance.random() >= failing, chance.random() < 0.3
            each.end = next(clock)
            made.append(each)
        return made

    some(None, 0, False)
    for each in drawn:
        earlier = [other for other in drawn if other.end and other.end < each.start]
        for before in chance.sample(earlier, min(len(earlier), chance.choice((0, 1, 1, 2, 3)))):
            # What is there does not wait for what comes later: it may have begun.
            if each.is_late or not before.is_late:
                each.before.append(before)
    return Graph(seed, drawn, _items(drawn))


def _items(drawn: list[Drawn]) -> dict[str, Item]:
    found: dict[str, Item] = {}
    for each in drawn:
        above = found.get(each.above.name) if each.above is not None else None
        # A group brings along what is in it: what is late joins it later.
        group = above if isinstance(above, Group) and not each.is_late else None
        if each.is_group:
            found[each.name] = Group(each.name, group=group)
        else:
            found[each.name] = Task(
                "act", {"name": each.name, "ok": each.ok}, name=each.name, group=group, max_attempts=ONCE,
                allow_failure=each.lenient,
            )  # fmt: skip
    for each in drawn:
        found[each.name].depends_on([found[before.name] for before in each.before])
    return found


def join(graph: Graph, each: Drawn) -> None:
    """Put what is late into its group."""
    above = graph.items[each.above.name] if each.above is not None else None
    if isinstance(above, Group):
        above.add(graph.items[each.name])
