"""Executes workflows from a program: submit, wait, approve, look."""

import asyncio

import weft


@weft.task(name="orders.total")
async def total(orders: list[int]) -> int:
    return sum(orders)


@weft.task(name="orders.pay")
async def pay(amount: int) -> str:
    return f"paid {amount}"


DEFINITION = {
    "workflow_id": "pay_orders",
    "inputs": {"orders": {"type": "array", "required": True}},
    "nodes": {
        "START": {"type": "start", "next": "total"},
        "total": {"handler": "orders.total", "params": {"orders": "{{ inputs.orders }}"}, "next": "is_much"},
        "is_much": {
            "type": "conditional",
            "condition_field": "{{ nodes.total.output }}",
            "branches": [{"condition": "> 100", "next": "ask"}, {"default": True, "next": "pay"}],
        },
        "ask": {"type": "wait", "for": "approval", "form": {"reason": {"type": "string"}}, "next": "pay"},
        "pay": {"handler": "orders.pay", "params": {"amount": "{{ nodes.total.output }}"}, "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.pay.output }}"},
    },
}


async def first_approval(client: weft.Client, job_id: int) -> weft.Approval:
    while not (found := await client.jobs.approvals(job_id)):  # noqa: ASYNC110  (somebody else would be told by the page)
        await asyncio.sleep(0.05)
    return found[0]


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client), weft.Orchestrator(client=client):
        # docs: begin submit
        job = await client.jobs.submit(DEFINITION, {"orders": [10, 20]}, idempotency_key="orders-2026-11-14")
        print((await client.jobs.wait(job.id, timeout=30)).result)
        # docs: end submit

        # docs: begin approve
        large = await client.jobs.submit(DEFINITION, {"orders": [400, 20]})
        asked = await first_approval(client, large.id)
        print(asked.node, dict(asked.form))
        await client.jobs.approve(large.id, "ask", {"reason": "known customer"})
        print((await client.jobs.wait(large.id, timeout=30)).result)
        for node in await client.jobs.nodes(large.id):
            print(node.node, node.state)
        # docs: end approve


asyncio.run(main())
