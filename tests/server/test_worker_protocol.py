"""Workers without a database: what they may claim and settle over plain HTTP, and what is refused them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import pytest

import weft
from weft.server.serving import Server

MakeHttp = Callable[..., Awaitable[httpx.AsyncClient]]


class Hands:
    """A worker that speaks plain HTTP."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.id = ""

    async def ask(self, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return dict(answer.json())

    async def register(self, *queues: str, **more: Any) -> Hands:
        told = await self.ask("/v1/worker/register", queues=list(queues) or ["default"], handlers=["h"], **more)
        self.id = told["worker_id"]
        return self

    async def claim(self, limit: int = 1, **more: Any) -> list[dict[str, Any]]:
        told = await self.ask("/v1/task/claim", worker_id=self.id, limit=limit, **more)
        return list(told["tasks"])

    async def act(self, verb: str, task: dict[str, Any], status: int = 200, **more: Any) -> dict[str, Any]:
        return await self.ask(f"/v1/task/{verb}", status, **_lease(task), **more)

    async def fail(self, task: dict[str, Any], status: int = 200, **more: Any) -> dict[str, Any]:
        return await self.act("fail", task, status, **more)


def _lease(task: dict[str, Any]) -> dict[str, str]:
    return {"task_id": task["task_id"], "lease_token": task["lease_token"]}


@pytest.fixture
async def hands(make_http: MakeHttp) -> Hands:
    return await Hands(await make_http(role="worker")).register()


async def _job(client: weft.Client, nodes: dict[str, Any] | None = None) -> int:
    found = nodes or {"a": {"type": "task", "handler": "h", "next": "END"}}
    around = {"START": {"type": "start", "next": next(iter(found))}, **found, "END": {"type": "end"}}
    return (await client.jobs.submit({"workflow_id": "w", "nodes": around})).id


async def test_a_task_is_claimed_completed_and_its_output_is_there(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h", {"to": "ada"}, timeout=300)
    (task,) = await hands.claim()
    assert task["params"] == {"to": "ada"}
    assert (task["task_id"], task["handler"], task["queue"]) == (str(made.id), "h", "default")
    assert (task["timeout_seconds"], task["retry_count"], task["attempt"]) == (300, 0, 1)
    await hands.act("complete", task, output={"sent": True})
    assert await client.wait(made.id) == {"sent": True}
    assert [each.id for each in await client.workers() if str(each.id) == hands.id]


async def test_spec_outputs_become_a_part_of_the_output(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h")
    (task,) = await hands.claim()
    outputs = {
        "events": {"paths": ["s3://b/1"], "cursors": {"block": 9}, "partitions": ["d=1"], "metrics": {"rows": 3}}
    }
    await hands.act("complete", task, output={"n": 1}, outputs=outputs)
    assert await client.wait(made.id) == {"n": 1, "outputs": outputs}


async def test_completing_again_is_no_news_and_a_stale_lease_writes_nothing(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h")
    (task,) = await hands.claim()
    stale = {**task, "lease_token": f"{hands.id}.7"}
    told = await hands.act("complete", stale, 409, output="wrong")
    assert told["code"] == "lease_lost"
    for _ in range(2):
        assert (await hands.act("complete", task, output="right"))["tasks"] == [str(made.id)]
    assert await client.wait(made.id) == "right"
    assert (await hands.fail(task, 409))["code"] == "lease_lost"


async def test_one_request_completes_some_and_claims_others(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue_many([weft.NewTask("h", {"n": n}) for n in range(6)])
    tasks = await hands.claim(limit=4)
    done = [{**_lease(task), "output": task["params"]["n"]} for task in tasks]
    done[0]["lease_token"] = f"{hands.id}.9"
    told = await hands.ask("/v1/task/claim", worker_id=hands.id, limit=4, completed=done)
    assert told["refused"] == [tasks[0]["task_id"]]
    assert len(told["tasks"]) == 2
    assert [await client.wait(made[n].id) for n in range(1, 4)] == [1, 2, 3]


@pytest.mark.parametrize("verb", ["complete", "fail", "claim"])
async def test_an_outcome_that_somebody_has_locked_waits_and_holds_up_no_other(
    verb: str, hands: Hands, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = await client.enqueue_many([weft.NewTask("h", retry=0) for _ in range(3)])
    ids = [each.id for each in made]
    leases = [_lease(task) for task in await hands.claim(limit=3)]
    states = "select state::text from weft.tasks where id = any ($1) order by id"
    path, field = f"/v1/task/{verb}", "completed" if verb == "claim" else "tasks"
    more = {"worker_id": hands.id, "limit": 0} if verb == "claim" else {}
    ended = "dead" if verb == "fail" else "completed"
    async with conn.transaction():
        await conn.execute("select 1 from weft.task where id = $1 for update", ids[1])
        for sent in (leases, [leases[1]]):
            told = await hands.ask(path, 409, **more, **{field: sent})
            assert (told["code"], told["about"]["task_id"]) == ("outcome_waits", str(ids[1]))
            assert [row["state"] for row in await conn.fetch(states, ids)] == [ended, "running", ended]
    await hands.ask(path, **more, **{field: leases})
    assert [row["state"] for row in await conn.fetch(states, ids)] == [ended] * 3


async def test_a_claim_waits_and_is_woken_by_what_is_enqueued(hands: Hands, client: weft.Client) -> None:
    waiting = asyncio.create_task(hands.claim(wait=20))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    made = await client.enqueue("h")
    (task,) = await waiting
    assert task["task_id"] == str(made.id)
    assert loop.time() - began < 15


async def test_a_token_that_is_revoked_amid_a_wait_gets_nothing_more(
    make_http: MakeHttp, http: httpx.AsyncClient, client: weft.Client
) -> None:
    hands = await Hands(await make_http(role="worker")).register()
    await hands.ask("/v1/worker/listen", worker_id=hands.id, wait=0)
    waiting = [
        asyncio.create_task(hands.http.post(path, json={"worker_id": hands.id, "wait": 20}))
        for path in ("/v1/task/claim", "/v1/worker/listen")
    ]
    held = await client.enqueue("never", queue="default", delay=3600)
    reader = await make_http(role="reader")
    waiting.append(asyncio.create_task(reader.get(f"/api/v1/tasks/{held.id}/wait", params={"timeout": 20})))
    # They all wait by now: each was begun before these, which are answered.
    await hands.ask("/v1/worker/pass-on", worker_id=hands.id)
    await http.get("/api/v1/tasks")
    for token in await client.tokens.list():
        if token.role in ("worker", "reader"):
            await client.tokens.revoke(token.id)
    made = await client.enqueue("h")
    await client.cancel(held.id)
    for answer in await asyncio.gather(*waiting):
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), answer.text
    assert (await client.get_task(made.id)).state == "ready"


async def test_a_waiting_claim_does_not_hold_up_the_end_of_the_server(
    settings: weft.Settings, client: weft.Client
) -> None:
    token = (await client.tokens.create("w", role="worker")).secret
    async with Server(settings, port=0) as server:
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http:
            hands = await Hands(http).register()
            waiting = asyncio.create_task(hands.claim(wait=60))
            # One that was begun later has been answered, so the other waits by now.
            await hands.claim()
            loop = asyncio.get_running_loop()
            began = loop.time()
            await server.__aexit__(None, None, None)
            assert await waiting == []
            assert loop.time() - began < 9


async def test_a_failure_is_tried_again_as_the_task_says_until_it_is_dead(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h", retry=weft.Retry(max_attempts=2, backoff="fixed", initial_delay=0))
    error = {"type": "Boom", "message": "it broke", "traceback": "line 1"}
    (task,) = await hands.claim()
    assert (await hands.fail(task, error=error))["tasks"] == [str(made.id)]
    assert (await hands.fail(task, error=error))["tasks"] == [str(made.id)], "told again it is no news"
    (again,) = await hands.claim(wait=20)
    assert (again["attempt"], again["retry_count"]) == (2, 1)
    await hands.fail(again, error=error)
    found = await client.get_task(made.id)
    assert (found.state, found.error) == ("dead", error)
    assert [attempt.outcome for attempt in found.attempts] == ["failed", "failed"]


async def test_what_is_not_retryable_has_failed_and_a_snooze_does_not_count(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h")
    (task,) = await hands.claim()
    await hands.fail(task, snooze=0)
    (task,) = await hands.claim(wait=20)
    assert (task["attempt"], task["retry_count"]) == (2, 0)
    await hands.fail(task, retryable=False, error={"type": "Bad", "message": "no"})
    found = await client.get_task(made.id)
    assert (found.state, found.reason, found.failures) == ("failed", "non_retryable", 1)


async def test_what_is_released_is_uncounted_and_claimed_by_others(hands: Hands, client: weft.Client) -> None:
    await client.enqueue("h")
    (task,) = await hands.claim()
    assert (await hands.ask("/v1/task/release", tasks=[_lease(task)]))["refused"] == []
    assert (await hands.ask("/v1/task/release", tasks=[_lease(task)]))["refused"] == [task["task_id"]]
    (again,) = await hands.claim(wait=20)
    assert again["retry_count"] == 0


async def test_heartbeats_tell_what_is_lost_and_whoever_left_must_register_anew(
    hands: Hands, client: weft.Client
) -> None:
    made = await client.enqueue_many([weft.NewTask("h"), weft.NewTask("h", heartbeat_timeout=60)])
    tasks = await hands.claim(limit=2)
    await client.cancel(made[0].id)
    told = await hands.ask("/v1/worker/heartbeat", worker_id=hands.id, tasks=[_lease(task) for task in tasks])
    assert (told["lost"], told["held"]) == ([str(made[0].id)], 1)
    beaten = await hands.ask("/v1/task/heartbeat", tasks=[_lease(task) for task in tasks])
    assert (beaten["tasks"], beaten["refused"]) == ([str(made[1].id)], [str(made[0].id)])
    news = await hands.ask("/v1/worker/listen", worker_id=hands.id, wait=20)
    assert f"cancel {made[0].id} 1" in news["messages"] or news["is_new"]
    for _ in range(2):
        await hands.ask("/v1/worker/deregister", worker_id=hands.id)
    assert (await hands.ask("/v1/worker/heartbeat", 409, worker_id=hands.id))["code"] == "worker_lost"
    assert (await client.get_task(made[1].id)).state == "ready", "what it held is with others"


async def test_whoever_has_more_news_than_are_kept_is_told_that_some_are_missing(
    hands: Hands, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    other = await Hands(hands.http).register()
    for each in (hands, other):
        while (await each.ask("/v1/worker/listen", worker_id=each.id, wait=0))["is_new"]:
            pass
    notify = "select pg_notify('weft_worker_' || $1, 'cancel ' || n || ' 1') from generate_series(1, $2) n"
    await conn.execute(notify, hands.id, 1001)
    await conn.execute(notify, other.id, 1)
    # It is told after the others, over the same connection.
    assert await other.ask("/v1/worker/listen", worker_id=other.id, wait=30) == {
        "messages": ["cancel 1 1"], "is_new": False
    }  # fmt: skip
    told = await hands.ask("/v1/worker/listen", worker_id=hands.id)
    assert (len(told["messages"]), told["is_new"]) == (1000, True)


async def test_whoever_was_given_up_for_lost_is_told_by_its_claim_and_does_not_wait(
    hands: Hands, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    assert await hands.claim() == []
    await conn.execute("update weft.worker set state = 'lost' where id = $1", int(hands.id))
    for wait in (0, 30):
        told = await hands.ask("/v1/task/claim", 409, worker_id=hands.id, wait=wait)
        assert told["code"] == "worker_lost"


async def test_a_claim_whose_answer_was_lost_is_found_among_the_holdings(hands: Hands, client: weft.Client) -> None:
    await client.enqueue("h", {"n": 1})
    (task,) = await hands.claim()
    found = await hands.ask("/v1/worker/holdings", worker_id=hands.id)
    assert found["tasks"] == [task]


async def test_task_fetch_gives_the_fields_of_the_message_with_attempt_and_lease(
    hands: Hands, client: weft.Client
) -> None:
    nodes = {
        "first": {"type": "task", "handler": "h", "params": {"size": 2}, "next": "second"},
        "second": {"type": "task", "handler": "h", "params": {"got": "{{ nodes.first.output.n }}"}, "next": "END"},
    }
    async with weft.Orchestrator(client=client):
        job_id = await _job(client, nodes)
        (task,) = await hands.claim(wait=20)
        await hands.act("complete", task, output={"n": 7})
        (task,) = await hands.claim(wait=20)
    assert task["params"] == {"got": 7}, "params are rendered by the server"
    for answer in (
        await hands.http.get("/internal/task-fetch", params=_lease(task)),
        await hands.http.post("/internal/task-fetch", json=_lease(task)),
    ):
        found = answer.json()
        assert {name: found[name] for name in ("task_id", "job_id", "node_id", "handler", "params", "retry_count")} == {
            "task_id": task["task_id"], "job_id": str(job_id), "node_id": "second", "handler": "h",
            "params": {"got": 7}, "retry_count": 0,
        }  # fmt: skip
        assert found["lease_token"] == task["lease_token"]
    gone = await hands.http.get("/internal/task-fetch", params={**_lease(task), "lease_token": f"{hands.id}.5"})
    assert gone.json()["code"] == "lease_lost"


async def test_steps_and_checkpoints_outlast_the_attempt_that_saved_them(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h")
    (task,) = await hands.claim()
    assert (await hands.act("step/load", task, name="charge"))["step"] is None
    await hands.act("step", task, name="charge", data={"order": 7}, took=0.5)
    await hands.act("checkpoint", task, phase="copy", data=[1, 2])
    await hands.act("metrics", task, data={"rows": 3})
    await hands.fail(task, snooze=0)
    (later,) = await hands.claim(wait=20)
    assert (await hands.act("step", task, 409, name="late", data=1))["code"] == "lease_lost"
    assert (await hands.act("step/load", task, 409, name="charge"))["code"] == "lease_lost"
    found = (await hands.act("step/load", later, name="charge"))["step"]
    assert (found["data"], found["attempt"]) == ({"order": 7}, 1)
    assert (await hands.act("step/load", later))["step"]["name"] == "copy"
    await hands.act("step/drop", later, name="copy")
    assert (await hands.act("step/load", later))["step"]["name"] == "charge"
    assert [step.name for step in (await client.get_task(made.id)).steps] == ["charge"]
    assert (await hands.act("step", later, 422, name="@metrics 1", data=1))["field"] == "name"


async def test_spawned_tasks_are_made_once_a_call_and_awaited(hands: Hands, client: weft.Client) -> None:
    async with weft.Orchestrator(client=client):
        await _job(client)
        (task,) = await hands.claim(wait=20)
        child = await hands.act("spawn", task, call="=x", handler="h", params={"n": 1})
        assert await hands.act("spawn", task, call="=x", handler="h", params={"n": 1}) == child
        assert (await hands.act("await", task, ids=[child["task_id"]], wait=0))["ended"] is None
        (made,) = await hands.claim(wait=20)
        assert made["task_id"] == child["task_id"]
        await hands.act("complete", made, output={"ok": 1})
        (ended,) = (await hands.act("await", task, ids=[child["task_id"]], wait=20))["ended"]
        assert (ended["state"], ended["output"]) == ("completed", {"ok": 1})
        assert (await hands.act("await", task, 404, ids=["99"]))["code"] == "not_found"


async def test_a_log_is_appended_at_its_offset_however_often_it_is_sent(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue("h")
    (task,) = await hands.claim()
    assert (await hands.act("log", task, offset=0, text="one\n"))["size"] == 4
    assert (await hands.act("log", task, offset=0, text="one\ntwo ü\n"))["size"] == 11
    assert (await hands.act("log", task, offset=50, text="gap"))["size"] == 11
    await hands.fail(task, snooze=0)
    (later,) = await hands.claim(wait=20)
    await hands.act("log", later, offset=0, text="again\n")
    assert (await hands.act("log", task, offset=11, text="late"))["size"] == 11
    assert await client.read_log(made.id) == "one\ntwo ü\n\n[weft: attempt 2]\nagain\n".encode()
    assert (await hands.act("log", {**task, "lease_token": f"{hands.id}.9"}, 409))["code"] == "lease_lost"


async def test_the_logs_of_several_attempts_are_appended_at_once_and_none_of_what_is_anothers(
    hands: Hands, client: weft.Client
) -> None:
    made = await client.enqueue_many([weft.NewTask("h"), weft.NewTask("h")])
    tasks = [{**_lease(task), "text": f"{task['task_id']}\n"} for task in await hands.claim(limit=2)]
    stale = {**tasks[1], "lease_token": f"{hands.id}.9"}
    told = await hands.ask("/v1/task/logs", tasks=[tasks[0], stale])
    assert told == {"sizes": {str(made[0].id): 19}, "refused": [str(made[1].id)]}
    assert (await hands.ask("/v1/task/logs", 422, tasks=[tasks[1], stale]))["field"] == "tasks"
    assert [await client.read_log(each.id) for each in made] == [f"{made[0].id}\n".encode(), None]


async def test_large_values_go_through_the_server(make_http: MakeHttp, client: weft.Client) -> None:
    hands = await Hands(await make_http(role="worker")).register()
    large = "x" * (client.settings.inline_limit + 1)
    made = [await client.enqueue("h", {"text": large}) for _ in range(2)]
    first, second = await hands.claim(limit=2)
    assert first["params"] is None
    got = await hands.http.get(f"/v1/task/blob/{first['params_blob']['digest']}")
    assert got.json() == {"text": large}
    assert (await hands.http.get("/internal/task-fetch", params=_lease(first))).json()["params"] == {"text": large}
    await hands.act("complete", first, output=large)
    put = await hands.http.put("/v1/task/blob", params=_lease(second), content=b'"' + b"y" * 300_000 + b'"')
    assert (await hands.act("complete", second, 404, blob={"digest": "0" * 64, "size": 1}))["code"] == "not_found"
    for content in (b"\xff", b'"cut off'):
        unreadable = (await hands.http.put("/v1/task/blob", params=_lease(second), content=content)).json()
        assert (await hands.act("complete", second, 422, blob=unreadable))["field"] == "tasks[0].blob"
    await hands.act("complete", second, blob={**put.json(), "size": 7})
    assert [len(await client.wait(each.id)) for each in made] == [len(large), 300_000]
    late = await hands.http.put("/v1/task/blob", params=_lease(second), content=b"{}")
    assert late.json()["code"] == "lease_lost"
    assert (await hands.http.get(f"/v1/task/blob/{'0' * 64}")).status_code == 404


@pytest.mark.parametrize("role", ["reader", "writer", "admin", None])
async def test_only_tokens_of_workers_use_the_protocol(make_http: MakeHttp, role: str | None) -> None:
    http = await make_http(role=role)
    for method, path in (
        ("POST", "/v1/worker/register"), ("POST", "/v1/task/claim"),
        ("GET", "/internal/task-fetch?task_id=1&lease_token=1.1"),
        ("PUT", "/v1/task/blob?task_id=1&lease_token=1.1"), ("GET", f"/v1/task/blob/{'0' * 64}"),
    ):  # fmt: skip
        answer = await http.request(method, path, json={})
        assert answer.status_code == (401 if role is None else 403)


async def test_a_token_of_named_queues_works_these_alone(make_http: MakeHttp, client: weft.Client) -> None:
    await client.create_queue("secret")
    secret = await client.enqueue("h", queue="secret")
    hands = Hands(await make_http(role="worker", queues=["mail"]))
    refused = await hands.ask("/v1/worker/register", 404, queues=["mail", "secret"], handlers=["h"])
    assert refused["code"] == "unknown_queue"
    await hands.register("mail")
    assert await hands.claim() == []
    assert (await hands.ask("/v1/worker/register", 422, queues=["@control"], handlers=["h"]))["field"] == "queues[0]"
    async with weft.Orchestrator(client=client):
        await _job(client, {"a": {"type": "task", "handler": "h", "queue": "mail", "next": "END"}})
        (task,) = await hands.claim(wait=20)
        assert (await hands.act("spawn", task, 404, call="#1", handler="h", queue="secret"))["code"] == "unknown_queue"
        child = await hands.act("spawn", task, call="#1", handler="h", queue="mail")
        assert (await hands.act("await", task, ids=[child["task_id"]], wait=0))["ended"] is None
        assert (await hands.act("await", task, 404, ids=[str(secret.id)], wait=0))["code"] == "not_found"


async def test_nobody_acts_in_the_name_of_another_tokens_worker(
    hands: Hands, make_http: MakeHttp, client: weft.Client
) -> None:
    made = await client.enqueue("h")
    (task,) = await hands.claim()
    other = Hands(await make_http(role="worker"))
    for path, body in (
        ("/v1/task/claim", {"worker_id": hands.id}), ("/v1/worker/heartbeat", {"worker_id": hands.id}),
        ("/v1/worker/deregister", {"worker_id": hands.id}), ("/v1/worker/listen", {"worker_id": hands.id}),
        ("/v1/worker/holdings", {"worker_id": hands.id}), ("/v1/task/complete", _lease(task)),
        ("/v1/task/fail", {"tasks": [_lease(task)]}), ("/v1/task/release", {"tasks": [_lease(task)]}),
        ("/v1/task/step", {**_lease(task), "name": "a"}), ("/v1/task/step/load", _lease(task)),
        ("/v1/task/log", {**_lease(task), "text": "x"}),
        ("/v1/task/spawn", {**_lease(task), "call": "#1", "handler": "h"}),
        ("/internal/task-fetch", _lease(task)),
    ):  # fmt: skip
        if path == "/v1/worker/deregister":  # whoever is not there has left
            assert await other.ask(path, **body) == {}
        else:
            assert (await other.ask(path, 409, **body))["code"] == "worker_lost", path
    assert (await client.get_task(made.id)).state == "running"


async def test_claims_whose_params_cannot_be_read_are_given_back_and_what_was_completed_stays(
    hands: Hands, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    first = await client.enqueue("h")
    done = [{**_lease(task), "output": 1} for task in await hands.claim()]
    made = await client.enqueue("h", {"text": "x" * 3000})
    await conn.execute("alter function weft.params_of(bigint[]) rename to hidden")
    try:
        told = await hands.ask("/v1/task/claim", worker_id=hands.id, limit=1, completed=done)
        assert (told["tasks"], told["refused"]) == ([], [])
        answer = await hands.http.post("/v1/task/claim", json={"worker_id": hands.id, "limit": 1})
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert answer.headers["connection"] == "close", "nothing is asked by a connection that is closed after it"
    finally:
        await conn.execute("alter function weft.hidden(bigint[]) rename to params_of")
    assert await client.wait(first.id) == 1
    (task,) = await hands.claim()
    assert (task["retry_count"], task["crashes"]) == (0, 0), "nobody held it, and nothing counts"
    assert (await client.get_task(made.id)).state == "running"


async def test_a_worker_of_another_server_process_is_known_here_too(
    settings: weft.Settings, client: weft.Client
) -> None:
    await client.enqueue("h")
    headers = {"authorization": f"Bearer {(await client.tokens.create('w', role='worker')).secret}"}
    async with Server(settings, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        hands = await Hands(http).register()
        (task,) = await hands.claim()
    async with Server(settings, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        hands.http = http
        assert (await hands.act("complete", task, output=1))["refused"] == []


async def test_a_limited_queue_runs_no_more_through_a_server(hands: Hands, client: weft.Client) -> None:
    await client.limit_queue("default", 2)
    await client.enqueue_many([weft.NewTask("h") for _ in range(4)])
    await hands.ask("/v1/worker/heartbeat", worker_id=hands.id)
    tasks: list[dict[str, Any]] = []
    while len(tasks) < 2:
        tasks += await hands.claim(limit=4, wait=5)
    assert len(tasks) == 2
    assert await hands.claim(limit=4) == []
    await hands.act("complete", tasks[0])
    assert len(await hands.claim(limit=4, wait=20)) == 1


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/task/claim", {"worker_id": 7}, "worker_id"),
        ("/v1/task/claim", {"worker_id": "7", "limit": 100_000}, "limit"),
        ("/v1/task/complete", {"task_id": "7", "lease_token": "x"}, "lease_token"),
        ("/v1/task/complete", {"output": 1}, "task_id"),
        ("/v1/task/fail", {"tasks": []}, "tasks"),
        ("/v1/task/step", {"task_id": "7", "lease_token": "1.1", "nane": "a"}, "name"),
    ],
)
async def test_bad_input_names_the_field(hands: Hands, path: str, body: dict[str, Any], field: str) -> None:
    assert (await hands.ask(path, 422, **body))["field"] == field


async def test_an_output_that_cannot_be_kept_refuses_the_whole_request(hands: Hands, client: weft.Client) -> None:
    made = await client.enqueue_many([weft.NewTask("h"), weft.NewTask("h")])
    tasks = await hands.claim(limit=2)
    done = [{**_lease(tasks[0]), "output": 1}, {**_lease(tasks[1]), "output": "nul \x00"}]
    told = await hands.ask("/v1/task/complete", 422, tasks=done)
    assert told["field"] == "tasks[1].output"
    assert (await client.get_task(made[0].id)).state == "running"
    packed = gzip.compress(b"{}")
    assert (await hands.http.post("/v1/task/claim", content=packed)).status_code == 415
    told = await hands.http.post("/v1/task/claim", content=packed, headers={"content-type": "application/json"})
    assert (told.status_code, told.json()["code"]) == (400, "malformed_request")
