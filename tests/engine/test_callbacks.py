"""Who is told when a job has ended: once it is committed, signed, again until it is taken, and nobody inside."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from engine_scene import Clock, MakeClient, until

import weft
from receivers import Receiver, receiving, self_signed
from weft.jobs.callbacks import Callbacks
from weft.jobs.posting import NotDelivered, Poster, is_public
from weft.queue.services import Drainer
from weft.worker.registry import Registry

KEY = b"k" * 32
OTHER = b"any-text-of-24-or-more-characters"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.task(name="say", retry=0)
    async def say(fails: bool = False) -> str:
        if fails:
            raise ValueError("as asked")
        return "said"

    return registry


def flow(**params: Any) -> dict[str, Any]:
    return {
        "workflow_id": "told",
        "nodes": {
            "START": {"type": "start", "next": "say"},
            "say": {"handler": "say", "params": params, "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.say.output }}"},
        },
    }


async def states(conn: asyncpg.Connection[asyncpg.Record]) -> list[tuple[str, int]]:
    rows = await conn.fetch("select state::text, attempts from weft.outbox order by id")
    return [(row[0], row[1]) for row in rows]


def settings_for(receiver: Receiver, **more: Any) -> dict[str, Any]:
    return {"callback_allowed": f"127.0.0.1:{receiver.port}", "callback_secret": SECRET, **more}


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
async def test_a_receiver_is_told_how_the_job_ended(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record], ending: str
) -> None:
    async with receiving() as receiver:
        client = await make_client(**settings_for(receiver, public_url="https://weft.example.com/app/"))
        handle = await client.jobs.submit(flow(fails=ending == "failed"), callback_url=receiver.url)
        quiet = await client.jobs.submit(flow())
        assert (await client.jobs.show(handle.id)).callback_url == receiver.url
        if ending == "cancelled":
            await client.jobs.cancel(handle.id)
        async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
            job = await client.jobs.wait(handle.id, timeout=30)
            await client.jobs.wait(quiet.id, timeout=30)
            (told,) = await receiver.until(1)
            await until(lambda: states(conn), lambda found: found == [("done", 1)])
    assert (job.state, job.callback_url) == (ending, receiver.url)
    assert job.ended_at is not None
    said = told.json
    assert said.pop("ended_at").endswith("Z")
    assert said == {
        "org": "default",
        "job_id": str(job.id),
        "status": ending,
        "workflow_id": "told",
        "reason": job.reason,
        "result_url": f"https://weft.example.com/app/jobs/{job.id}/result",
    }
    assert told.path == "/hooks/weft?token=abc"
    assert told.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert told.headers["content-type"] == "application/json"
    assert told.is_signed_by(KEY)
    assert not told.is_signed_by(b"another key that nobody has given")


async def test_several_secrets_sign_and_without_one_nothing_does(make_client: MakeClient) -> None:
    async with receiving() as receiver:
        for secret in (f"{SECRET} {OTHER.decode()}", None):
            client = await make_client(**settings_for(receiver, callback_secret=secret))
            await client.database.run(
                lambda conn: conn.execute(
                    "insert into weft.outbox (org_id, kind, payload) values (1, 'callback', $1)",
                    f'{{"url": "{receiver.url}", "job_id": "1"}}',
                )
            )
            async with weft.Worker(client=client, registry=Registry()):
                told = (await receiver.until(1 if secret else 2))[-1]
            assert told.is_signed_by(KEY) == (secret is not None)
            assert told.is_signed_by(OTHER) == (secret is not None)
            assert told.json == {"org": "default", "job_id": "1", "result_url": None}


async def drained(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], url: str, *, times: int, clock: Clock
) -> str | None:
    """Let a callback be sent so many times, each when it is due; return the last error."""
    await conn.execute(
        "insert into weft.outbox (org_id, kind, payload) values (1, 'callback', $1)", f'{{"url": "{url}"}}'
    )
    drainer = Drainer(client.database, 1, {"callback": _sink(client)}, at_once=8)
    for _ in range(times):
        assert await drainer.run_once() == 1
        await clock.advance(hours=2)
    return await conn.fetchval("select last_error from weft.outbox")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (500, "127.0.0.1 answered 500"),
        (302, "127.0.0.1 answered 302, and redirects are not followed"),
        ("close", "closed the connection without an answer"),
        ("noise", "did not answer in HTTP"),
        ("hang", "did not answer within 0.2 s"),
    ],
)
async def test_what_is_not_taken_is_sent_again_with_the_same_id(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], clock: Clock, answer: int | str, error: str
) -> None:
    async with receiving(answer) as receiver:
        client = await make_client(**settings_for(receiver, callback_timeout="200ms"))
        last = await drained(client, conn, receiver.url, times=1, clock=clock)
        assert last is not None
        assert error in last
        assert "token" not in last, "what stands in the address may be a secret"
        assert await states(conn) == [("pending", 1)]
        drainer = Drainer(client.database, 1, {"callback": _sink(client)}, at_once=8)
        assert await drainer.run_once() == 1
        first, second = await receiver.until(2)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert await states(conn) == [("done", 2)]


def _sink(client: weft.Client) -> Any:
    return Callbacks(client.settings).send


async def test_an_interim_answer_is_not_the_answer(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], clock: Clock
) -> None:
    async with receiving("interim") as receiver:
        client = await make_client(**settings_for(receiver))
        assert await drained(client, conn, receiver.url, times=1, clock=clock) is None
    assert await states(conn) == [("done", 1)]


async def test_what_nobody_takes_is_a_dead_letter_and_can_be_replayed(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], clock: Clock
) -> None:
    async with receiving(*[503] * 20) as receiver:
        client = await make_client(**settings_for(receiver))
        await drained(client, conn, receiver.url, times=20, clock=clock)
        assert await states(conn) == [("failed", 20)]
        (row,) = await client.outbox(state="failed", kind="callback")
        assert (row.has_sink, "answered 503" in str(row.last_error)) == (True, True)
        assert await client.replay_outbox([row.id]) == 1
        assert await Drainer(client.database, 1, {"callback": _sink(client)}).run_once() == 1
        received = await receiver.until(21)
    assert len({each.headers["webhook-id"] for each in received}) == 1
    assert await states(conn) == [("done", 1)]


@pytest.mark.parametrize("answer", ["gone", "inside", "name inside", "no mapping"])
async def test_what_never_will_be_taken_fails_at_once(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], clock: Clock, answer: str
) -> None:
    async with receiving(410) as receiver:
        client = await make_client(**settings_for(receiver) if answer == "gone" else {})
        url = receiver.url.replace("127.0.0.1", "localhost") if answer == "name inside" else receiver.url
        if answer == "no mapping":
            url = '", "url": 7, "x": "'
        last = await drained(client, conn, url, times=1, clock=clock)
        assert last is not None
        told = {"gone": "answered 410", "no mapping": "must be a mapping with the url"}
        assert told.get(answer, "is not a public address") in last
        if answer == "name inside":
            assert "127.0.0.1" not in last
        assert len(receiver.received) == (1 if answer == "gone" else 0)
    assert await states(conn) == [("failed", 1)]


async def test_receivers_that_hang_hold_up_no_other(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with receiving(*["hang"] * 10) as deaf, receiving() as receiver:
        client = await make_client(callback_allowed="127.0.0.0/8", callback_secret=SECRET, callback_timeout="20s")
        for _ in range(10):
            await conn.execute(
                "insert into weft.outbox (org_id, kind, payload) values (1, 'callback', $1)", f'{{"url": "{deaf.url}"}}'
            )
        handle = await client.jobs.submit(flow(), callback_url=receiver.url)
        async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
            await client.add_effect("enqueue_task", {"handler": "say"})
            await client.jobs.wait(handle.id, timeout=30)
            await until(lambda: conn.fetchval("select count(*) = 2 from weft.task_done where handler = 'say'"))
            await deaf.until(10)
            await deaf.close()
            await receiver.until(1)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ftp://example.com/", "must begin with https"),
        ("https:///nowhere", "must begin with https"),
        ("https://user:secret@example.com/", "must not hold a user or password"),
        ("https://example.com:99999/", "is not an address"),
        ("https://example.com:0/", "has no port 0"),
        ("https://example.com/a b", "must be percent-encoded"),
        ("https://example.com/\r\nX: y", "must be percent-encoded"),
        ("https://example.com/ä", "must be percent-encoded"),
        ("https://[::1", "is not an address"),
        ("https://example.com/" + "x" * 2000, "and may have 2000"),
        ("", "must not be empty"),
        (7, "must be text"),
    ],
)
async def test_an_address_that_is_none_is_refused_and_nothing_is_written(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], address: Any, problem: str
) -> None:
    with pytest.raises(weft.InvalidInput, match=problem) as told:
        await client.jobs.submit(flow(), callback_url=address)
    assert told.value.field == "callback_url"
    assert await conn.fetchval("select count(*) from weft.job") == 0


PUBLIC = [
    "93.184.216.34",
    "2606:2800:220:1::1",
    "192.31.196.1",
    "2001:200::1",
    "3ffe::1",
    "::ffff:93.184.216.34",
    "64:ff9b::5db8:d822",
    "2002:5db8:d822::1",
]
INSIDE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *(
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fec0::1",
        "ff02::1",
    ),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::1", "2001:0:4136:e378::1"),
    *(
        "2001:db8::1",
        "3fff::1",
        "3fff:fff:ffff::1",
        "2001:1::1",
        "2001:20::1",
        "100::1",
        "100:0:0:1::1",
        "5f00::1",
        "4000::1",
    ),
    *("64:ff9b:1::5db8:d822", "::93.184.216.34", "::ffff:0:93.184.216.34", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    *("192.0.0.8", "192.0.0.192", "192.88.99.1", "64:ff9b::c058:6301", "168.63.129.16", "198.51.100.1", "203.0.113.1"),
]


def test_only_public_addresses_are_public() -> None:
    assert [each for each in PUBLIC if not is_public(ipaddress.ip_address(each))] == []
    assert [each for each in INSIDE if is_public(ipaddress.ip_address(each))] == []


@pytest.mark.parametrize(
    ("allowed", "is_taken"),
    [
        ((), False),
        (("127.0.0.1",), True),
        (("127.0.0.0/8",), True),
        (("10.0.0.0/8", "example.com"), False),
        (("127.0.0.1:1",), False),
        (("127.0.0.1:{port}",), True),
        (("LOCALHOST",), False),
    ],
)
async def test_who_is_inside_takes_only_what_is_allowed(allowed: tuple[str, ...], is_taken: bool) -> None:
    async with receiving() as receiver:
        poster = Poster([entry.format(port=receiver.port) for entry in allowed])
        if is_taken:
            await poster.post(receiver.url, b"{}", {})
        else:
            with pytest.raises(weft.InvalidInput, match="is not a public address"):
                await poster.post(receiver.url, b"{}", {})
        assert len(receiver.received) == is_taken


async def test_a_name_that_is_allowed_may_be_inside_and_one_that_does_not_resolve_may_later() -> None:
    async with receiving() as receiver:
        await Poster(["LocalHost"]).post(receiver.url.replace("127.0.0.1", "localhost"), b"{}", {})
        assert receiver.received[0].headers["host"] == f"localhost:{receiver.port}"
    with pytest.raises(NotDelivered, match=r"no-such-host\.invalid"):
        await Poster().post("https://no-such-host.invalid/", b"{}", {})


async def test_who_reads_why_nothing_was_delivered_learns_no_address_by_it() -> None:
    async with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
    with pytest.raises(NotDelivered, match=r"^localhost: ConnectionRefusedError: ") as refusal:
        await Poster(["localhost"]).post(url, b"{}", {})
    assert "127.0.0.1" not in str(refusal.value)
    assert "::1" not in str(refusal.value)


class Rebinding:
    """A resolver that answers otherwise when it is asked again, and a network in which only this machine is reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        self._answers, self._connect = list(answers), loop.sock_connect
        self.asked: list[object] = []
        self.reached: list[str] = []
        monkeypatch.setattr(loop, "getaddrinfo", self.resolve)
        monkeypatch.setattr(loop, "sock_connect", self.connect)

    async def resolve(self, host: object, port: int, **_: object) -> list[Any]:
        self.asked.append(host)
        found = self._answers.pop(0) if self._answers else ["127.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    async def connect(self, sock: socket.socket, address: tuple[str, int]) -> None:
        self.reached.append(address[0])
        if not address[0].startswith("127."):
            raise OSError("there is no way to there")
        await self._connect(sock, address)


async def test_a_name_that_is_elsewhere_by_the_time_it_is_connected_to_leads_to_nobody_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", "rebinding.example")
        network = Rebinding(monkeypatch, ["93.184.216.34"])
        with pytest.raises(NotDelivered, match="there is no way to there"):
            await Poster().post(url, b"{}", {})
        assert (network.asked, network.reached) == (["rebinding.example"], ["93.184.216.34"])
        # When it is sent again, what was found out before counts for nothing.
        with pytest.raises(weft.InvalidInput, match="is not a public address"):
            await Poster().post(url, b"{}", {})
        # One address outside does not vouch for the others.
        network = Rebinding(monkeypatch, ["93.184.216.34", "127.0.0.1"])
        with pytest.raises(weft.InvalidInput, match="is not a public address"):
            await Poster().post(url, b"{}", {})
        assert network.reached == []
        assert receiver.received == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_outside_sends_a_message_on_to_somebody_inside(status: int) -> None:
    async with receiving(status) as outside, receiving() as inside:
        outside.elsewhere = inside.url
        with pytest.raises(NotDelivered, match="redirects are not followed"):
            await Poster([f"127.0.0.1:{outside.port}"]).post(outside.url, b"{}", {})
        assert (len(outside.received), inside.received) == (1, [])


async def test_a_receiver_whose_certificate_nobody_vouches_for_is_told_nothing(tmp_path: Path) -> None:
    async with receiving(tls=self_signed(tmp_path)) as receiver:
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            await Poster(["127.0.0.1"]).post(receiver.url, b"{}", {})
        assert receiver.received == []


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("callback_secret", "short", "24 random bytes"),
        ("callback_secret", "whsec_!!!", "is not base64"),
        ("callback_secret", "whsec_c2hvcnQ=", "24 random bytes"),
        ("public_url", "weft.example.com", "is not an address"),
        ("public_url", "https://weft.example.com/?a", "is not an address"),
    ],
)
def test_a_setting_of_callbacks_that_is_wrong_is_told(name: str, value: str, problem: str) -> None:
    with pytest.raises(weft.WeftError, match=problem):
        weft.Settings.load(environ={}, **{name: value})
