"""Makes a document of composed steps: what one takes of another decides what leads to what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.sdk.authoring.places import Place, cannot_compile
from weft.sdk.authoring.steps import Branch, GroupLinks, Scope, Step

START, END = "START", "END"


class Assembly:
    """The graph of a composed workflow.

    A step leads to those that take something of it. What is in a branch is begun by the branch alone: whatever it takes
    from outside, the conditional waits for. So it is skipped when the branch is not taken, and never by half.
    """

    def __init__(self, steps: Mapping[str, Step], groups: Mapping[str, GroupLinks]) -> None:
        self._steps = steps
        self._groups = groups
        self._next: dict[str, dict[str, None]] = {name: {} for name in steps}
        self._branches: dict[Branch, dict[str, None]] = {}
        self._previous: dict[str, dict[str, None]] = {name: {} for name in steps}
        # What comes after a group, and the groups that come after something.
        self._after_groups = {target for links in groups.values() for target in links.before}
        for step in steps.values():
            for need in step.needs:
                self._lead(self._known(need, step.place), step)
        for name, links in groups.items():
            self._check_links(name, links)
            for before in links.after:
                if before in self._next:
                    self._next[before][name] = None
        for step in steps.values():
            self._enter(step)

    def nodes(self, output: Any) -> dict[str, dict[str, Any]]:
        """Return the nodes of the document, from the start to the end, which gives ``output``."""
        firsts = [name for name, before in self._previous.items() if not before and not self._is_led_to(name)]
        found: dict[str, dict[str, Any]] = {START: {"type": "start", "next": _one_or_all(firsts or [END])}}
        for step in self._steps.values():
            found[step.name] = dict(self._node(step))
        found[END] = {"type": "end"} if output is None else {"type": "end", "output": output}
        return found

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return what comes after groups."""
        return {name: {"next": _one_or_all(list(links.before))} for name, links in self._groups.items() if links.before}

    def _node(self, step: Step) -> Iterator[tuple[str, Any]]:
        yield from step.entry.items()
        if step.group is not None:
            yield "group", step.group
        if step.is_conditional:
            ways = [self._branches.get(Branch(step.name, number), {}) for number in (0, 1)]
            conditions = step.entry["branches"]
            yield (
                "branches",
                [
                    {**entry, "next": _one_or_all(list(way) or [END])}
                    for entry, way in zip(conditions, ways, strict=True)
                ],
            )
        elif self._next[step.name]:
            yield "next", _one_or_all(list(self._next[step.name]))
        elif not self._leads_on_by_group(step):
            yield "next", END

    def _known(self, name: str, place: Place) -> Step:
        if name not in self._steps:
            raise cannot_compile(f"the output of {name!r} is of another workflow: give it as an input", place)
        return self._steps[name]

    def _lead(self, before: Step, after: Step) -> None:
        shared = _shared(before.scope, after.scope)
        if len(after.scope) > shared:
            if len(before.scope) > shared and before.scope[shared].conditional == after.scope[shared].conditional:
                raise cannot_compile(
                    f"{after.name!r} takes the output of {before.name!r}, which is in the other branch: only one of "
                    "them runs",
                    after.place,
                )
            after = self._steps[after.scope[shared].conditional]
        if after.name == before.name:
            return
        self._previous[after.name][before.name] = None
        if before.is_conditional:
            for number in (0, 1):
                self._branches.setdefault(Branch(before.name, number), {})[after.name] = None
        else:
            self._next[before.name][after.name] = None

    def _enter(self, step: Step) -> None:
        """Let a step be begun by its branch, unless something else in the branch leads to it."""
        if not step.scope or self._is_led_to(step.name):
            return
        depth = len(step.scope)
        inside = (self._steps[name].scope[:depth] == step.scope for name in self._previous[step.name])
        if not any(inside):
            self._branches.setdefault(step.scope[-1], {})[step.name] = None
            self._previous[step.name][step.scope[-1].conditional] = None

    def _is_led_to(self, name: str) -> bool:
        groups = [self._groups[group] for group in _paths(self._steps[name].group) if group in self._groups]
        return name in self._after_groups or any(links.after for links in groups)

    def _leads_on_by_group(self, step: Step) -> bool:
        return any(self._groups[group].before for group in _paths(step.group) if group in self._groups)

    def _check_links(self, name: str, links: GroupLinks) -> None:
        for other in (*links.after, *links.before):
            scope = self._groups[other].scope if other in self._groups else self._known(other, links.place).scope
            if scope != links.scope:
                raise cannot_compile(f"the group {name!r} and {other!r} are not in the same branch", links.place)


def _shared(first: Scope, second: Scope) -> int:
    """Return how many branches two steps are both in."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _paths(group: str | None) -> list[str]:
    parts = [] if group is None else group.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _one_or_all(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names
