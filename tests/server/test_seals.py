"""What was done through a server is kept with who, what and from where, and sealed so that tampering is evident."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
import httpx
import pytest
from matrix import make_things
from server_scene import MakeHttp

import weft
from weft.db.database import Database
from weft.queue import audit, seals
from weft.queue.services import Sealer
from weft.server.serving import Server

TAMPER = "set session_replication_role = replica; {}; reset session_replication_role"


async def test_an_act_is_kept_with_who_did_it_and_from_where(
    http: httpx.AsyncClient, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    (token,) = await client.tokens.list()
    which = f"token={token.id}"
    flow = {"workflow_id": "a", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}}
    job = await client.jobs.submit(flow)
    task = await client.enqueue("a")
    for n, path in enumerate(
        (f"tasks/{task.id}/cancel", f"jobs/{job.id}/pause", f"jobs/{job.id}/resume", f"jobs/{job.id}/cancel")
    ):
        answer = await http.post(f"/api/v1/{path}", json={}, headers={"x-request-id": f"r-{n}"})
        assert answer.status_code == 204
    kept = [(each.verb, each.subject_kind, each.actor, each.origin) for each in await client.audit(limit=4)]
    rows = await conn.fetch("select verb, subject_kind, actor, origin from weft.audits order by id desc limit 4")
    assert [tuple(row) for row in rows] == kept
    assert kept == [
        ("cancel", "job", "token:tester", f"127.0.0.1 r-3 {which}"),
        ("resume", "job", "token:tester", f"127.0.0.1 r-2 {which}"),
        ("pause", "job", "token:tester", f"127.0.0.1 r-1 {which}"),
        ("cancel", "task", "token:tester", f"127.0.0.1 r-0 {which}"),
    ]
    await client.workflows.push(flow)
    await http.post("/api/v1/tags/a/protect", json={}, headers={"x-request-id": "r-4"})
    assert [(each.verb, each.origin) for each in await client.audit(limit=1)] == [("protect", f"127.0.0.1 r-4 {which}")]
    odd = {"x-request-id": "two words", "x-forwarded-for": "10.9.8.7", "forwarded": "for=10.9.8.7"}
    await http.post("/api/v1/queues", json={"name": "mail"}, headers=odd)
    assert "two words" not in str((await client.audit(limit=1))[0].origin)
    assert str((await client.audit(limit=1))[0].origin).startswith("127.0.0.1")


async def test_of_two_tokens_of_one_name_it_is_told_which_acted(make_http: MakeHttp, client: weft.Client) -> None:
    for name in ("mail", "post"):
        http = await make_http()
        await http.post("/api/v1/queues", json={"name": name})
    acts = [each for each in await client.audit(limit=4) if each.subject_kind == "queue"]
    tokens = await client.tokens.list()
    assert len({token.name for token in tokens}) == 1
    assert [str(act.origin).split()[-1] for act in acts] == [f"token={token.id}" for token in tokens]


async def test_a_proxy_is_believed_when_the_settings_name_it(settings: weft.Settings, client: weft.Client) -> None:
    made = await client.tokens.create("tester", role="admin")
    headers = {"authorization": f"Bearer {made.secret}", "x-forwarded-for": "10.9.8.7"}
    async with (
        Server(replace(settings, server_proxies=("127.0.0.1",)), port=0) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers) as http,
    ):
        await http.post("/api/v1/queues", json={"name": "mail"})
    assert str((await client.audit(limit=1))[0].origin).startswith("10.9.8.7")


async def _acts(client: weft.Client, *names: str) -> None:
    for name in names:
        await client.create_queue(name)


async def test_acts_are_sealed_in_the_order_in_which_they_are_seen(
    client: weft.Client, database: Database, conn: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    await _acts(client, "a", "b")
    before = await client.verify_audit()
    assert (before.is_sound, before.sealed, before.unsealed, before.head) == (True, 0, 2, None)
    slow = await asyncpg.connect(url)
    begun = slow.transaction()
    await begun.start()
    await slow.execute("insert into weft.audit (org_id, actor, verb, subject_kind) values (1, 'slow', 'purge', 'task')")
    await _acts(client, "c")
    sealer = Sealer(database)
    assert await sealer.run_once() == 3
    first = await client.verify_audit()
    # What is committed after others that are sealed already is sealed by the next.
    await begun.commit()
    await slow.close()
    assert (await client.verify_audit()).unsealed == 1
    assert await sealer.run_once() == 1
    assert await sealer.run_once() == 0
    found = await client.verify_audit(head=first.head)
    assert (found.is_sound, found.sealed, found.unsealed) == (True, 4, 0)
    assert found.head is not None
    assert found.head.startswith("2:")


LATER = (
    "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
    "return clock_timestamp() + interval '1 day'"
)


async def test_an_act_is_sealed_however_long_its_transaction_lasts_and_then_looked_at_no_more(
    client: weft.Client, database: Database, conn: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    slow = await asyncpg.connect(url)
    begun = slow.transaction()
    await begun.start()
    late = await slow.fetchval(
        "insert into weft.audit (org_id, actor, verb, subject_kind) values (1, 'slow', 'purge', 'task') returning id"
    )
    await conn.execute(LATER)
    last = "select done_to from weft.audit_seal order by number desc limit 1"
    for name in ("a", "b", "c"):
        await _acts(client, name)
        assert await database.run(seals.seal) == 1
        assert await conn.fetchval(last) <= late
    await begun.commit()
    await slow.close()
    assert await database.run(seals.seal) == 1
    await _acts(client, "d")
    assert await database.run(seals.seal) == 1
    assert await conn.fetchval(last) > late
    found = await client.verify_audit()
    assert (found.is_sound, found.sealed, found.unsealed) == (True, 5, 0)


async def test_acts_of_long_ago_are_sealed_a_batch_at_a_time_until_none_is_left(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _acts(client, *"abcde")
    await conn.execute(LATER)
    assert [await conn.fetchval("select weft.seal_audit(2)") for _ in range(4)] == [2, 2, 1, 0]


OLDEST = (
    "delete from weft.audit where id in (select unnest(ids) from weft.audit_seal where number = 1); "
    "delete from weft.audit_seal where number = 1"
)


BACKDATED = (
    "insert into weft.audit (id, org_id, actor, verb, subject_kind) "
    "select min(id) + 1, 1, 'ann', 'purge', 'task' from weft.audit"
)
# As if a minute had passed.
PASSED = (
    "update weft.audit_seal s set done_to = a.id, digest = "
    "weft.seal_digest(s.org_id, s.number, s.before, s.before_id, a.id, s.ids, s.hashes) "
    "from (select max(id) as id from weft.audit) a where number = 3"
)
FOURTH = (
    "insert into weft.audit_seal (org_id, number, ids, hashes, before, before_id, digest, next_xid, seen_to, done_to) "
    "select s.org_id, 4, array[a.id], array[weft.audit_hash(a)], s.digest, s.before_id, weft.seal_digest(s.org_id, 4, "
    "s.digest, s.before_id, {0}, array[a.id], array[weft.audit_hash(a)]), s.next_xid, s.seen_to, {0} "
    "from weft.audit_seal s cross join (select * from weft.audit order by actor = 'ann' desc, id limit 1) a "
    "where s.number = 3"
)


@pytest.mark.parametrize(
    ("code", "tampering"),
    [
        ("changed", "update weft.audit set actor = 'somebody else' where subject_name = 'b'"),
        ("changed", "update weft.audit set detail = '{\"x\": 1}' where subject_name = 'b'"),
        ("changed", "update weft.audit set at = at - interval '1 second' where subject_name = 'b'"),
        ("changed", "update weft.audit set origin = '10.0.0.1' where subject_name = 'b'"),
        ("missing", "delete from weft.audit where subject_name = 'b'"),
        ("broken", "update weft.audit_seal set ids = ids[2:], hashes = hashes[2:] where number = 1"),
        (
            "broken",
            "update weft.audit_seal set hashes = array_fill(before, array[cardinality(hashes)]) where number = 1",
        ),
        ("broken", "delete from weft.audit_seal where number = 2"),
        ("lost", "delete from weft.audit_seal where number = 3"),
        (
            "broken",
            "update weft.audit_seal s set ids = s.ids[2:], hashes = s.hashes[2:], "
            "digest = weft.seal_digest(s.org_id, s.number, s.before, s.before_id, s.done_to, s.ids[2:], s.hashes[2:]) "
            "where number = 1",
        ),
        ("lost", OLDEST),
        (
            "broken",
            f"{OLDEST}; update weft.audit_seal s set before_id = 0, digest = "
            "weft.seal_digest(s.org_id, s.number, s.before, 0, s.done_to, s.ids, s.hashes) where number = 2",
        ),
        (
            "broken",
            f"{OLDEST}; update weft.audit_seal s set number = 1, before_id = 0, "
            "digest = weft.seal_digest(s.org_id, 1, s.before, 0, s.done_to, s.ids, s.hashes) where number = 2",
        ),
        ("added", f"{BACKDATED}; {PASSED}"),
        # Whoever opens again what was closed lets it be sealed like any other.
        ("broken", "update weft.audit_seal set done_to = done_to - 1 where number = 3"),
        ("added", f"{BACKDATED}; {PASSED}; {FOURTH.format('s.done_to')}"),
        ("broken", f"{PASSED}; {FOURTH.format('0')}"),
    ],
)
async def test_tampering_is_evident(
    code: str, tampering: str, client: weft.Client, database: Database, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    for names in (("a", "b"), ("c",), ("d",)):
        await _acts(client, *names)
        await database.run(seals.seal)
    noted = await client.verify_audit()
    assert (noted.is_sound, noted.sealed) == (True, 4)
    await conn.execute(TAMPER.format(tampering))
    found = await client.verify_audit(head=noted.head)
    assert not found.is_sound
    assert code in {each.code for each in found.findings}


async def test_what_is_past_its_retention_may_be_gone_and_the_chain_goes_on(
    client: weft.Client, database: Database, conn: asyncpg.Connection[asyncpg.Record], settings: weft.Settings
) -> None:
    await _acts(client, "a", "b")
    assert await database.run(seals.seal) == 2
    # One that was committed late is older than those of the seal before it: that seal does not go before the first.
    await conn.execute(
        "insert into weft.audit (id, org_id, actor, verb, subject_kind) "
        "values (weft.first_id_at(weft.now() - interval '2 hours'), 1, 'slow', 'purge', 'task')"
    )
    assert await database.run(seals.seal) == 1
    await _acts(client, "c")
    assert await database.run(seals.seal) == 1
    noted = (await client.verify_audit()).head
    assert await database.run(lambda conn: seals.prune(conn, timedelta(hours=1))) == 0
    await conn.execute(LATER)
    short = replace(settings, audit_retention=timedelta(hours=12))
    assert await database.run(lambda conn: audit.prune(conn, short.acts_kept)) == 4
    # The last stays, so that the next follows on it.
    assert await database.run(lambda conn: seals.prune(conn, short.acts_kept)) == 2
    await _acts(client, "d")
    await database.run(seals.seal)
    async with weft.Client(settings=short) as other:
        found = await other.verify_audit(head=noted)
        assert (found.findings, found.sealed, found.unsealed) == ((), 1, 0)
        assert str(found.head).startswith("4:")
        (lost,) = (await other.verify_audit(head=f"1:{'0' * 64}")).findings
        assert "past the retention" in lost.what
    # Whoever keeps acts for longer is told that some are gone.
    assert {each.code for each in (await client.verify_audit()).findings} == {"lost", "missing"}


async def test_neither_acts_nor_seals_are_changed_by_a_statement(
    client: weft.Client, database: Database, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _acts(client, "a")
    await database.run(seals.seal)
    for table in ("audit", "audit_seal"):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="never changed"):
            await conn.execute(f"update weft.{table} set org_id = org_id")


async def test_two_who_seal_at_once_make_one_chain(client: weft.Client, url: str) -> None:
    await _acts(client, "a", "b")
    both = [await asyncpg.connect(url) for _ in range(2)]
    begun = both[0].transaction()
    await begun.start()
    assert await seals.seal(both[0]) == 2
    # The second has read that nothing is sealed, and waits for the first to end.
    second = asyncio.create_task(seals.seal(both[1]))
    async with client.database.acquire() as conn, asyncio.timeout(60):
        while not await conn.fetchval("select count(*) > 0 from pg_locks where not granted"):
            pass
    await begun.commit()
    assert await second == 0
    found = await client.verify_audit()
    assert (found.is_sound, found.sealed) == (True, 2)
    for each in both:
        await each.close()


async def test_each_org_has_a_chain_of_its_own_and_sees_no_other(
    http: httpx.AsyncClient, client: weft.Client, database: Database
) -> None:
    await client.orgs.create("acme")
    acme = client.of_org((await client.orgs.show("acme")).id, "acme")
    await _acts(acme, "theirs")
    await _acts(client, "ours")
    await database.run(seals.seal)
    both = [await each.verify_audit() for each in (client, acme)]
    assert [each.is_sound for each in both] == [True, True]
    assert both[0].head != both[1].head
    answer = await http.get("/api/v1/audit/verify", params={"head": str(both[1].head)})
    assert [each["code"] for each in answer.json()["findings"]] == ["lost"]
    assert (await http.get("/api/v1/audit/verify", params={"head": "nonsense"})).status_code == 422


async def test_what_is_removed_of_the_history_is_kept_as_an_act(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await make_things(client, "acme")
    await client.workflows.snapshot("acme/main", set={"nodes.fetch.params.size": 3})
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
        "return clock_timestamp() + interval '2 hours'"
    )
    assert (await client.workflows.gc(3600, dry_run=True)).snapshots == 1
    assert not [each for each in await client.audit() if each.subject_kind == "history"]
    await client.workflows.gc(3600)
    assert [(each.verb, each.detail["snapshots"]) for each in await client.audit(limit=1)] == [("purge", 1)]
