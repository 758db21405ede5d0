"""Live jobs of operators that come with Weft, made by hand, with inputs that a task writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg

import weft
from live_scene import make_dag, make_job, make_output, until
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class OperatorScene:
    """A DAG with jobs of such operators; `put` writes what they react to."""

    def __init__(self, client: weft.Client, conn: Conn, registry: Registry) -> None:
        self.client, self.conn, self.registry = client, conn, registry
        self.dag = 0

        @registry.task(name="put")
        async def put(
            dataset: str, rows: list[dict[str, Any]], partition: str | None, by: str | None, mode: str,
            ctx: weft.Context, breaking: bool = False,
        ) -> None:  # fmt: skip
            key: list[str] | None = [] if mode == "append" else None
            await ctx.dataset(dataset).write(
                rows, partition=partition, partition_by=by, mode=mode, unique_key=key, breaking=breaking
            )

        @registry.task(name="read")
        async def read(dataset: str, ctx: weft.Context) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await ctx.dataset(dataset).read()).to_pylist()
            return found

    async def job(
        self, name: str, operator: str, config: dict[str, Any], inputs: Sequence[str] = (), output: str | None = None,
        *, strategy: str = "update", append: Sequence[str] | None = None, source: dict[str, Any] | None = None,
        **columns: Any,
    ) -> int:  # fmt: skip
        """Make a live job; inputs that are not there are made, empty."""
        self.dag = self.dag or await make_dag(self.conn)
        ids: list[tuple[int, int | None]] = []
        for each in inputs:
            if await self.dataset(each) is None:
                await self.client.datasets.create(each)
            ids.append(await self.reads(each))
        outputs = [] if output is None else [await make_output(self.conn, output, "market", name)]
        document: dict[str, Any] = {"config": config, "update_strategy": "replace" if append is None else "append"}
        if append is not None:
            document["unique_key"] = list(append)
        return await make_job(
            self.conn, self.dag, name, f"live.{operator}", inputs=ids, outputs=outputs, strategy=strategy,
            source=source, document=document | columns.pop("document", {}), **columns,
        )  # fmt: skip

    async def reads(self, name: str) -> tuple[int, int | None]:
        """Return an input: of a job of this DAG with its version, else from outside."""
        row = await self.conn.fetchrow(
            "select d.id, o.version_id from weft.dataset d left join weft.live_output o on o.dataset_id = d.id "
            "where d.name = $1", name,
        )  # fmt: skip
        assert row is not None
        return row["id"], row["version_id"]

    async def dataset(self, name: str) -> int | None:
        found: int | None = await self.conn.fetchval("select id from weft.dataset where name = $1", name)
        return found

    async def put(
        self, dataset: str, partition: str | None, rows: list[dict[str, Any]], mode: str = "replace",
        by: str | None = None,
    ) -> None:  # fmt: skip
        said = {"dataset": dataset, "partition": partition, "rows": rows, "by": by, "mode": mode}
        await self.client.wait((await self.client.enqueue("put", said)).id, timeout=60)

    async def add(self, dataset: str, partition: str | None, rows: list[dict[str, Any]]) -> None:
        await self.put(dataset, partition, rows, "append")

    async def spread(self, dataset: str, by: str, rows: list[dict[str, Any]]) -> None:
        await self.put(dataset, None, rows, "append", by)

    async def begin(self, dataset: str, by: str, rows: list[dict[str, Any]]) -> None:
        """Begin a version that has these rows."""
        said = {"dataset": dataset, "partition": None, "rows": rows, "by": by, "mode": "replace", "breaking": True}
        await self.client.wait((await self.client.enqueue("put", said)).id, timeout=60)

    async def rows(self, dataset: str) -> list[dict[str, Any]]:
        handle = await self.client.enqueue("read", {"dataset": dataset})
        found: list[dict[str, Any]] = await self.client.wait(handle.id, timeout=60)
        return found

    async def settled(self, job: int | None = None) -> None:
        """Return when all that was written has become what it becomes, in all jobs or one; units that failed stay."""

        async def is_quiet() -> Any:
            return not await self.conn.fetchval(
                "select exists (select 1 from weft.live_unit u where u.state <> 'held' and u.kind <> 'slice' "
                "    and ($1::bigint is null or u.live_job_id = $1)) "
                "  or exists (select 1 from weft.live_input i join weft.dataset d on d.id = i.dataset_id "
                "    left join weft.dataset_version v on v.id = coalesce(i.version_id, d.current_id) "
                "    where v.last_write > coalesce(i.routed_write, -1) and ($1::bigint is null or i.live_job_id = $1))",
                job,
            )

        await until(is_quiet, 60)

    async def error(self, job: int) -> str:
        """Return what a unit of a job has failed by."""
        await until(lambda: self.conn.fetchval("select last_error is not null from weft.live_job where id = $1", job))
        return str(await self.conn.fetchval("select last_error from weft.live_job where id = $1", job))
