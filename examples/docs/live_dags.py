"""A live DAG: deployed, changed, gone back to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import weft

FILE = Path(__file__).with_name("orders.yaml")

# docs: begin operators
registry = weft.Registry()


@weft.operator("take_order", registry=registry)
async def take_order(live: weft.LiveContext) -> None:
    # In JSON 10 is a whole number, and the first order would make the column one of these.
    order = live.unit.payload | {"price": float(live.unit.payload["price"])}
    await live.write([order], partition=order["day"])


@weft.operator("sum_of_day", registry=registry)
async def sum_of_day(live: weft.LiveContext) -> None:
    orders = (await live.changes()).to_pylist()
    total = {"day": live.unit.lane, "orders": len(orders), "total": sum(order["price"] for order in orders)}
    await live.write([total | {"currency": live.config["currency"]}], partition=live.unit.lane)


# docs: end operators


async def totals(client: weft.Client) -> list[Any]:
    while (shown := await client.live.show("orders")).units or shown.writes:  # noqa: ASYNC110  (it only looks)
        await asyncio.sleep(0.05)
    rows = await client.datasets.sample("order_totals")
    return sorted((row["day"], float(row["total"]), row["currency"]) for row in rows)


async def main() -> None:
    async with weft.Client() as client, weft.Orchestrator(client=client), weft.Worker(client=client, registry=registry):
        # docs: begin deploy
        done = await client.live.deploy(FILE, message="first")
        print(done.version, done.at_once, [(job.name, job.action) for job in done.jobs])
        # docs: end deploy
        for id, day, price in ((1, "2026-11-14", 10.0), (2, "2026-11-15", 5.0), (3, "2026-11-14", 2.5)):
            event = {"id": id, "day": day, "customer": "ada", "price": price}
            await client.jobs.send_event("order.placed", event)
        print(await totals(client))
        # docs: begin change
        text = FILE.read_text(encoding="utf-8").replace("EUR", "CHF")
        plan = await client.live.plan(text)
        print([(job.name, job.action, job.fields) for job in plan.jobs])
        done = await client.live.deploy(text, message="francs", seen=1)
        await client.live.wait("orders", done.version, timeout=60)
        # docs: end change
        print(await totals(client))
        # docs: begin plan_rollback
        plan = await client.live.plan_rollback("orders")
        print([(each.name, each.current, each.version) for each in plan.datasets])
        # docs: end plan_rollback
        # docs: begin rollback
        back = await client.live.rollback("orders", message="euros after all")
        print(back.version, "was", back.was)
        # docs: end rollback
        print(await totals(client))
        # docs: begin look
        for job in await client.live.jobs("orders"):
            print(job.name, job.state, job.outputs, job.held)
        # docs: end look
        # docs: begin anew
        print(await client.live.rematerialize("orders", "totals", partitions=["2026-11-14"], dry_run=True))
        print(await client.live.rematerialize("orders", "totals", partitions=["2026-11-14"]))
        made = await client.live.backfill("orders", "totals", first="2026-11-01", last="2026-11-30", at_once=2)
        print(made.partitions)
        # docs: end anew


asyncio.run(main())
