"""The history of definitions against a model in plain Python: any sequence of verbs must leave both the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import hypothesis.strategies as st
import pytest
from history_choices import (
    DEPTH,
    EXPECTATIONS,
    FORCES,
    KINDS,
    NAMES,
    PREFERENCES,
    SIZES,
    STEPS,
    Change,
    is_rare,
    op_of,
    written,
)
from history_model import Model, Refused, Version
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import weft
from history_laws import broken_laws
from reset import RESET

T = TypeVar("T")
picks = st.integers(0, 255)
names = st.sampled_from(NAMES)
forces = st.sampled_from(FORCES)
preferences = st.sampled_from(PREFERENCES)
expectations = st.sampled_from(EXPECTATIONS)
documents = st.fixed_dictionaries(
    {name: st.sampled_from(SIZES) for name in STEPS},
    optional={"description": st.sampled_from(["one", "two"])},
)
changes = st.lists(st.tuples(st.sampled_from(KINDS), picks, picks, picks), min_size=1, max_size=2)


class History(RuleBasedStateMachine):
    """Verbs on several tags of one workflow in any order, each checked for its answer and what it left behind."""

    runner: asyncio.Runner
    conn: asyncpg.Connection[asyncpg.Record]
    settings: weft.Settings

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(DEPTH)
        self.ids: dict[Version, int] = {}
        self.moved_at: dict[str, list[datetime]] = {name: [] for name in NAMES}
        self.do(self.conn.execute(RESET))
        self.client = self.do(weft.Client(settings=self.settings).__aenter__())

    def do(self, call: Awaitable[T]) -> T:
        return self.runner.get_loop().run_until_complete(call)

    @property
    def workflows(self) -> Any:
        return self.client.workflows

    def teardown(self) -> None:
        try:
            self.no_version_has_changed()
            for name in NAMES:
                self.walk_back_and_forth(name)
        finally:
            self.close()

    def close(self) -> None:
        self.do(self.client.__aexit__(None, None, None))

    # --- both at once ---

    def both(self, name: str, modelled: Callable[[], Any], call: Callable[[], Awaitable[Any]]) -> None:
        """Let the model and the product do the same; both change the same, or both refuse for the same reason."""
        before = {each: tag.version for each, tag in self.model.tags.items()}
        wanted = found = refusal = problem = None
        try:
            wanted = modelled()
        except Refused as refused:
            refusal = refused
        try:
            found = self.do(call())
        except weft.WeftError as raised:
            problem = raised
        if refusal is not None:
            assert type(problem).__name__ == refusal.error, f"{name}: {problem!r} {found!r}"
            assert conflicts_of(problem) == refusal.conflicts
            return
        assert problem is None, f"{name}: the model has no reason for {problem!r}"
        if isinstance(found, weft.Pushed):
            assert found.created is wanted
        self._learn(name, before.get(name, 0))
        if isinstance(found, weft.Pushed):
            assert (found.artifact_id, found.tag_version) == (
                self.ids[self.model.tags[name].target],
                self.model.tags[name].version,
            )

    def _learn(self, name: str, known: int) -> None:
        """Hold the moves that came against the model's, and learn the ids of new versions."""
        wanted = self.model.tags[name].moves[known:]
        found = self.do(self.workflows.moves(name, limit=len(wanted) + 1))
        new = [move for move in reversed(found) if move.version > known]
        assert [move.verb for move in new] == [move.verb for move in wanted]
        for mine, theirs in zip(new, wanted, strict=True):
            self.moved_at[name].append(mine.moved_at)
            assert (mine.to_id is None) == (theirs.to is None)
            if theirs.to is not None:
                assert self.ids.setdefault(theirs.to, mine.to_id) == mine.to_id
        assert len(set(self.ids.values())) == len(self.ids), "two versions have one id"

    def _expect(self, name: str, how: str | None) -> int | None:
        tag = self.model.tags.get(name)
        right = 0 if tag is None or tag.is_deleted else tag.version
        wrong = 1 if tag is None else tag.version + 1
        return {None: None, "right": right, "wrong": wrong}[how]

    @property
    def live(self) -> list[str]:
        return [name for name, tag in self.model.tags.items() if not tag.is_deleted]

    def _tag(self, pick: int) -> str:
        """A tag that is there, but for one time in eight."""
        live = self.live
        return NAMES[pick % len(NAMES)] if is_rare(pick) or not live else live[pick % len(live)]

    def _other(self, pick: int, source: int) -> str:
        """A tag to merge into the one of a pick: mostly another, which stands elsewhere."""
        name = self._tag(pick)
        mine = self.model.tags.get(name)
        others = [each for each in self.live if mine is None or self.model.tags[each].target is not mine.target]
        return self._tag(source) if is_rare(source) or not others else others[source % len(others)]

    def _version(self, pick: int) -> Version:
        known = list(self.ids)
        return known[pick % len(known)]

    # --- rules ---

    @initialize()
    def begin(self) -> None:
        self.push("etl/main", {"a": 1, "b": 1}, None, False)
        self.branch(1, 0, is_tag=True)

    @rule(name=names, sizes=documents, how=expectations, force=forces)
    def push(self, name: str, sizes: dict[str, Any], how: str | None, force: bool) -> None:
        """Every third time what is there already, its keys in another order: no move."""
        document, expect = written(sizes), self._expect(name, how)
        if name in self.live and sizes["a"] is sizes["b"]:
            there = self.model.tags[name].target.document
            document = {key: there[key] for key in reversed(there)}
        self.both(
            name,
            lambda: self.model.push(name, document, expect=expect, force=force),
            lambda: self.workflows.push(document, tag=name, expect=expect, force=force),
        )

    @rule(picked=st.lists(picks, min_size=1, max_size=2), wanted=st.lists(changes, min_size=1, max_size=5))
    def patch_again_and_again(self, picked: list[int], wanted: list[list[Change]]) -> None:
        for n, each in enumerate(wanted):
            self.patch(picked[n % len(picked)], each, None, True)

    @rule(pick=picks, wanted=changes, how=expectations, force=forces)
    def patch(self, pick: int, wanted: list[Change], how: str | None, force: bool) -> None:
        self._patch(self._tag(pick), wanted, how, force)

    def _patch(self, name: str, wanted: list[Change], how: str | None, force: bool) -> None:
        expect = self._expect(name, how)
        tag = self.model.tags.get(name)
        document = written({"a": 1}) if tag is None else tag.target.document
        ops = [op_of(document, *each) for each in wanted]
        self.both(
            name,
            lambda: self.model.patch(name, ops, expect=expect, force=force),
            lambda: self.workflows.patch(name, ops, expect=expect, force=force),
        )

    @rule(
        pick=picks,
        verb=st.sampled_from(["undo", "redo"]),
        steps=st.integers(1, 4),
        how=expectations,
        force=forces,
    )
    def undo_or_redo(self, pick: int, verb: str, steps: int, how: str | None, force: bool) -> None:
        self._walk(verb, self._tag(pick), steps, how, force)

    def _walk(self, verb: str, name: str, steps: int, how: str | None, force: bool) -> None:
        expect = self._expect(name, how)
        self.both(
            name,
            lambda: getattr(self.model, verb)(name, steps, expect=expect, force=force),
            lambda: getattr(self.workflows, verb)(name, steps, expect=expect, force=force),
        )

    @rule(pick=picks, back=st.integers(1, 5), forth=st.integers(1, 5), is_away=st.booleans())
    def change_ones_mind(self, pick: int, back: int, forth: int, is_away: bool) -> None:
        """Undo and redo, maybe of a tag that was deleted in between."""
        name = self._tag(pick)
        self._walk("undo", name, back, None, True)
        if is_away:
            self.both(
                name, lambda: self.model.delete(name, force=True), lambda: self.workflows.delete(name, force=True)
            )
            self.both(name, lambda: self.model.undelete(name), lambda: self.workflows.undelete(name))
        self._walk("redo", name, forth, None, True)

    @precondition(lambda self: len(self.live) < len(NAMES))
    @rule(new=picks, source=picks, is_tag=st.booleans())
    def branch(self, new: int, source: int, is_tag: bool) -> None:
        """From where a tag is, or from any version that ever was."""
        name = NAMES[new % len(NAMES)]
        to: Any = self._tag(source) if is_tag else self._version(source)
        self.both(
            name,
            lambda: self.model.branch(name, to),
            lambda: self.workflows.branch(name, self.ids.get(to, to)),
        )

    @rule(name=names, source=picks, is_tag=st.booleans(), how=expectations, force=forces)
    def move(self, name: str, source: int, is_tag: bool, how: str | None, force: bool) -> None:
        to: Any = self._tag(source) if is_tag else self._version(source)
        expect = self._expect(name, how)
        self.both(
            name,
            lambda: self.model.move(name, to, expect=expect, force=force),
            lambda: self.workflows.move(name, self.ids.get(to, to), expect=expect, force=force),
        )

    @rule(into=picks, source=picks, prefer=preferences, force=forces)
    def merge(self, into: int, source: int, prefer: str | None, force: bool) -> None:
        self._merge(self._other(into, source), self._tag(into), prefer, force)

    def _merge(self, other: Any, name: str, prefer: str | None, force: bool) -> None:
        self.both(
            name,
            lambda: self.model.merge(other, name, prefer=prefer, force=force),
            lambda: self.workflows.merge(self.ids.get(other, other), name, prefer=prefer, force=force),
        )

    @rule(into=picks, source=picks, rounds=st.lists(st.tuples(changes, changes), min_size=2, max_size=3))
    def merge_crosswise(self, into: int, source: int, rounds: list[tuple[list[Change], list[Change]]]) -> None:
        """As two do who merge each other's line at once: both lines have parted at two places then."""
        name, other = self._tag(into), self._other(into, source)
        for ours, theirs in rounds:
            self._patch(name, ours, None, True)
            self._patch(other, theirs, None, True)
            was = self.model.tags.get(name)
            before = None if was is None or was.is_deleted else was.target
            self._merge(other, name, None, True)
            if before is not None:
                self._merge(before, other, None, True)

    @rule(into=picks, source=picks, rounds=st.lists(st.tuples(changes, changes), min_size=1, max_size=3))
    def change_both_sides_and_merge(
        self, into: int, source: int, rounds: list[tuple[list[Change], list[Change]]]
    ) -> None:
        """Again and again, so that two lines that have come together part again."""
        name, other = self._tag(into), self._other(into, source)
        for number, (ours, theirs) in enumerate(rounds):
            self._patch(name, ours, None, True)
            self._patch(other, theirs, None, True)
            self._merge(other, name, "theirs" if number == 0 and is_rare(source) else None, True)

    @rule(pick=picks, change=picks, prefer=preferences, force=forces)
    def revert(self, pick: int, change: int, prefer: str | None, force: bool) -> None:
        name, version = self._tag(pick), self._version(change)
        changed = [each for each in self.ids if each.parent is not None]
        if changed and not is_rare(change):
            version = changed[-1 - change % len(changed)]
        self.both(
            name,
            lambda: self.model.revert(name, version, prefer=prefer, force=force),
            lambda: self.workflows.revert(name, self.ids[version], prefer=prefer, force=force),
        )

    @precondition(lambda self: any(self.model.tags[name].target.depth for name in self.live))
    @rule(pick=picks)
    def compact(self, pick: int) -> None:
        name = self._tag(pick)
        self.both(name, lambda: self.model.compact(name), lambda: self.workflows.compact(name))

    @rule(pick=picks, force=forces, act=st.sampled_from(["protect", "free", "free", "delete", "undelete", "undelete"]))
    def guard_delete_or_undelete(self, pick: int, force: bool, act: str) -> None:
        name = self._tag(pick)
        if act == "undelete":
            gone = [each.name for each in self.model.tags.values() if each.is_deleted]
            name = gone[pick % len(gone)] if gone and not is_rare(pick) else name
            self.both(name, lambda: self.model.undelete(name), lambda: self.workflows.undelete(name))
        elif act == "delete":
            self.both(
                name, lambda: self.model.delete(name, force=force), lambda: self.workflows.delete(name, force=force)
            )
        else:
            on = act == "protect"
            self.both(name, lambda: self.model.protect(name, on), lambda: self.workflows.protect(name, on))

    @precondition(lambda self: self.live)
    @rule(pick=picks, moment=picks)
    def show_at_a_past_moment(self, pick: int, moment: int) -> None:
        name = self.live[pick % len(self.live)]
        moments, moves = self.moved_at[name], self.model.tags[name].moves
        at = moments[moment % len(moments)]
        then = [move.to for move, moved_at in zip(moves, moments, strict=True) if moved_at <= at][-1]
        if then is None:  # it was deleted then
            try:
                found = self.do(self.workflows.show(name, at=at))
            except weft.NotFound:
                return
            raise AssertionError(f"{name} was deleted at {at}, and is shown as {found}")
        shown = self.do(self.workflows.show(name, at=at))
        assert (shown.artifact_id, dict(shown.data)) == (self.ids[then], then.document)

    # --- what must hold after each ---

    @invariant()
    def the_tags_are_as_the_model_says(self) -> None:
        found = {
            tag.name: (tag.target_id, tag.version, tag.is_protected, tag.deleted_at is not None)
            for tag in self.do(self.workflows.list(with_deleted=True))
        }
        assert found == {
            name: (self.ids[tag.target], tag.version, tag.is_protected, tag.is_deleted)
            for name, tag in self.model.tags.items()
        }

    @invariant()
    def the_documents_are_as_the_model_says(self) -> None:
        for name in self.live:
            wanted = self.model.tags[name]
            shown = self.do(self.workflows.show(name))
            assert dict(shown.data) == wanted.target.document
            assert repr_of(shown.data) == repr_of(wanted.target.document)
            assert (shown.depth, shown.tag_version) == (wanted.target.depth, wanted.version)

    @invariant()
    def the_rows_alone_make_sense(self) -> None:
        assert self.do(broken_laws(self.conn, DEPTH)) == []

    # --- what must hold in the end ---

    def no_version_has_changed(self) -> None:
        for version, id in self.ids.items():
            shown = self.do(self.workflows.show(id))
            assert repr_of(shown.data) == repr_of(version.document)

    def walk_back_and_forth(self, name: str) -> None:
        """Take back every step of a tag, and make it again, with a look at each."""
        tag = self.model.tags.get(name)
        if tag is None or tag.is_deleted:
            return
        for verb, is_possible in (("redo", "can_redo"), ("undo", "can_undo"), ("redo", "can_redo")):
            while getattr(tag, is_possible):
                getattr(self.model, verb)(name, 1, force=True)
                self.do(getattr(self.workflows, verb)(name, force=True))
                assert repr_of(self.do(self.workflows.show(name)).data) == repr_of(tag.target.document)
            self._walk(verb, name, 1, None, True)
        assert self.do(broken_laws(self.conn, DEPTH)) == []


