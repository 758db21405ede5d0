"""A workflow that is written as a Python function, and the definition that it compiles to."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

from weft.core.errors import InvalidDefinition, InvalidInput
from weft.flow.document import Document
from weft.flow.model import WorkflowDefinition
from weft.flow.problems import Problem
from weft.flow.reading import sound
from weft.flow.validation import Checked, check_document
from weft.flow.writing import write_yaml
from weft.sdk.authoring.assembling import Assembly
from weft.sdk.authoring.composition import Composition, composing
from weft.sdk.authoring.execution import defaults_of, seconds
from weft.sdk.authoring.places import Place, cannot_compile, here, place_of
from weft.sdk.authoring.signatures import inputs_of
from weft.sdk.authoring.symbols import Symbol, template
from weft.worker.composing import COMPOSER, Composable, NodeOptions

P = ParamSpec("P")
R = TypeVar("R")

# What a function may close over: it is the same whenever the function is called.
_CONSTANT = (str, bytes, int, float, bool, type(None), tuple, frozenset, types.ModuleType, types.FunctionType, type)


@dataclass(frozen=True)
class _Compiled:
    """What became of the function: the document, and the workflows that are nodes of it."""

    data: dict[str, Any]
    uses: Mapping[str, Workflow[..., Any]]
    places: Mapping[str, Place]


class Workflow(Composable[P, R]):
    """A workflow written as a Python function; `weft.workflow` makes it.

    The function is called when the definition is first asked for, with what stands for the inputs: each task that it
    calls becomes a node. Example::

        print(pipeline.to_yaml())
        await client.workflows.push(pipeline.definition)
    """

    def __init__(self, function: Callable[P, R], head: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.workflow_id: str = head["workflow_id"]
        self._head = head

    @property
    def signature(self) -> inspect.Signature:
        """The arguments that are its inputs."""
        return inspect.signature(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """In another workflow, make a node of it; nowhere else."""
        composer = COMPOSER.get()
        if composer is None:
            raise InvalidInput(self.workflow_id, "is a workflow: execute it by weft.run, weft.submit or Client.jobs")
        return composer.call(self, NodeOptions(), args, dict(kwargs))  # type: ignore[no-any-return]

    @property
    def definition(self) -> WorkflowDefinition:
        """The definition that the function compiles to; raises `InvalidDefinition` with all that is wrong.

        Example::

            print(sorted(pipeline.definition.nodes))
        """
        return sound(self.checked)

    @property
    def document(self) -> dict[str, Any]:
        """The definition as plain data, as it is kept."""
        sound(self.checked)
        return self._compiled.data

    @property
    def version_hash(self) -> str:
        """The hash of what the definition means; of the same source it is always the same."""
        sound(self.checked)
        return self.checked.version_hash

    @property
    def uses(self) -> Mapping[str, Workflow[..., Any]]:
        """The workflows that are nodes of it, by their names."""
        return self._compiled.uses

    def to_yaml(self) -> str:
        """Return the definition as YAML.

        Example::

            Path("pipeline.yaml").write_text(pipeline.to_yaml())
        """
        return write_yaml(self.document)

    @cached_property
    def checked(self) -> Checked:
        """The definition with everything that is wrong with it, each at the line that made the node."""
        try:
            checked = check_document(Document(self._compiled.data))
        except InvalidDefinition as problem:
            return Checked(None, Document(None), list(problem.problems))  # type: ignore[arg-type]
        problems = [self._placed(problem) for problem in checked.problems]
        return replace(checked, problems=sorted(problems, key=lambda each: (each.line or 0, each.code)))

    def _placed(self, problem: Problem) -> Problem:
        """Return a problem with the author's line that made the node it is about."""
        node = problem.path[1] if len(problem.path) > 1 and problem.path[0] == "nodes" else None
        place = self._compiled.places.get(str(node)) or place_of(self.function)
        return replace(problem, file=place.file, line=place.line, column=place.column)

    @cached_property
    def _compiled(self) -> _Compiled:
        _refuse_changing(self.function)
        first, again = self._compose(), self._compose()
        if first.data != again.data:
            raise cannot_compile(
                f"{self.workflow_id} is another one each time that it is composed: it depends on something that "
                "changes, such as the time or a random number. Make that an input, or leave it to a task",
                place_of(self.function),
            )
        return first

    def _compose(self) -> _Compiled:
        composition = Composition()
        inputs = inputs_of(self.function)
        given = {name: Symbol(f"inputs.{name}", is_atom=True) for name in inputs}
        with composing(composition):
            bound = self.signature.bind(**given)
            returned: Any = self.function(*bound.args, **bound.kwargs)
            if inspect.iscoroutine(returned):
                returned = _driven(returned, self.function)
            output, needs = template(returned)
        assembly = Assembly(composition.steps, composition.groups)
        if unknown := [need for need in needs if need not in composition.steps]:
            raise cannot_compile(f"the result takes the output of {unknown[0]!r}, which is of another workflow")
        data: dict[str, Any] = {**self._head, "inputs": inputs, "groups": assembly.groups()}
        data = {name: value for name, value in data.items() if value not in (None, {})}
        places = {name: step.place for name, step in composition.steps.items()}
        return _Compiled({**data, "nodes": assembly.nodes(output)}, dict(composition.uses), places)


