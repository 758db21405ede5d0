"""Tasks that are added while what they are added to is just ending: both orders of every such pair."""

from __future__ import annotations

import asyncio

import pytest
from store_scene import ORG, Store

import weft
from weft.core.errors import StateConflict
from weft.jobs import adding
from weft.jobs.adding import Addition
from weft.jobs.items import Group, Item, Task
from weft.queue.work import Claim, Lane

CONTROL = 2


class Scene:
    """A job with one task in a group, after which another comes; the first runs."""

    def __init__(self, client: weft.Client, store: Store, *, grouped: bool) -> None:
        self._client = client
        self._store = store
        self.group = Group("g") if grouped else None
        self.first = Task("h", name="first", group=self.group)
        self.after = Task("h", name="after").depends_on(self.group) if self.group else None
        self.job_id = self.worker = 0
        self.claim: Claim

    async def begin(self) -> Scene:
        items = [item for item in (self.first, self.group, self.after) if item is not None]
        self.job_id = (await self._client.jobs.submit_graph("drawn", items)).id
        self.worker = await self._store.worker(1, CONTROL)
        self.claim = await self._store.claim_one(self.worker)
        return self

    async def add(self, store: Store, *items: Item) -> None:
        """Add in the transaction that the store is in, or one of its own."""
        addition = Addition.of(items)
        addition.lanes = {"default": 1}
        addition.ids = await self._client.ids.take(addition.room)
        addition.landed(await store.run(adding.add, ORG, self.job_id, addition), self.job_id)

    def new(self) -> Task:
        return Task("h", name="new", group=self.group)

    async def run_all(self) -> list[str]:
        """Work until nothing is left, one task after the other, and return their names as they were claimed."""
        names = []
        while claims := await self._store.claim(self.worker, 1, Lane(1), Lane(CONTROL)):
            names.append(claims[0].node or claims[0].handler)
            assert await self._store.complete(self.worker, *claims) == []
        return names


@pytest.fixture(params=["group", "job"])
async def scene(request: pytest.FixtureRequest, client: weft.Client, store: Store) -> Scene:
    return await Scene(client, store, grouped=request.param == "group").begin()


def _rest(scene: Scene) -> list[str]:
    return ["new", "g", "after", "@end"] if scene.group else ["new", "@end"]


async def test_a_task_that_is_added_before_the_last_one_ends_is_waited_for(
    scene: Scene, store: Store, other: Store
) -> None:
    transaction = store.conn.transaction()
    await transaction.start()
    await scene.add(store, scene.new())
    finishing = asyncio.create_task(other.complete(scene.worker, scene.claim))
    assert await other.settled(finishing, ahead=store)
    await transaction.commit()
    assert await finishing == []
    assert await scene.run_all() == _rest(scene)


async def test_a_task_that_is_added_while_the_last_one_ends_is_waited_for(
    scene: Scene, store: Store, other: Store
) -> None:
    transaction = store.conn.transaction()
    await transaction.start()
    assert await store.complete(scene.worker, scene.claim) == []
    add = asyncio.create_task(scene.add(other, scene.new()))
    assert await other.settled(add, ahead=store)
    await transaction.commit()
    await add
    assert await scene.run_all() == _rest(scene)


async def test_a_task_that_is_added_when_all_have_ended_and_nobody_has_noticed_is_waited_for(
    scene: Scene, store: Store
) -> None:
    await store.complete(scene.worker, scene.claim)
    await scene.add(store, scene.new())
    assert await scene.run_all() == _rest(scene)


async def test_nothing_is_added_when_somebody_has_noticed_that_all_have_ended(
    scene: Scene, store: Store, other: Store
) -> None:
    await store.complete(scene.worker, scene.claim)
    transaction = store.conn.transaction()
    await transaction.start()
    (closing,) = await store.claim(scene.worker, 1, Lane(CONTROL))
    add = asyncio.create_task(scene.add(other, scene.new()))
    assert await other.settled(add, ahead=store)
    await transaction.commit()
    with pytest.raises(StateConflict, match="cannot add to group g: it is running" if scene.group else "it is ending"):
        await add
    assert await store.complete(scene.worker, closing) == []
    assert await store.conn.fetchval("select count(*) from weft.task where node = 'new'") == 0
    assert await scene.run_all() == (["after", "@end"] if scene.group else [])