class Chance:
    """Drives the same machine by chance: longer sequences, and no rule more often than it is meant to be tried."""

    def __init__(self, machine: History, draw: random.Random) -> None:
        self._machine = machine
        self._draw = draw

    def act(self) -> None:
        """Do something."""
        machine, draw, pick = self._machine, self._draw, self._pick
        name, force, how = draw.choice(NAMES), draw.choice(FORCES), draw.choice(EXPECTATIONS)
        prefer, is_tag, steps = draw.choice(PREFERENCES), draw.random() < 0.5, draw.randrange(1, 5)
        acts: list[tuple[int, Callable[[], None]]] = [
            (30, lambda: machine.patch(pick(), self._changes(), how, force)),
            (15, lambda: machine.merge(pick(), pick(), prefer, force)),
            (
                3,
                lambda: machine.merge_crosswise(pick(), pick(), [(self._changes(), self._changes()) for _ in range(2)]),
            ),
            (15, lambda: machine.undo_or_redo(pick(), "undo", steps, how, force)),
            (15, lambda: machine.undo_or_redo(pick(), "redo", steps, how, force)),
            (10, lambda: machine.revert(pick(), pick(), prefer, force)),
            (8, lambda: machine.push(name, {step: draw.choice(SIZES) for step in STEPS}, how, force)),
            (8, lambda: machine.branch(pick(), pick(), is_tag)),
            (5, lambda: machine.move(name, pick(), is_tag, how, force)),
            (5, lambda: machine.compact(pick())),
            (5, lambda: machine.guard_delete_or_undelete(pick(), force, draw.choice(["protect", "free", "free"]))),
            (4, lambda: machine.guard_delete_or_undelete(pick(), force, "delete")),
            (4, lambda: machine.guard_delete_or_undelete(pick(), force, "undelete")),
            (5, lambda: machine.show_at_a_past_moment(pick(), pick()) if machine.live else None),
        ]
        draw.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
        machine.the_tags_are_as_the_model_says()
        machine.the_documents_are_as_the_model_says()
        machine.the_rows_alone_make_sense()

    def _pick(self) -> int:
        return self._draw.randrange(256)

    def _changes(self) -> list[Change]:
        count = self._draw.choice((1, 1, 2))
        return [(self._draw.choice(KINDS), self._pick(), self._pick(), self._pick()) for _ in range(count)]