def _driven(coroutine: Any, function: Callable[..., Any]) -> Any:
    """Run an async function that awaits nothing but its calls to its end."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise cannot_compile(
        "a workflow may await only tasks and workflows: what else it waits for belongs into a task", place_of(function)
    )


def _refuse_changing(function: Callable[..., Any]) -> None:
    """Refuse a function whose variables from around it may be others the next time."""
    for name, value in inspect.getclosurevars(function).nonlocals.items():
        if not isinstance(value, (*_CONSTANT, Composable)):
            raise cannot_compile(
                f"it takes {name!r} from the function around it, a {type(value).__name__} that may change: make it an "
                "input, or a constant of the module",
                place_of(function),
            )


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(
    function: None = None, /, *, workflow_id: str | None = None, name: str | None = None,
    description: str | None = None, labels: Mapping[str, str] | None = None,
    timeout: float | timedelta | None = None, on_failure: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...  # fmt: skip


def workflow(
    function: Callable[..., Any] | None = None, /, *, workflow_id: str | None = None, name: str | None = None,
    description: str | None = None, labels: Mapping[str, str] | None = None,
    timeout: float | timedelta | None = None, on_failure: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Make a workflow of a function that calls tasks; it compiles to the definition that YAML is another way to write.

    Its arguments are the inputs, by their annotations and defaults, and what it returns is the result. ``defaults``
    hold for each task that does not say otherwise: ``retry``, ``timeout``, ``queue`` and so on. Example::

        @weft.workflow
        def pipeline(url: str) -> int:
            return total(double.map(fetch(url)))
    """
    if function is None:
        return functools.partial(
            workflow, workflow_id=workflow_id, name=name, description=description, labels=labels, timeout=timeout,
            on_failure=on_failure, defaults=defaults,
        )  # fmt: skip
    if not inspect.isfunction(function):
        advice = f"; write @weft.workflow(workflow_id={function!r})" if isinstance(function, str) else ""
        raise InvalidInput("function", f"must be a function, not {type(function).__name__}{advice}")
    if function.__name__ == "<lambda>":
        raise cannot_compile("a lambda has no name: define a function", here())
    told = (inspect.getdoc(function) or "").strip().partition("\n\n")[0].replace("\n", " ")
    head = {
        "workflow_id": workflow_id or function.__name__,
        "name": name,
        "description": description or told or None,
        "labels": dict(labels or {}),
        "on_failure": on_failure,
        "timeout_seconds": None if timeout is None else seconds(timeout, "timeout"),
        "defaults": defaults_of(defaults),
    }
    return Workflow(function, head)
