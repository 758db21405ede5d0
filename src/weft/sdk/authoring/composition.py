"""Composes a workflow while its function runs: each call of a task becomes a step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.sdk.authoring.execution import execution_of
from weft.sdk.authoring.places import cannot_compile, here
from weft.sdk.authoring.steps import Branch, GroupLinks, Scope, Step
from weft.sdk.authoring.symbols import Symbol, comparison_of, needs_of, template, text_of
from weft.worker.composing import COMPOSER, NodeOptions
from weft.worker.registry import AnyHandler, Handler

_RESERVED = ("START", "END")


class Composition:
    """The steps that a workflow's function has made so far."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self.groups: dict[str, GroupLinks] = {}
        # The workflows that are nodes of this one, by their names.
        self.uses: dict[str, Any] = {}
        self._scope: Scope = ()
        self._group: str | None = None
        self._values: list[Symbol] = []

    # What `weft.worker.composing.Composer` asks for.

    def call(self, called: Any, options: NodeOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symbol:
        """Make a node of a call; return what stands for its output."""
        if options.max_parallel is not None:
            raise cannot_compile("max_parallel is for map: one call is one task")
        if not isinstance(called, Handler):
            return self._call_workflow(called, options, args, kwargs)
        params, needs = template(_bound(called, args, kwargs))
        entry = {"type": "task", **_task(called, options, params)}
        return self._output(self._ordered(self.add(_base(called), entry, needs, options.node), options))

    def map(self, called: Any, options: NodeOptions, items: Any, shared: dict[str, Any], *, spread: bool) -> Symbol:
        """Make a task for each item; return what stands for the list of their outputs."""
        if not isinstance(called, Handler):
            raise cannot_compile("map is for tasks: a workflow cannot be a fan-out's task, so call it from a task")
        if not isinstance(items, (Symbol, list, tuple)):
            raise cannot_compile(f"the items must be a list or a value of the job, not a {type(items).__name__}")
        listed, item_needs = template(items if isinstance(items, Symbol) else list(items))
        given, needs = _each(called, items, shared, spread=spread)
        task = _task(called, options, given)
        entry: dict[str, Any] = {"type": "fan_out", "items": listed, "task": task}
        if options.max_parallel is not None:
            entry["max_parallel"] = options.max_parallel
        all_needs = tuple(dict.fromkeys((*item_needs, *needs)))
        out = self._ordered(self.add(_base(called), entry, all_needs, options.node), options)
        collected = self.add(f"{out.name}_results", {"type": "fan_in"}, (out.name,))
        return Symbol(f"{_path(collected.name)}.results", (collected.name,), is_atom=True)

    def order(self, before: Any, after: Any) -> None:
        """Let some nodes wait for others, though they take nothing of them."""
        sources, targets = list(_ends(before)), list(_ends(after))
        for target in targets:
            for source in sources:
                self._order(source, target)

    def write(self, value: Any) -> int:
        """Note a value that is written into a text; return its number."""
        self._values.append(value)
        return len(self._values) - 1

    def written(self, number: int) -> Symbol:
        """Return the value of that number."""
        if number >= len(self._values):
            raise cannot_compile("a text with a value of another workflow in it")
        return self._values[number]

    # What the other words of a workflow ask for.

    def add(self, base: str, entry: dict[str, Any], needs: Sequence[str], name: str | None = None) -> Step:
        """Add a node, by the name that is chosen for it, or by a base and a number when that is taken."""
        place = here()
        if name is not None and (name in self.steps or name in _RESERVED):
            why = "is what Weft calls its first and last" if name in _RESERVED else f"is at {self.steps[name].place}"
            raise cannot_compile(f"there cannot be a node {name!r}: one of that name {why}")
        step = Step(name or self._free(base), entry, dict.fromkeys(needs), self._scope, place, self._group)
        self.steps[step.name] = step
        return step

    def wait(self, base: str, entry: dict[str, Any], needs: Sequence[str], name: str | None) -> Symbol:
        """Add a node that waits for a person or an event."""
        return self._output(self.add(base, entry, needs, name))

    def decide(self, condition: Symbol, name: str | None) -> str:
        """Add a conditional with two branches; return its name."""
        entry: dict[str, Any] = {"type": "conditional"}
        if (compared := comparison_of(condition)) is not None:
            entry["condition_field"], told = f"{{{{ {compared[0]} }}}}", compared[1]
        else:
            told = f"{{{{ {text_of(condition)} }}}}"
        entry["branches"] = [{"condition": told}, {"default": True}]
        return self.add("when", entry, needs_of(condition), name).name

    @contextmanager
    def within(self, branch: Branch) -> Iterator[None]:
        """Let what is added meanwhile be in a branch."""
        outer = self._scope
        if outer != self.steps[branch.conditional].scope:
            raise cannot_compile("this branch belongs to a condition that was made elsewhere")
        self._scope = (*outer, branch)
        try:
            yield
        finally:
            self._scope = outer

    @contextmanager
    def grouped(self, name: str) -> Iterator[str]:
        """Let what is added meanwhile be in a group."""
        outer = self._group
        path = name if outer is None else f"{outer}/{name}"
        self.groups.setdefault(path, GroupLinks(self._scope, here()))
        self._group = path
        try:
            yield path
        finally:
            self._group = outer

    def _call_workflow(
        self, called: Any, options: NodeOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Symbol:
        bound = _bind(called.signature, called.workflow_id, args, kwargs)
        inputs, needs = template(bound)
        entry = {"type": "workflow", "workflow": called.workflow_id, **({"inputs": inputs} if inputs else {})}
        entry |= execution_of(options, ("timeout_seconds", "allow_failure"), "a workflow as a node")
        known = self.uses.setdefault(called.workflow_id, called)
        if known is not called:
            raise cannot_compile(f"there are two workflows {called.workflow_id!r}: name one otherwise")
        base = called.workflow_id.rpartition("/")[2].replace(".", "_")
        return self._output(self._ordered(self.add(base, entry, needs, options.node), options))

    def _ordered(self, step: Step, options: NodeOptions) -> Step:
        if options.after is not None:
            self.order(options.after, self._output(step))
        return step

    def _order(self, source: str | Symbol, target: str | Symbol) -> None:
        befores = [source] if isinstance(source, str) else list(needs_of(source))
        afters = [target] if isinstance(target, str) else list(needs_of(target))
        if len(afters) != 1:
            raise cannot_compile("what comes after `>>` must be the output of one node, or a group")
        (after,) = afters
        if isinstance(source, str):
            self.groups[source].before[after] = None
        if isinstance(target, str):
            self.groups[target].after.update(dict.fromkeys(befores))
        elif not isinstance(source, str):
            self.steps[after].needs.update(dict.fromkeys(befores))

    def _free(self, base: str) -> str:
        count = 1
        while (name := base if count == 1 else f"{base}_{count}") in self.steps or name in _RESERVED:
            count += 1
        return name

    def _output(self, step: Step) -> Symbol:
        return Symbol(_path(step.name), (step.name,), is_atom=True)


class Group:
    """A group of a workflow, for `>>`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __rshift__(self, other: Any) -> Any:
        current().order(self, other)
        return other

    def __lshift__(self, other: Any) -> Any:
        current().order(other, self)
        return other

    def __rrshift__(self, other: Any) -> Group:
        current().order(other, self)
        return self


def current(word: str = "this") -> Composition:
    """Return the composition under way; raises where there is none."""
    composer = COMPOSER.get()
    if not isinstance(composer, Composition):
        raise cannot_compile(f"{word} is for the function of a @weft.workflow")
    return composer


def _ends(value: Any) -> Iterator[str | Symbol]:
    """Yield the nodes and groups that stand on a side of ``>>``."""
    if isinstance(value, Group):
        yield value.path
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _ends(each)
    elif isinstance(value, Symbol) and needs_of(value):
        yield value
    else:
        raise cannot_compile("on both sides of `>>` stand outputs of nodes, groups, or lists of these")


def _path(node: str) -> str:
    return f"nodes.{node}.output" if node.isidentifier() else f"nodes['{node}'].output"


def _base(handler: AnyHandler) -> str:
    name = str(handler.function.__name__)
    if name == "<lambda>":
        raise cannot_compile("a lambda has no name by which a worker finds it: define a function")
    return name


def _task(handler: AnyHandler, options: NodeOptions, params: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"handler": handler.name}
    if params:
        found["params"] = params
    if handler.queue != "default" and options.queue is None:
        found["queue"] = handler.queue
    return found | execution_of(options)


def _bound(handler: AnyHandler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return _bind(handler.arguments.signature, handler.name, args, kwargs)


def _bind(signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise cannot_compile(f"{name}{signature.replace(return_annotation=signature.empty)}: {problem}") from None
    found: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        if signature.parameters[key].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[key] = value
    return found


def _each(
    handler: AnyHandler, items: Any, shared: dict[str, Any], *, spread: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the params of a fan-out's task, and the nodes that they need."""
    signature = handler.arguments.signature
    free = [
        parameter for parameter in signature.parameters.values()
        if parameter.name not in shared and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]  # fmt: skip
    item = Symbol("item", is_atom=True)
    if not spread:
        if not free:
            raise cannot_compile(f"{handler.name}: no argument is left for the items")
        given = {free[0].name: item}
    else:
        count = sum(parameter.default is inspect.Parameter.empty for parameter in free)
        if not isinstance(items, Symbol):
            sizes = {len(each) if isinstance(each, (list, tuple)) else -1 for each in items}
            if -1 in sizes or len(sizes) > 1 or (sizes and max(sizes) > len(free)):
                raise cannot_compile(
                    f"each item of starmap must be a list of as many arguments of {handler.name} as the others"
                )
            count = max(sizes, default=count)
        given = {parameter.name: item[place] for place, parameter in enumerate(free[:count])}
    bound = _bind(signature, handler.name, (), {**given, **shared})
    return template(bound)


@contextmanager
def composing(composition: Composition) -> Iterator[None]:
    """Let calls of tasks be nodes of a composition meanwhile."""
    token = COMPOSER.set(composition)
    try:
        yield
    finally:
        COMPOSER.reset(token)