async def test_nobody_notices_that_all_have_ended_while_something_is_added(
    scene: Scene, store: Store, other: Store
) -> None:
    await store.complete(scene.worker, scene.claim)
    transaction = store.conn.transaction()
    await transaction.start()
    await scene.add(store, scene.new())
    assert await other.claim(scene.worker, 1, Lane(CONTROL)) == []
    await transaction.commit()
    assert await scene.run_all() == _rest(scene)


async def test_a_task_after_one_that_is_just_ending_begins_in_any_case(
    scene: Scene, store: Store, other: Store
) -> None:
    """The end comes first: whoever adds waits for it, and then knows that it has completed."""
    new = Task("h", name="new").depends_on(scene.first)
    transaction = store.conn.transaction()
    await transaction.start()
    assert await store.complete(scene.worker, scene.claim) == []
    add = asyncio.create_task(scene.add(other, new))
    assert await other.settled(add, ahead=store)
    await transaction.commit()
    await add
    row = await store.task(new.id or 0)
    assert (row["state"], row["waiting_on"]) == ("ready", 0)
    assert set(await scene.run_all()) == {*_rest(scene)}


async def test_a_task_after_one_that_ends_meanwhile_begins_then(scene: Scene, store: Store, other: Store) -> None:
    """The addition comes first: the end waits for it, and then sees it."""
    new = Task("h", name="new").depends_on(scene.first)
    transaction = store.conn.transaction()
    await transaction.start()
    await scene.add(store, new)
    finishing = asyncio.create_task(other.complete(scene.worker, scene.claim))
    assert await other.settled(finishing, ahead=store)
    await transaction.commit()
    assert await finishing == []
    assert (await store.state(new.id or 0)) == "ready"
    assert set(await scene.run_all()) == {*_rest(scene)}


async def test_two_who_add_at_once_cannot_make_a_circle(client: weft.Client, store: Store, other: Store) -> None:
    """Neither touches what the other locks, and each alone would be in order."""
    scene = Scene(client, store, grouped=False)
    a, b, c, d = (Task("h", name=name) for name in "abcd")
    scene.first >> [a, c]
    a >> b
    c >> d
    scene.job_id = (await client.jobs.submit_graph("drawn", [b, d])).id
    one, two = b, d
    transaction = store.conn.transaction()
    await transaction.start()
    await scene.add(store, c.depends_on(one))
    add = asyncio.create_task(scene.add(other, a.depends_on(two)))
    assert await other.settled(add, ahead=store)
    await transaction.commit()
    with pytest.raises(weft.InvalidInput, match="circle"):
        await add


async def test_what_is_added_to_a_paused_job_waits_until_it_is_resumed(client: weft.Client, store: Store) -> None:
    scene = await Scene(client, store, grouped=True).begin()
    await client.jobs.pause(scene.job_id)
    await scene.add(store, scene.new())
    assert await store.complete(scene.worker, scene.claim) == []
    assert await scene.run_all() == []
    await client.jobs.resume(scene.job_id)
    assert await scene.run_all() == _rest(scene)


async def test_a_job_does_not_run_out_of_time_while_something_is_added(
    scene: Scene, store: Store, other: Store
) -> None:
    """Whoever sweeps it could find nothing left, and let it end before what is added."""
    await store.conn.execute("update weft.job set timeout_at = weft.now() - interval '1 hour'")
    async with store.conn.transaction():
        await scene.add(store, scene.new())
        assert await other.conn.fetchval("select weft.end_late_jobs(100)") == 0
    assert await other.conn.fetchval("select weft.end_late_jobs(100)") == 1


async def test_nothing_is_added_to_a_job_that_is_being_cancelled(scene: Scene, store: Store) -> None:
    await store.conn.execute("update weft.job set state = 'cancelling', verdict = 'cancelled'")
    with pytest.raises(StateConflict, match="cannot add to job"):
        await scene.add(store, scene.new())
