"""Two orgs side by side on one server: whatever both do, nothing of one is ever seen by the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import hypothesis
import hypothesis.strategies as st
import pytest
from matrix import Asked, Things, make_things, routes, send

import weft
from weft.server.serving import Server

ORGS = ("acme", "rival")
# What tells how the installation is, or what time it is, and is the same for all.
_OF_ALL = {"health"}
_LIVE = re.compile(
    r'"(at|now|cursor|measured_at|[a-z_]*seconds|[a-z_]*latency[a-z_]*)":[^,}]+|"name":"[a-z_]*age[a-z_]*".*?"samples":\[.*?\]'
)


@dataclass
class Side:
    """One of the orgs: its client over HTTP, what it has, and the words that nobody else may ever see."""

    slug: str
    http: httpx.AsyncClient
    things: Things
    words: set[str] = field(default_factory=set)


async def _side(server: Server, client: weft.Client, slug: str) -> Side:
    await client.orgs.create(slug)
    own = client.of_org((await client.orgs.show(slug)).id, slug)
    things = await make_things(own, slug, server.url)
    secret = (await own.tokens.create(f"{slug}-key", role="admin")).secret
    http = httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {secret}"}, timeout=30)
    ids = {value for value in things.names.values() if value.isdigit() and len(value) > 4}
    return Side(slug, http, things, {slug, secret, *ids})


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
            await client.__aexit__(None, None, None)
            await server.__aexit__(None, None, None)

        sides = runner.run(begin())
        yield runner, sides
        runner.run(end())


@pytest.fixture
def of_orgs() -> list[Asked]:
    """All calls that are made in an org."""
    return [asked for asked in routes() if asked.call and asked.roles != {"operator"}]


def _seen(answer: httpx.Response) -> str:
    return f"{answer.headers} {answer.text}"


def test_what_one_org_sees_does_not_change_by_what_another_does(
    scene: tuple[asyncio.Runner, list[Side]], of_orgs: list[Asked]
) -> None:
    runner, (ours, theirs) = scene
    found = of_orgs
    looks = [each for each in found if each.method == "GET" and each.call not in _OF_ALL | {"wait", "jobs.wait"}]

    async def look() -> dict[str, str]:
        answers = [await send(ours.http, each, ours.things, {}) for each in looks]
        return {each.call: _LIVE.sub("", answer.text) for each, answer in zip(looks, answers, strict=True)}

    async def act() -> None:
        acts = [each for each in found if each.method != "GET"]
        keys = [{"idempotency-key": each.call} for each in acts]
        answers = [await send(theirs.http, *each) for each in zip(acts, [theirs.things] * len(acts), keys, strict=True)]
        # Not all: what was deleted cannot be moved.
        assert 2 * sum(answer.is_success for answer in answers) > len(acts)

    before = runner.run(look())
    runner.run(act())
    assert runner.run(look()) == before


@hypothesis.settings(
    max_examples=8, deadline=None, phases=[hypothesis.Phase.generate],
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)  # fmt: skip
@hypothesis.given(data=st.data())
def test_no_answer_to_one_org_has_anything_of_the_other(
    scene: tuple[asyncio.Runner, list[Side]], of_orgs: list[Asked], data: st.DataObject
) -> None:
    runner, sides = scene
    found = [each for each in of_orgs if not each.path.endswith("/wait")]
    turn = st.tuples(
        st.sampled_from((0, 1)), st.sampled_from(range(len(found))), st.sampled_from((True, True, False)),
        st.sampled_from((None, "k1", "k2")),
    )  # fmt: skip
    steps = data.draw(st.lists(turn, min_size=10, max_size=20))

    async def play() -> None:
        for who, which, is_own, key in steps:
            me, other = sides[who], sides[1 - who]
            asked = found[which]
            # A word of one's own may come back; what the other has is asked for by names that tell nothing.
            things = me.things if is_own else Things({**me.things.names, **_ids(other.things)})
            answer = await send(
                me.http, asked, things, {} if key is None else {"idempotency-key": f"{key} {asked.call}"}
            )
            assert answer.status_code < 500, (asked, answer.text)
            asked_for = set() if is_own else set(_ids(other.things).values())
            leaked = {word for word in other.words - asked_for if word in _seen(answer)}
            assert not leaked, (asked, answer.text)
            _learn(me, answer)

    runner.run(play())


def _ids(things: Things) -> dict[str, str]:
    return {name: value for name, value in things.names.items() if value.isdigit()}


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
