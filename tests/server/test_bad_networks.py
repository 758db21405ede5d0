"""A client in a bad network: what may be asked again is, what may not is not, and errors name the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gate import AMID, BUSY, PROXY, RESET, Gate
from server_scene import FLOW

import weft
from weft.remote import transport
from weft.sdk import operating
from weft.server import progress
from weft.server.serving import Server


@pytest.fixture
async def behind(gate: tuple[Gate, str], client: weft.Client) -> AsyncIterator[weft.RemoteClient]:
    """A client that reaches the server through the gate."""
    secret = (await client.tokens.create("tester", role="admin")).secret
    async with weft.RemoteClient(gate[1], secret, settings=weft.Settings.load(environ={})) as remote:
        yield remote


async def test_what_only_looks_or_has_a_key_is_asked_again_and_done_once(
    gate: tuple[Gate, str], behind: weft.RemoteClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    gate[0].faults += [PROXY, RESET]
    assert len(await behind.workflows.list()) == 1
    gate[0].faults += [RESET, BUSY, RESET]
    job = await behind.jobs.submit("etl")
    assert [each.id for each in await client.jobs.list()] == [job.id]
    assert gate[0].requests == ["GET /api/v1/workflows"] * 3 + ["POST /api/v1/jobs"] * 4


@pytest.mark.parametrize("key", [None, "of-the-call"])
async def test_what_a_call_has_made_whose_answer_was_lost_is_told_to_be_new(
    key: str | None, gate: tuple[Gate, str], behind: weft.RemoteClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    made = []
    for make in (
        lambda: behind.jobs.submit("etl", idempotency_key=key),
        lambda: behind.enqueue("email:send", idempotency_key=key),
        lambda: behind.jobs.send_event("go", idempotency_key=key),
    ):
        gate[0].faults += [RESET]
        made.append((await make(), await make()))
    assert [first.created for first, _ in made] == [True] * 3
    assert [again.created for _, again in made] == [key is None] * 3, "another call with the key finds what is there"
    assert [first.id == again.id for first, again in made] == [key is not None] * 3


@pytest.mark.parametrize("fault", [RESET, PROXY])
async def test_what_may_not_be_done_twice_is_asked_once_and_the_error_says_so(
    fault: str, gate: tuple[Gate, str], behind: weft.RemoteClient
) -> None:
    gate[0].faults += [fault]
    with pytest.raises(weft.ServerUnavailable, match=f"{gate[1]}.*whether it was done is not known"):
        await behind.replay_outbox()
    assert len(gate[0].requests) == 1


async def test_a_server_that_was_there_is_waited_for_and_one_that_never_was_is_not(
    settings: weft.Settings, client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_FIRST", 0.0)
    secret, made = (await client.tokens.create("tester", role="admin")).secret, await client.enqueue("h")
    first = await Server(settings, port=0).__aenter__()
    url = first.url
    async with weft.RemoteClient(url, secret, settings=weft.Settings.load(environ={})) as remote:
        await remote.get_task(made.id)
        await first.__aexit__(None, None, None)
        async with weft.RemoteClient(url, secret, settings=weft.Settings.load(environ={})) as other:
            with pytest.raises(weft.ServerUnavailable, match=url):
                await other.get_task(made.id)
        # Also what may be done but once: nobody was there to take it.
        calls: list[asyncio.Task[Any]] = [
            asyncio.create_task(call)
            for call in (remote.get_task(made.id), remote.cancel(made.id), remote.replay_outbox(), remote.purge())
        ]
        await asyncio.sleep(0)
        async with Server(settings, port=int(url.rpartition(":")[2])):
            await asyncio.gather(*calls)
    assert (await client.get_task(made.id)).state == "cancelled"


async def test_a_long_call_tells_how_far_it_is_and_goes_on_when_it_was_cut_off(
    gate: tuple[Gate, str], behind: weft.RemoteClient, client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    await client.workflows.push(FLOW)
    made = [(await client.jobs.submit("etl")).id for _ in range(12)]
    async with weft.Orchestrator(client=client):
        for each in made:
            await client.jobs.cancel(each)
        for each in made:
            await client.jobs.wait(each, 30)
    told: list[int] = []
    gate[0].faults += [AMID]
    with pytest.raises(weft.ServerUnavailable, match=f"{gate[1]}.*the same again does the rest"):
        await behind.jobs.rerun_all(state="cancelled", on_progress=told.append)
    rest = await behind.jobs.rerun_all(state="cancelled", on_progress=told.append)
    again = await client.jobs.list(state="pending")
    again_of = [(await client.jobs.show(job.id)).rerun_of or 0 for job in again]
    assert sorted(again_of) == made, "each once, whichever call it was"
    assert 0 < rest <= 12
    assert told[-1] <= 12
    assert max(told) > 0
    # The others that take long, and what is wrong with one.
    assert await behind.workflows.fsck(on_progress=told.append) == []
    assert (await behind.workflows.gc(dry_run=True)).blobs == 0
    with pytest.raises(weft.InvalidInput, match="state"):
        await behind.jobs.rerun_all(state="nonsense")


async def test_a_call_in_pages_that_is_cut_off_says_how_much_of_the_whole_is_done(
    gate: tuple[Gate, str], behind: weft.RemoteClient, client: weft.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "PAGE", 2)
    await client.enqueue_many([weft.NewTask("h") for _ in range(5)])

    def cut(count: int) -> None:
        if count == 4:
            gate[0].faults += [RESET, *[PROXY] * 100]

    monkeypatch.setattr(transport, "_AGAIN", 0.0)
    with pytest.raises(weft.ServerUnavailable, match="4 were done by then") as caught:
        await behind.cancel_all(on_progress=cut)
    assert caught.value.done == 4
    gate[0].faults.clear()
    assert await behind.cancel_all() == 1
