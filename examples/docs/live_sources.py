"""Deploys jobs that begin by themselves, and sends them events."""

import asyncio
import hashlib
import hmac
from pathlib import Path

import weft

FOLDER = Path(__file__).parent


# docs: begin sign
def signature(secret: str, body: bytes) -> dict[str, str]:
    """Return the header that a hook of the form `github` asks for."""
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


# docs: end sign


async def main() -> None:
    async with weft.Client() as client:
        done = await client.live.deploy(FOLDER / "live_sources.yaml")
        print(done.dag, done.version)
        # docs: begin send
        events = [
            weft.NewEvent(
                "order.created",
                {"order": number, "currency": "EUR", "customer": {"id": f"c{number % 3}"}},
                idempotency_key=f"order-{number}",
            )
            for number in range(6)
        ]
        sent = await client.jobs.send_events(events)
        print(sum(event.created for event in sent), "new")
        # docs: end send
        sent = await client.jobs.send_events(events)
        print(sum(event.created for event in sent), "new")
        units = await client.live.units("shop", "orders")
        print(len(units), sorted({unit.lane or "" for unit in units}))
        print(signature("it is a secret to everybody", b"{}")["X-Hub-Signature-256"][:10])
        print(weft.read_dag(FOLDER / "live_table.yaml").jobs["payments"].source)


asyncio.run(main())
