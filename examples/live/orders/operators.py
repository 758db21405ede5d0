"""The operators of orders.yaml; all that one does in a unit of work is seen at once, when its task has completed."""

from __future__ import annotations

import weft


@weft.operator("take_order")
async def take_order(live: weft.LiveContext) -> None:
    """Add an order to those of its day; one that is sent twice is there once."""
    # In JSON 10 is a whole number, and the first order would make the column one of these.
    order = live.unit.payload | {"price": float(live.unit.payload["price"])}
    await live.write([order], partition=order["day"])


@weft.operator("sum_of_day")
async def sum_of_day(live: weft.LiveContext) -> None:
    """Sum up the day that was written, in the place of what was its sum before."""
    orders = (await live.changes()).to_pylist()
    total = {"day": live.unit.lane, "orders": len(orders), "total": sum(order["price"] for order in orders)}
    await live.write([total | {"currency": live.config["currency"]}], partition=live.unit.lane)
