"""What broke in other orchestrators, asked of this one; the doors, the roles, the sessions have tests of their own."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import asyncpg
import httpx
import pytest
from matrix import FLOW, make_things

import weft

_BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
)


async def test_the_org_comes_from_the_credential_and_from_nothing_else(
    http: httpx.AsyncClient, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.orgs.create("rival")
    rival = client.of_org((await client.orgs.show("rival")).id, "rival")
    theirs = await make_things(rival, "rival")
    org_id = str(await rival.org_id())
    for name, value in (("org", "rival"), ("org_id", org_id), ("org_slug", "rival"), ("tenant", "rival")):
        headers = {f"x-{name}": value, f"x-weft-{name.replace('_', '-')}": value, name: value}
        in_body = await http.post("/api/v1/tasks", json={"handler": "a", name: value})
        assert (in_body.status_code, in_body.json()["field"]) == (422, name)
        in_query = await http.get("/api/v1/tasks", params={name: value})
        assert in_query.status_code == 422
        told = await http.get("/api/v1/tasks", headers=headers)
        assert theirs.names["task_id"] not in {each["id"] for each in told.json()["items"]}
        made = await http.post("/api/v1/tasks", json={"handler": "mine"}, headers=headers)
        assert await conn.fetchval("select org_id from weft.task where id = $1", int(made.json()["id"])) == 1
        await http.post(f"/api/v1/tasks/{made.json()['id']}/cancel", json={})
    batch = [{"handler": "a"}, {"handler": "b", "org_id": org_id}]
    assert (await http.post("/api/v1/tasks/batch", json={"tasks": batch})).status_code == 422
    # Ids of another org among one's own, in bodies and in batches.
    ids = [theirs.names["task_id"]]
    for path in ("dead-letters/purge", "outbox/replay", "outbox/purge"):
        answer = await http.post(f"/api/v1/{path}", json={"ids": ids})
        assert answer.status_code in (200, 404, 409), answer.text
        assert answer.json().get("count", 0) == 0
    assert (await http.post("/api/v1/jobs", json={"workflow": theirs.names["change"]})).status_code == 404


@pytest.mark.parametrize("path", ["tasks/{}/log", "jobs/{}", "jobs/{}/events", "tasks/{}"])
async def test_no_id_leads_out_of_where_logs_and_values_are_kept(
    path: str, http: httpx.AsyncClient, home: Path
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "secret").write_text("canary")
    for id in (
        "..",
        "..%2f..%2fsecret",
        "%2e%2e%2fsecret",
        "1%00",
        "/etc/passwd",
        "1/../../secret",
        "-1",
        "0x1",
        "1e3",
    ):
        address = httpx.URL(str(http.base_url)).copy_with(raw_path=f"/api/v1/{path.format(id)}".encode())
        answer = await http.get(address)
        assert answer.status_code in (404, 405, 422), id
        assert "canary" not in answer.text
    for attempt in ("..", "../../secret", "1.0", "-1"):
        answer = await http.get("/api/v1/tasks/1/log", params={"attempt": attempt})
        assert answer.status_code in (404, 422), attempt


async def test_a_name_from_outside_is_looked_up_and_never_imported(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    flow = {**FLOW, "nodes": {**FLOW["nodes"], "fetch": {**FLOW["nodes"]["fetch"], "handler": "canary_module:run"}}}  # type: ignore[dict-item]
    assert (await http.post("/api/v1/workflows", json={"definition": flow})).status_code == 201
    assert (await http.post("/api/v1/jobs", json={"workflow": "etl"})).status_code == 201
    made = await http.post("/api/v1/tasks", json={"handler": "canary_module:run"})
    assert (await http.get(f"/api/v1/tasks/{made.json()['id']}/why")).status_code == 200
    assert "canary_module" not in sys.modules


async def test_a_small_text_that_means_a_large_one_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/v1/workflows", json={"definition": _BOMB})
    assert answer.status_code == 422
    assert len(answer.content) < 100_000
    deep = "[" * 100_000
    assert (await http.post("/api/v1/workflows", json={"definition": deep})).status_code == 422
    for content in (deep.encode(), b'{"handler": "a", "params": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        answer = await http.post("/api/v1/tasks", content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422)


async def test_an_address_means_one_thing_and_has_an_end(http: httpx.AsyncClient) -> None:
    twice = await http.get("/api/v1/tasks?limit=1&limit=2")
    assert (twice.status_code, twice.json()["field"]) == (422, "limit")
    for several in ("tasks?state=failed&state=dead", "jobs?labels=a%3D1&labels=b%3D2"):
        assert (await http.get(f"/api/v1/{several}")).status_code == 200
    many = "&".join(f"a{n}=" for n in range(501))
    refused = await http.get(f"/api/v1/tasks?{many}")
    assert (refused.status_code, refused.json()["detail"]) == (422, "query: has 501 parameters, and may have 500")


async def test_a_path_with_more_at_its_end_is_another(http: httpx.AsyncClient, client: weft.Client) -> None:
    await client.workflows.push(FLOW)
    for path in ("tags/etl%2Fmain%0A", "tags/etl%0a", "queues/default%7F", "queues/default%0d"):
        address = httpx.URL(str(http.base_url)).copy_with(raw_path=f"/api/v1/{path}".encode())
        assert (await http.get(address)).status_code == 404, path
        assert (await http.delete(address)).status_code == 404, path
    assert (await client.workflows.tag("etl")).name == "etl/main"
    # Not sent on to where whoever asks says that the server is.
    assert (await http.get("/api/v1/jobs/", headers={"host": "evil.example"})).status_code == 404


async def test_what_comes_after_a_body_is_no_header(http: httpx.AsyncClient) -> None:
    reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    body, token = b'{"slug":"made"}', http.headers["authorization"].encode()
    head = b"POST /api/v1/roles HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
    writer.write(b"%x\r\n%s\r\n0\r\nAuthorization: %s\r\n\r\n" % (len(body), body, token))
    async with asyncio.timeout(30):
        assert (await reader.readline()).split()[1] == b"401"
    writer.close()
    assert (await http.get("/api/v1/roles")).json()["items"] == []


async def test_a_cursor_that_nobody_gave_is_refused(http: httpx.AsyncClient, client: weft.Client) -> None:
    await client.workflows.push(FLOW)
    job = str((await client.jobs.submit("etl")).id)
    first = "2024-01-01T00:00:00+00:00"
    for parts in (
        [job, "0001-01-01T00:00:00+14:00", [], None, 0],
        [job, first, [], "9999-12-31T23:59:59-14:00", 0],
        [job, "2024-01-01T00:00:00", [], None, 0],
        [job, first, [], None, 10**30],
        [job, first, [], None, 1e308],
        [job, first, [], None, -1],
    ):
        cursor = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()
        answers = [
            await http.get(f"/api/v1/jobs/{job}/events", params={"after": cursor}),
            await http.get(f"/api/v1/jobs/{job}/stream", headers={"last-event-id": cursor}),
        ]
        assert [answer.status_code for answer in answers] == [422, 422], parts


async def test_of_two_credentials_none_is_taken(http: httpx.AsyncClient) -> None:
    own = http.headers["authorization"]
    for pair in ((own, "Bearer x"), ("Bearer x", own), (own, own)):
        headers = [("authorization", each) for each in pair]
        async with httpx.AsyncClient(base_url=http.base_url) as other:
            answer = await other.get("/api/v1/tasks", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
