"""The connection by which a server hears for workers is dead in the network: nobody is kept waiting for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

import weft
from crash.proxy import proxy_to
from weft.server.live.listener import Listener
from weft.server.serving import Server


async def test_a_dead_connection_keeps_no_worker_out_and_is_replaced_and_the_server_stops(
    settings: weft.Settings, client: weft.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listener, "patience", 0.5)
    secret = (await client.tokens.create("w", role="worker")).secret
    async with proxy_to(url) as proxy, asyncio.timeout(60):
        through = replace(settings, listen_url=proxy.url, worker_timeout=timedelta(minutes=5))
        server = await Server(through, port=0).__aenter__()
        async with httpx.AsyncClient(
            base_url=server.url, headers={"authorization": f"Bearer {secret}"}, timeout=10
        ) as http:

            async def ask(path: str, **body: object) -> dict[str, object]:
                answer = await http.post(f"/v1/worker/{path}", json=body)
                assert answer.status_code == 200, answer.text
                return dict(answer.json())

            async def registered() -> object:
                return (await ask("register", queues=["default"], handlers=["h"]))["worker_id"]

            one, two, three = await registered(), await registered(), await registered()
            while (await ask("listen", worker_id=one, wait=0))["is_new"]:
                pass
            # The open one hears nothing any more and is told nothing; others pass.
            proxy.partition()
            proxy.heal()
            for other in (two, three):
                await ask("heartbeat", worker_id=other)
            assert (await ask("listen", worker_id=one, wait=30))["is_new"], "what it missed it is told to look for"
            # And now nobody can connect at all.
            proxy.partition()
            four = await registered()
            await ask("heartbeat", worker_id=four)
        await server.__aexit__(None, None, None)
