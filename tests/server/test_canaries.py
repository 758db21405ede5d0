"""Secrets that are planted wherever there may be one never come out: not in answers, logs, nor the document."""

from __future__ import annotations

import logging
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from matrix import FLOW
from providers import AUDIENCE, TestProvider

import weft
from weft.server.serving import Server

PASSWORD, SIGNING = "canary-of-the-database", "whsec_" + "Y2FuYXJ5LW9mLWNhbGxiYWNrcy1jYW5hcnk="


async def test_no_secret_is_told_to_anybody(
    settings: weft.Settings, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    token = (await client.tokens.create("one", role="admin")).secret
    revoked = await client.tokens.create("other", role="admin")
    await client.tokens.revoke(revoked.token.id)
    worker = (await client.tokens.create("worker", role="worker")).secret
    code = (await client.tokens.create_sign_in()).code
    job = await client.jobs.submit(FLOW)
    assert settings.database_url is not None
    user = await conn.fetchval("select session_user")
    address = urlsplit(settings.database_url)._replace(netloc=f"{user}:{PASSWORD}@").geturl()
    seen: list[str] = []
    async with TestProvider() as provider:
        vouched, forged = provider.token(), provider.token(aud="another")
        planted = replace(
            settings, database_url=address, callback_secret=(b"canary-of-callbacks-canary",),
            oidc_issuer=provider.issuer, oidc_audience=AUDIENCE,
        )  # fmt: skip
        async with Server(planted, port=0) as server, httpx.AsyncClient(base_url=server.url, timeout=30) as http:

            async def ask(method: str, path: str, secret: str | None = None, **more: object) -> None:
                headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
                answer = await http.request(method, path, headers=headers, **more)  # type: ignore[arg-type]
                seen.append(f"{answer.status_code} {answer.text}")

            for secret in (token, revoked.secret, vouched, forged, token + "x", None):
                await ask("GET", "/api/v1/tasks", secret)
                await ask("POST", "/api/v1/jobs", secret, content=b"{")
            for path in ("tokens", "audit", "health", "metrics", "workers", "users"):
                await ask("GET", f"/api/v1/{path}", token)
            # Streams, and what workers are told: to those who are let in, and to those who are not.
            for secret in (token, revoked.secret, worker, None):
                for path in ("jobs/stream", f"jobs/{job.id}/stream"):
                    seen.append(await _first(http, f"/api/v1/{path}", secret))
            entered: dict[str, object] = {"queues": ["default"], "handlers": ["echo"]}
            for secret in (token, revoked.secret, worker + "x", None):
                await ask("POST", "/v1/worker/register", secret, json=entered)
            answer = await http.post("/v1/worker/register", headers={"authorization": f"Bearer {worker}"}, json=entered)
            seen.append(answer.text)
            me = {"worker_id": answer.json()["worker_id"]}
            for path in ("worker/heartbeat", "worker/holdings", "task/claim", "task/complete", "worker/deregister"):
                await ask("POST", f"/v1/{path}", worker, json={**me, "wait": 0} if path == "task/claim" else me)
                await ask("POST", f"/v1/{path}", worker, content=b"{")
            for path in ("workers", "audit"):
                await ask("GET", f"/api/v1/{path}", token)
            await ask("GET", "/metrics", token)
            await ask("GET", "/openapi.json")
            await ask("GET", "/docs")
            await ask("GET", f"/sign-in?code={code}x")
            # What the installation is at fault for is told to its operator, in the log, and to nobody else.
            await conn.execute("alter table weft.tag rename to gone")
            await ask("GET", "/api/v1/workflows", token)
            await conn.execute("alter table weft.gone rename to tag")
            await conn.execute("alter table weft.worker rename to gone")
            await ask("POST", "/v1/worker/register", worker, json=entered)
            await conn.execute("alter table weft.gone rename to worker")
            provider.is_away = True
            provider.rotate("next")
            await ask("GET", "/api/v1/tasks", provider.token())
    assert [each[:2] for each in seen[-3:-1]] == ["50"] * 2
    assert sum("\ndata: " in each for each in seen) == 2
    ours = [each for each in caplog.records if each.name.startswith(("weft", "uvicorn", "asyncio"))]
    logged = [logging.Formatter().format(each) for each in ours]
    assert any("Traceback" in each for each in logged)
    told = "\n".join([*seen, *logged])
    for secret in (token, revoked.secret, worker, vouched, forged, code, PASSWORD, SIGNING, "canary-of-callbacks"):
        assert secret not in told
    assert settings.database_url not in told


async def _first(http: httpx.AsyncClient, path: str, secret: str | None) -> str:
    """Return the beginning of a stream, with what it tells first, or why there is none."""
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    async with http.stream("GET", path, headers=headers) as answer:
        told = ""
        async for piece in answer.aiter_text():
            told += piece
            if "data: " in told:
                break
        return f"{answer.status_code} {answer.headers} {told}"
