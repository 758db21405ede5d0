"""Two orgs side by side on one server: whatever both do, nothing of one is ever seen by the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import hypothesis
import hypothesis.strategies as st
import pytest
from acts import ENDS
from matrix import WORKERS, Asked, Things, make_things, routes, send

import weft
from streams import streamed
from weft.server.serving import Server

ORGS = ("acme", "rival")
# What tells how the installation is, or what time it is, and is the same for all.
_OF_ALL = {"health"}
_LIVE = re.compile(
    r'"(at|now|cursor|measured_at|[a-z_]*seconds|[a-z_]*latency[a-z_]*)":[^,}]+|"name":"[a-z_]*(?:age|lag)[a-z_]*".*?"samples":\[.*?\]'
    r"|^\w*(_age|_seconds|_lag)\w*({[^}]*})? .*$|^: still here\n(id: .*\n)?\n|^id: .*\n",
    re.MULTILINE,
)


@dataclass
class Side:
    """One of the orgs: its clients over HTTP, what it has, and the words that nobody else may ever see."""

    slug: str
    http: httpx.AsyncClient
    worker: httpx.AsyncClient
    things: Things
    words: set[str] = field(default_factory=set)

    async def ask(self, asked: Asked, things: Things, headers: Mapping[str, str]) -> httpx.Response:
        """Send a request as whoever of the org it is for."""
        return await send(self.worker if asked.roles == WORKERS else self.http, asked, things, headers)


async def _side(server: Server, client: weft.Client, slug: str) -> Side:
    await client.orgs.create(slug)
    own = client.of_org((await client.orgs.show(slug)).id, slug)
    things = await make_things(own, slug, server.url)
    secret = (await own.tokens.create(f"{slug}-key", role="admin")).secret

    def opened(by: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {by}"}, timeout=60)

    ids = {value for value in things.names.values() if value.isdigit() and len(value) > 4}
    own_words = {slug, secret, things.secret, things.names["digest"], *ids}
    return Side(slug, opened(secret), opened(things.secret), things, own_words)


@pytest.fixture
def scene(walled_settings: weft.Settings, settings: weft.Settings) -> Iterator[tuple[asyncio.Runner, list[Side]]]:
    """A server and two orgs on one loop, which goes on while something is run on it."""
    with asyncio.Runner() as runner:
        server, client = Server(walled_settings, port=0), weft.Client(settings=settings)

        async def begin() -> list[Side]:
            await server.__aenter__()
            await client.__aenter__()
            return [await _side(server, client, slug) for slug in ORGS]

        async def end() -> None:
            for side in sides:
                await side.http.aclose()
                await side.worker.aclose()
            await client.__aexit__(None, None, None)
            await server.__aexit__(None, None, None)

        sides = runner.run(begin())
        yield runner, sides
        runner.run(end())


@pytest.fixture
def of_orgs() -> list[Asked]:
    """All that is asked for in an org, by its people and its workers; sessions of browsers have tests of their own."""
    return [
        asked
        for asked in routes()
        if asked.roles and asked.roles != {"operator"} and asked.path not in ("/sign-out", "/api/v1/me")
    ]


def _seen(answer: httpx.Response) -> str:
    return f"{answer.headers} {answer.text}"


def test_what_one_org_sees_does_not_change_by_what_another_does(
    scene: tuple[asyncio.Runner, list[Side]], of_orgs: list[Asked]
) -> None:
    runner, (ours, theirs) = scene
    found = of_orgs
    looks = [each for each in found if each.is_safe and each.call not in _OF_ALL | {"wait", "jobs.wait"}]
    acts = sorted((each for each in found if not each.is_safe), key=lambda each: each.path.endswith(ENDS))

    async def look() -> dict[str, str]:
        answers = [await ours.ask(each, ours.things, {}) for each in looks]
        return {each.path: _LIVE.sub("", answer.text) for each, answer in zip(looks, answers, strict=True)}

    async def act() -> None:
        answers = [await theirs.ask(each, theirs.things, {"idempotency-key": each.path}) for each in acts]
        # Not all: what was deleted cannot be moved.
        assert 2 * sum(answer.is_success for answer in answers) > len(acts)

    async def play() -> None:
        names = ours.things.names
        async with (
            streamed(ours.http, "/jobs/stream") as jobs,
            streamed(ours.http, f"/jobs/{names['job_id']}/stream") as job,
            streamed(ours.http, f"/tasks/{names['held_id']}/log/stream") as log,
        ):
            heard = [await stream.next() for stream in (jobs, job, log)]
            before = await look()
            await act()
            assert await look() == before
            # By what the org does itself it is known that nothing came before it.
            await ours.http.post(f"/api/v1/jobs/{names['job_id']}/cancel")
            lease = {"task_id": names["held_id"], "lease_token": names["lease_token"]}
            await ours.worker.post("/v1/task/log", json={**lease, "offset": 11, "text": "last\n"})
            heard += [await stream.next() for stream in (jobs, job, log)]
        told = [str(each) for each in heard]
        assert names["job_id"] in told[3]
        assert names["job_id"] in told[4]
        assert "last" in told[5]
        assert not [word for word in theirs.words if any(word in each for each in told)]

    runner.run(play())


def test_no_answer_to_one_org_has_anything_of_the_other(
    scene: tuple[asyncio.Runner, list[Side]], of_orgs: list[Asked], campaign: str
) -> None:
    runner, sides = scene
    # A worker that has left asks for nothing more.
    found = [each for each in of_orgs if not each.path.endswith(("/wait", "/deregister"))]
    turn = st.tuples(
        st.sampled_from(found), st.sampled_from((True, True, False)), st.sampled_from((None, "k1", "k2"))
    )  # fmt: skip

    async def ask(me: Side, other: Side, asked: Asked, is_own: bool, key: str | None) -> httpx.Response:
        # A word of one's own may come back; what the other has is asked for by names that tell nothing.
        things = me.things if is_own else Things({**me.things.names, **_ids(other.things)})
        headers = {} if key is None else {"idempotency-key": f"{key} {asked.path}"}
        answer = await me.ask(asked, things, headers)
        assert answer.status_code < 500, (asked, answer.text)
        _learn(me, answer)
        return answer

    async def play(steps: list[tuple[Any, Any]]) -> None:
        for turns in steps:
            # Both at once, so that what one is told may be mixed up with what is just being done for the other.
            pairs = list(zip(sides, reversed(sides), turns, strict=True))
            answers = await asyncio.gather(*(ask(me, other, *step) for me, other, step in pairs))
            for (_, other, (asked, is_own, _)), answer in zip(pairs, answers, strict=True):
                asked_for = set() if is_own else set(_ids(other.things).values())
                leaked = {word for word in other.words - asked_for if word in _seen(answer)}
                assert not leaked, (asked, answer.text)

    @hypothesis.settings(
        max_examples=300 if campaign == "long" else 8, deadline=None, database=None,
        phases=[hypothesis.Phase.generate], suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )  # fmt: skip
    @hypothesis.given(steps=st.lists(st.tuples(turn, turn), min_size=6, max_size=12))
    def try_steps(steps: list[tuple[Any, Any]]) -> None:
        runner.run(play(steps))

    try_steps()


def _ids(things: Things) -> dict[str, str]:
    return {name: value for name, value in things.names.items() if value[0].isdigit()}


def _learn(side: Side, answer: httpx.Response) -> None:
    """Note what was made: the other must not see its id either."""
    if answer.status_code == httpx.codes.CREATED:
        made: Any = answer.json()
        side.words |= {value for value in _values(made) if value.isdigit() and len(value) > 15}


def _values(made: Any) -> Iterator[str]:
    for value in made.values() if isinstance(made, dict) else made if isinstance(made, list) else ():
        if isinstance(value, str):
            yield value
        else:
            yield from _values(value)
