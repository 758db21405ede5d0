"""Requests with a key, and with an ETag: carried out once, answered the same, refused when something else is there."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest
from server_scene import FLOW, MakeHttp

import weft
from weft.core.server_errors import KeyBusy
from weft.core.settings import Settings
from weft.queue.services import Pruner
from weft.server.idempotency import Answered, once
from weft.server.serving import Server

KEY = {"idempotency-key": "a-key-of-the-caller"}


async def _users(client: weft.Client) -> list[str]:
    return [user.external_id for user in await client.users.list()]


async def test_a_request_with_a_key_is_carried_out_once_and_answered_the_same(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    answers = await asyncio.gather(
        *(http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY) for _ in range(6))
    )
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert sorted(answer.headers.get("idempotency-replayed", "") for answer in answers) == ["", *["true"] * 5]
    assert await _users(client) == ["ada"]
    again = await http.post("/api/v1/users", json={"external_id": "ada"})
    assert again.status_code == 422, "without a key it is another request"


async def test_each_act_may_be_sent_again_with_its_key(http: httpx.AsyncClient, client: weft.Client) -> None:
    for size in (1, 2, 3):
        await client.workflows.push(FLOW.replace("size: 1", f"size: {size}"))
    acts = [
        ("POST", "/api/v1/tags/etl/undo", {"steps": 1}),
        ("POST", "/api/v1/queues", {"name": "mail"}),
        ("POST", "/api/v1/tags/etl%2Fnext/branch", {"source": "etl"}),
        ("DELETE", "/api/v1/tags/etl%2Fnext", None),
    ]
    for method, path, body in acts:
        first, again = [
            await http.request(method, path, json=body, headers={"idempotency-key": path + method}) for _ in range(2)
        ]
        assert (first.is_success, again.status_code, again.content) == (True, first.status_code, first.content), path
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers.get("etag") == first.headers.get("etag"), path
    assert (await client.workflows.tag("etl")).version == 4, "it was undone once"


async def test_a_key_that_was_sent_with_another_request_is_refused(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)
    for path, body in (("/api/v1/users", {"external_id": "bob"}), ("/api/v1/workflows", {"definition": FLOW})):
        refused = await http.post(path, json=body, headers=KEY)
        assert (refused.status_code, refused.json()["code"]) == (422, "key_reused")
    assert await _users(client) == ["ada"]
    assert await client.workflows.list() == []


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("/api/v1/jobs", {"workflow": "etl"}, {"workflow": "etl", "labels": {"day": "1"}}),
        ("/api/v1/tasks", {"handler": "a", "params": {"n": 1}}, {"handler": "a", "params": {"n": 2}}),
        ("/api/v1/events", {"name": "go", "payload": {"n": 1}}, {"name": "go", "payload": {"n": 2}}),
    ],
    ids=["submit", "enqueue", "send"],
)
async def test_what_is_made_by_the_key_of_a_request_is_for_that_request_alone(
    path: str, body: dict[str, Any], other: dict[str, Any], http: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    first, again = [await http.post(path, json=body, headers=KEY) for _ in range(2)]
    assert (first.status_code, first.json()["created"]) == (201, True)
    assert (again.status_code, again.content) == (201, first.content)
    assert [answer.headers.get("idempotency-replayed") for answer in (first, again)] == [None, "true"]
    refused = await http.post(path, json=other, headers=KEY)
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (
        422, "key_reused", "idempotency-key",
    )  # fmt: skip


async def test_a_key_of_the_call_names_what_there_is_whatever_else_is_asked_for(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    made = await client.jobs.submit("etl", idempotency_key="nightly")
    for n, more in enumerate(({}, {"labels": {"day": "1"}})):
        body = {"workflow": "etl", "idempotency_key": "nightly", **more}
        for headers in ({}, {"idempotency-key": f"request-{n}"}):
            found = await http.post("/api/v1/jobs", json=body, headers=headers)
            assert (found.status_code, found.json()) == (201, {"id": str(made.id), "created": False})
    by_header = await http.post("/api/v1/jobs", json={"workflow": "etl"}, headers={"idempotency-key": "nightly"})
    assert by_header.json() == {"id": str(made.id), "created": False}, "no request has made it"
    assert await client.jobs.submit("etl", {}, labels={"day": "2"}, idempotency_key="nightly") == (made.id, False)


async def test_what_was_refused_may_be_sent_again_with_the_same_key(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    wrong = await http.post("/api/v1/users", json={"external_id": "ada", "role": "king"}, headers=KEY)
    assert wrong.status_code == 422
    assert (await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)).status_code == 201
    assert await _users(client) == ["ada"]


async def test_a_key_means_nothing_in_another_org(http: httpx.AsyncClient, client: weft.Client) -> None:
    await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    secret = (await acme.tokens.create("t", role="admin")).secret
    bearer = {"authorization": f"Bearer {secret}"}
    other = await http.post("/api/v1/users", json={"external_id": "eve"}, headers=KEY | bearer)
    assert (other.status_code, other.json()["external_id"]) == (201, "eve")
    again = await http.post("/api/v1/users", json={"external_id": "eve"}, headers=KEY | bearer)
    assert (again.status_code, again.content) == (201, other.content), "each org finds its own answer by the key"
    assert (await _users(client), await _users(acme)) == (["ada"], ["eve"])


async def test_a_secret_is_shown_once_also_by_its_key(http: httpx.AsyncClient, client: weft.Client) -> None:
    first = await http.post("/api/v1/tokens", json={"name": "nightly"}, headers=KEY)
    again = await http.post("/api/v1/tokens", json={"name": "nightly"}, headers=KEY)
    assert (again.status_code, again.json()["code"]) == (409, "answer_gone")
    assert first.json()["secret"] not in again.text
    assert [token.name for token in await client.tokens.list()] == ["nightly", "tester"]


async def test_answers_are_forgotten_with_the_keys_of_tasks(http: httpx.AsyncClient, client: weft.Client) -> None:
    await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)
    await Pruner(client.database, Settings.load(environ={})).run_once()
    assert (await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)).status_code == 201
    await Pruner(client.database, Settings.load(environ={}, idempotency_ttl="0s")).run_once()
    assert (await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)).status_code == 422


async def test_work_that_is_enqueued_by_a_key_is_told_to_workers_after_the_commit(
    http: httpx.AsyncClient, client: weft.Client, registry: weft.Registry
) -> None:
    @registry.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with weft.Worker(client=client, registry=registry):
        sent = {"tasks": [{"handler": greet.name, "params": {"name": "ada"}}]}
        made = await http.post("/api/v1/tasks/batch", json=sent, headers=KEY)
        assert await client.wait(int(made.json()["items"][0]["id"]), timeout=30) == "hello ada"
        assert (await http.post("/api/v1/tasks/batch", json=sent, headers=KEY)).content == made.content
    assert len((await client.list_tasks()).tasks) == 1


async def test_a_tag_is_changed_only_when_it_is_where_the_caller_saw_it(http: httpx.AsyncClient) -> None:
    pushed = await http.post("/api/v1/workflows", json={"definition": FLOW})
    etag = (await http.get("/api/v1/tags/etl/main")).headers["etag"]
    assert pushed.headers["etag"] == etag == '"1"'
    assert (await http.get("/api/v1/tags/etl/main", headers={"if-none-match": etag})).status_code == 304
    change = {"set": {"nodes.fetch.params.size": 2}}
    landed = await http.post("/api/v1/tags/etl/main/patch", json=change, headers={"if-match": etag})
    assert (landed.status_code, landed.headers["etag"]) == (200, '"2"')
    other = {"set": {"nodes.fetch.params.size": 3}}
    late = await http.post("/api/v1/tags/etl/main/patch", json=other, headers={"if-match": etag})
    assert (late.status_code, late.json()["code"]) == (412, "tag_conflict")
    wrong = await http.post("/api/v1/tags/etl/main/undo", headers={"if-match": "x"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "if-match")


async def test_those_who_wait_for_the_same_key_keep_nobody_else_waiting(
    server: Server,
    http: httpx.AsyncClient,
    client: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
    settings: Settings,
) -> None:
    async with Server(settings, port=0) as other:
        held = conn.transaction()
        await held.start()
        await conn.execute("lock table weft.user in exclusive mode")
        sent = [
            asyncio.create_task(http.post(f"{each.url}/api/v1/users", json={"external_id": "ada"}, headers=KEY))
            for each in (server, other)
            for _ in range(45)
        ]
        async with client.database.acquire() as look, asyncio.timeout(30):
            while not await look.fetchval("select count(*) > 0 from pg_locks where not granted"):
                pass
        for each in (server, other):
            async with asyncio.timeout(10):
                assert (await http.get(f"{each.url}/api/v1/queues")).status_code == 200
        assert not any(task.done() for task in sent)
        await held.commit()
        answers = await asyncio.gather(*sent)
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert [answer.headers.get("idempotency-replayed") for answer in answers].count(None) == 1


async def test_whoever_waits_long_for_a_key_is_told_that_it_is_busy_and_asks_again(client: weft.Client) -> None:
    async def act(_: weft.Client) -> Answered:
        # By another connection, so in another turn: it cannot come to an end before this one.
        with pytest.raises(KeyBusy, match="send the same again"):
            await once(client, "k", b"", act, is_secret=False, patience=0.01)
        return Answered(200, b"done", None)

    assert not (await once(client, "k", b"", act, is_secret=False)).is_repeated
    assert await once(client, "k", b"", act, is_secret=False) == (Answered(200, b"done", None), True)


async def test_several_versions_or_any_may_be_expected_and_one_that_is_not_exact_never_is(
    http: httpx.AsyncClient,
) -> None:
    await http.post("/api/v1/workflows", json={"definition": FLOW})
    path = "/api/v1/tags/etl/main"
    for known in ("*", '"1"', 'W/"1"', '"7","1"', '"x" , W/"1"'):
        assert (await http.get(path, headers={"if-none-match": known})).status_code == 304, known
    for other in ('"2"', '"11"', '"a,1"'):
        assert (await http.get(path, headers={"if-none-match": other})).status_code == 200, other
    for wrong in ("1", "", '"1', '*, "1"', '"1" "2"'):
        assert (await http.get(path, headers={"if-none-match": wrong})).status_code == 422, wrong
    for n, (match, status) in enumerate(
        [('W/"1"', 412), ('"7", W/"1"', 412), ('"x"', 412), ('"7", "1"', 200), ('"1"', 412), ("*", 200), ('"3"', 200)]
    ):
        change = {"set": {"nodes.fetch.params.size": n + 10}}
        answer = await http.post(f"{path}/patch", json=change, headers={"if-match": match})
        assert answer.status_code == status, (match, answer.text)
    flow = {"definition": FLOW.replace("workflow_id: etl", "workflow_id: new")}
    for match in ("*", '"1", "2"'):
        nothing = await http.post("/api/v1/workflows", json=flow, headers={"if-match": match})
        assert (nothing.status_code, nothing.json()["code"]) == (412, "tag_conflict")
    both = await http.post(f"{path}/undo", json={"expect": 4}, headers={"if-match": '"4"'})
    assert both.status_code == 422


async def test_what_was_carried_out_by_its_key_is_answered_wherever_the_tag_is_by_now(http: httpx.AsyncClient) -> None:
    await http.post("/api/v1/workflows", json={"definition": FLOW})
    sent = {"json": {"set": {"nodes.fetch.params.size": 2}}, "headers": KEY | {"if-match": '"1", "9"'}}
    first, again = [await http.post("/api/v1/tags/etl/main/patch", **sent) for _ in range(2)]
    assert (first.status_code, again.status_code, again.content) == (200, 200, first.content)
    assert first.headers["etag"] == again.headers["etag"] == '"2"'


async def test_a_reader_learns_nothing_by_a_key(make_http: MakeHttp, http: httpx.AsyncClient) -> None:
    await http.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)
    reader = await make_http(role="reader")
    assert (await reader.post("/api/v1/users", json={"external_id": "ada"}, headers=KEY)).status_code == 403
