"""The handlers of control steps: what a worker of the control queue runs, and with it is an orchestrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.jobs import control
from weft.jobs.submit import SQL
from weft.worker.registry import Handler, Registry

if TYPE_CHECKING:
    from weft.db.database import Database


def control_handlers(database: Database) -> Registry:
    """Return what carries out the control steps of jobs, each as often as need be: a repeat changes nothing."""

    async def conditional(spec: dict[str, Any], values: dict[str, Any]) -> Any:
        return control.choose_branch(spec, values)

    async def output(spec: dict[str, Any], values: dict[str, Any]) -> Any:
        return control.output_of(spec, values)

    async def end(spec: dict[str, Any] | None = None, values: dict[str, Any] | None = None) -> Any:
        return None if spec is None else control.result_of(spec, values or {})

    async def fail(id: str) -> None:
        if await database.run(lambda conn: conn.fetchval(SQL.fail, int(id))):
            raise RuntimeError("more to sweep")  # todo

    async def skip(ids: list[str], why: str) -> None:
        left = [int(id) for id in ids]
        while left:
            left = await database.run(lambda conn, left=left: conn.fetchval(SQL.skip, left, why))  # type: ignore[misc]

    registry = Registry()
    for name, function in {
        "@conditional": conditional, "@output": output, "@end": end, "@fail": fail, "@skip": skip,
    }.items():  # fmt: skip
        registry.add(Handler(name=name, function=function, queue="@control"))
    return registry
