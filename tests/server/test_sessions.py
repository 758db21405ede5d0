"""Browsers: signed in once by a link, by a cookie that no other page acts by, until they sign out or are shut out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import httpx
import pytest

import weft
from weft.server.cookies import PLAIN, SECURE
from weft.server.serving import Server

OWN = {"sec-fetch-site": "same-origin"}
_LOADED = re.compile(r"""(?:src|href|action)\s*=\s*["']([^"']+)|url\(|@import|<script""")


@pytest.fixture
async def browser(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a jar of cookies and without a token."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as opened:
        yield opened


async def test_a_link_lets_one_browser_in_once(browser: httpx.AsyncClient, client: weft.Client) -> None:
    await client.users.add("ada@example.com", role="writer")
    made = await client.tokens.create_sign_in(role="writer", user="ada@example.com")
    answers = await asyncio.gather(*(browser.get("/sign-in", params={"code": made.code}) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [303, 401, 401, 401, 401]
    entered = next(answer for answer in answers if answer.status_code == 303)
    cookie = entered.headers["set-cookie"]
    assert entered.headers["location"] == "/docs"
    assert {part.strip().split("=")[0].lower() for part in cookie.split(";")} == {
        PLAIN, "httponly", "samesite", "path", "max-age",
    }  # fmt: skip
    assert "samesite=strict" in cookie.lower()
    assert (await browser.get("/api/v1/tasks")).status_code == 200
    sent = await browser.post("/api/v1/tasks", json={"handler": "a"}, headers=OWN)
    assert sent.status_code == 201
    assert (await client.get_task(int(sent.json()["id"]))).actor == "ada@example.com"
    assert (await browser.get("/api/v1/tokens")).status_code == 403


async def test_neither_a_code_nor_a_session_is_kept_as_it_is(
    browser: httpx.AsyncClient, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = await client.tokens.create_sign_in(role="admin")
    kept = "select (select json_agg(s) from weft.{} s)::text"
    assert made.code not in await conn.fetchval(kept.format("sign_in"))
    await browser.get("/sign-in", params={"code": made.code})
    secret = browser.cookies[PLAIN]
    for table in ("token", "audit"):
        text = await conn.fetchval(kept.format(table))
        assert secret not in text
        assert made.code not in text


async def test_a_code_is_good_for_its_time_and_for_those_who_are_there(
    browser: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.users.add("gone@example.com", role="admin")
    gone = await client.tokens.create_sign_in(user="gone@example.com", role="admin")
    await client.users.deactivate("gone@example.com")
    # The last that is made: the next would forget it, and it must be refused also while it is there.
    late = await client.tokens.create_sign_in(expires_in=timedelta(microseconds=1))
    for code in (late.code, gone.code, "", "x" * 200, "weft_" + "x" * 43):
        answer = await browser.get("/sign-in", params={"code": code})
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    for wrong in ({"role": "worker"}, {"role": "admin", "user": "gone@example.com"}, {"expires_in": 3601}):
        with pytest.raises(weft.InvalidInput):
            await client.tokens.create_sign_in(**wrong)  # type: ignore[arg-type]


async def test_a_code_lets_a_user_in_as_no_more_than_he_is_by_now(
    browser: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.users.add("ada@example.com", role="admin")
    made = await client.tokens.create_sign_in(user="ada@example.com", role="admin")
    await client.users.change("ada@example.com", role="reader")
    assert (await browser.get("/sign-in", params={"code": made.code})).status_code == 303
    assert [token.role for token in await client.tokens.list()] == ["reader"]
    await client.users.change("ada@example.com", role="admin")
    lesser = await client.tokens.create_sign_in(user="ada@example.com", role="writer")
    assert (await browser.get("/sign-in", params={"code": lesser.code})).status_code == 303
    assert [token.role for token in await client.tokens.list()] == ["writer", "reader"]


async def test_a_browser_that_would_keep_no_session_is_told_so_and_its_link_stays_good(
    browser: httpx.AsyncClient, client: weft.Client
) -> None:
    away = {"host": "weft.example.com"}
    made = await client.tokens.create_sign_in()
    told = await browser.get("/sign-in", params={"code": made.code}, headers=away)
    assert (told.status_code, "set-cookie" in told.headers) == (400, False)
    assert "https://" in told.text
    # A proxy has taken the TLS off: a browser would not tell from where it comes, or the proxy says so.
    for more in ({"sec-fetch-site": "none"}, {"x-forwarded-proto": "https"}):
        entered = await browser.get("/sign-in", params={"code": made.code}, headers=away | more)
        assert entered.status_code == 303
        assert SECURE in entered.headers["set-cookie"]
        made = await client.tokens.create_sign_in()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_nobody_is_signed_in_by_another_page_before_he_has_said_so(
    browser: httpx.AsyncClient, client: weft.Client, site: str
) -> None:
    made = await client.tokens.create_sign_in()
    asked = await browser.get("/sign-in", params={"code": made.code}, headers={"sec-fetch-site": site})
    assert (asked.status_code, "set-cookie" in asked.headers) == (200, False)
    (link,) = re.findall('href="([^"]+)"', asked.text)
    assert (await browser.get(link, headers=OWN)).status_code == 303
    odd = await browser.get("/sign-in", params={"code": '"><script>'}, headers={"sec-fetch-site": site})
    assert "<script" not in odd.text


async def test_a_session_ends_with_its_user_and_by_signing_out(browser: httpx.AsyncClient, client: weft.Client) -> None:
    await client.users.add("ada@example.com", role="reader")

    async def sign_in() -> None:
        made = await client.tokens.create_sign_in(user="ada@example.com")
        await browser.get("/sign-in", params={"code": made.code})
        assert (await browser.get("/api/v1/tasks")).status_code == 200

    await sign_in()
    before = browser.cookies[PLAIN]
    assert (await browser.post("/sign-out")).status_code == 403
    assert (await browser.post("/sign-out", headers=OWN)).status_code == 204
    left, entered = await client.audit(limit=2)
    assert [(each.verb, str(each.origin).split()[0]) for each in (entered, left)] == [
        ("create", "127.0.0.1"), ("revoke", "127.0.0.1"),
    ]  # fmt: skip
    assert PLAIN not in browser.cookies
    again = {"authorization": f"Bearer {before}"}
    assert (await browser.get("/api/v1/tasks", headers=again)).status_code == 401
    await sign_in()
    await client.users.deactivate("ada@example.com")
    assert (await browser.get("/api/v1/tasks")).status_code == 401


async def test_no_other_page_acts_by_a_browsers_cookie(browser: httpx.AsyncClient, client: weft.Client) -> None:
    made = await client.tokens.create_sign_in(role="admin")
    await browser.get("/sign-in", params={"code": made.code})
    host = browser.base_url.netloc.decode()
    for headers in (
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://[nowhere"},
        {"origin": f"http://{host}.evil.example"},
        {"origin": f"http://{host}@evil.example"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
        {"sec-fetch-site": "same-origin", "content-type": "text/plain"},
        {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"},
    ):
        answer = await browser.post("/api/v1/tasks", content=b'{"handler":"a"}', headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site"), headers
    assert (await browser.delete("/api/v1/cache")).status_code == 403
    for own in ({"origin": f"http://{host}"}, OWN):
        answer = await browser.post("/api/v1/tasks", json={"handler": "a"}, headers=own)
        assert answer.status_code == 201, own
    assert len((await client.list_tasks()).tasks) == 2


async def test_over_tls_the_cookie_is_bound_to_the_host(browser: httpx.AsyncClient, client: weft.Client) -> None:
    made = await client.tokens.create_sign_in(role="admin")
    public = {"host": "weft.example.com"}
    entered = await browser.get("/sign-in", params={"code": made.code}, headers=public | {"sec-fetch-site": "none"})
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith(f"{SECURE}=")
    assert {"Secure", "HttpOnly", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "domain" not in cookie.lower()
    secret = cookie.split("=", 1)[1].split(";")[0]
    for name, status in ((SECURE, 200), (PLAIN, 401)):
        headers = public | {"cookie": f"{name}={secret}"}
        assert (await browser.get("/api/v1/tasks", headers=headers)).status_code == status, name


async def test_every_answer_tells_browsers_what_they_must_not_do(browser: httpx.AsyncClient) -> None:
    for path in ("/docs", "/openapi.json", "/sign-in", "/api/v1/tasks", "/nowhere"):
        answer = await browser.get(path, headers={"origin": "https://evil.example"})
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_the_page_of_the_interface_needs_nothing_from_elsewhere(browser: httpx.AsyncClient) -> None:
    answer = await browser.get("/docs")
    assert answer.status_code == 200
    loaded = [found[1] or found[0] for found in _LOADED.finditer(answer.text)]
    assert [each for each in loaded if not each.startswith("#")] == ["/openapi.json"]
    assert {f'id="{each[1:]}"' in answer.text for each in loaded if each.startswith("#")} == {True}
    assert "/api/v1/jobs/{job_id}/cancel" in answer.text
    assert "<code>idempotency_key</code> creates nothing" in answer.text
    assert "&quot;workflow&quot;: &quot;etl&quot;" in answer.text
