"""The commands of ``weft jobs`` that take a graph of tasks and groups as JSON, as it travels to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from weft.cli.apps import JsonFlag
from weft.cli.calls import call
from weft.cli.inputs import read_job_id, read_params
from weft.cli.job_looking import JobId
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.contract.graphs import Graph as AnyGraph

    G = TypeVar("G", bound=AnyGraph)

Graph = Annotated[
    str,
    typer.Argument(
        metavar="JSON|-|@FILE",
        help='Tasks, groups, and what comes before what: {"items": [{"handler": "a"}, {"handler": "b"}], '
        '"pairs": [[0, 1]]}',
    ),
]


@says_why
def submit_graph(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the workflow is called.")],
    graph: Graph,
    as_json: JsonFlag = False,
) -> None:
    """Execute tasks and groups that no workflow describes; what stands in the body of `POST /jobs/graph`."""
    from weft.cli.output import tell
    from weft.contract.graphs import NewGraph, items_in

    asked = _read(NewGraph, graph, name=name)
    items, _ = items_in(asked)
    job = call(
        lambda client: client.jobs.submit_graph(
            asked.name, items, priority=asked.priority, idempotency_key=asked.idempotency_key, labels=asked.labels,
            on_failure=asked.on_failure,
        )
    )  # fmt: skip
    ids = [str(item.id) for item in items] if job.created else []
    text = str(job.id) if job.created else f"{job.id} (known by its idempotency key)"
    tell({"id": str(job.id), "created": job.created, "ids": ids}, text, as_json=as_json)


@says_why
def add(job_id: JobId, graph: Graph, as_json: JsonFlag = False) -> None:
    """Add tasks and groups to a job that goes on.

    Ids of what is part of it already stand in `known`, and are counted on after the items: the first of them is the
    place behind the last item.
    """
    from weft.cli.output import tell
    from weft.contract.graphs import Growth, items_in

    key = read_job_id(job_id)
    new, known = items_in(_read(Growth, graph))
    call(lambda client: client.jobs.add(key, [*new, *known]))
    ids = [str(item.id) for item in new]
    tell({"id": str(key), "ids": ids}, f"added {', '.join(ids) or 'nothing'}", as_json=as_json)


def _read(kind: type[G], text: str, **more: str) -> G:
    """Read a graph; raises `InvalidInput` for what is wrong with it first."""
    from pydantic import ValidationError

    from weft.core.errors import InvalidInput

    said = read_params(text, "graph")
    if not isinstance(said, dict):
        raise InvalidInput("graph", f"must be an object, not {type(said).__name__}")
    try:
        return kind.model_validate(said | more)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(where or "graph", first["msg"].removeprefix("Value error, ")) from None