def conflicts_of(problem: Any) -> set[tuple[str | None, tuple[str, ...]]] | None:
    """The nodes and places at which a merge was refused; None, if it is no such refusal."""
    if not isinstance(problem, weft.MergeConflict):
        return None
    told: Any = problem.conflicts
    return {(conflict.node, conflict.path) for conflict in told}


def repr_of(document: Any) -> list[Any]:
    """A document in which 1, 1.0 and true differ, whatever the order of its keys."""
    if isinstance(document, dict):
        return [[key, repr_of(value)] for key, value in sorted(document.items())]
    return [repr(document)]


@pytest.fixture
def machine(shared_database: str, tmp_path: Path) -> Iterator[type[History]]:
    """The machine on the database that small tests share."""
    with asyncio.Runner() as runner:
        History.runner = runner
        History.conn = runner.run(asyncpg.connect(shared_database))
        History.settings = weft.Settings.load(
            environ={}, database_url=shared_database, home=tmp_path, compaction_depth=DEPTH
        )
        yield History
        runner.run(History.conn.close())


def test_any_sequence_of_verbs_leaves_the_history_as_the_model_says(machine: type[History], campaign: str) -> None:
    examples, steps = (300, 100) if campaign == "long" else (12, 30)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.long
def test_long_sequences_of_verbs_leave_the_history_as_the_model_says(machine: type[History], campaign: str) -> None:
    seeds, acts = (500, 300) if campaign == "long" else (4, 150)
    for seed in range(seeds):
        history = machine()
        try:
            history.begin()
            chance = Chance(history, random.Random(seed))
            for _ in range(acts):
                chance.act()
        except BaseException as problem:
            problem.add_note(f"with seed {seed}")
            history.close()
            raise
        history.teardown()
