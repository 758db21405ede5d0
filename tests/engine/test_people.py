"""Users, the roles of an org, and tokens: who gets in, as whom, and what another org learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import WAITING, Clock, MakeClient

import weft
from weft.catalog import sign_ins, tokens, users
from weft.catalog.model import Principal

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
# The token of a worker would be among those that are counted.
pytestmark = pytest.mark.direct


async def _principal(client: weft.Client, secret: str) -> Principal | None:
    return await client.database.run(lambda conn: tokens.principal(conn, secret))


async def _acts(client: weft.Client) -> list[tuple[str, str, str | None]]:
    return [(entry.verb, entry.subject_kind, entry.subject_name) for entry in reversed(await client.audit())]


async def test_an_org_is_made_once_and_has_its_own_queue(client: weft.Client, make_client: MakeClient) -> None:
    assert await client.orgs.create("acme", "Acme Ltd")
    assert not await client.orgs.create("acme", "Another")
    acme = await make_client(org="acme", actor="op")
    assert [queue.name for queue in await acme.queues()] == ["default"]
    assert (await acme.enqueue("h")).created
    await client.orgs.rename("acme", "Acme")
    assert [(org.slug, org.name) for org in await client.orgs.list()] == [("acme", "Acme"), ("default", "Default")]
    assert [org.slug for org in await client.orgs.list(after="acme", limit=1)] == ["default"]
    assert (await client.orgs.show("acme")).name == "Acme"
    assert [verb for verb, kind, _ in await _acts(acme) if kind == "org"] == ["create", "change"]
    for act in (client.orgs.show("nobody"), client.orgs.rename("nobody", "x")):
        with pytest.raises(weft.NotFound, match="org nobody"):
            await act


@pytest.mark.parametrize("slug", ["", "Acme", "a b", "-a", "a/b", "x" * 64, "ä", "a\n", 7])
async def test_a_slug_that_could_not_stand_in_an_address_is_refused(client: weft.Client, slug: Any) -> None:
    with pytest.raises(weft.InvalidInput, match=r"^org: "):
        await client.orgs.create(slug)
    with pytest.raises(weft.InvalidInput, match=r"^role: "):
        await client.roles.create(slug)


async def test_a_user_is_added_changed_deactivated_and_let_in_again(client: weft.Client) -> None:
    ada = await client.users.add("ada", role="writer", email="ada@example.com")
    assert (ada.external_id, ada.role, ada.email, ada.deactivated_at) == ("ada", "writer", "ada@example.com", None)
    assert await client.users.show("ada") == await client.users.show(ada.id) == ada
    assert (await client.users.change("ada", role="admin")).email == "ada@example.com"
    assert (await client.users.change("ada", email="ada@acme.example")).role == "admin"
    await client.users.change("ada", role="writer", email="ada@example.com")
    await client.users.change("ada", role="admin")
    assert [dict(each.detail) for each in await client.audit(verb="change", sort="oldest")] == [
        {"role": "admin", "was": "writer"},
        {"email": "ada@acme.example"},
        {"role": "writer", "was": "admin", "email": "ada@example.com"},
        {"role": "admin", "was": "writer"},
    ]
    await client.users.deactivate("ada")
    assert await client.users.list() == []
    [gone] = await client.users.list(with_deactivated=True)
    assert gone.deactivated_at is not None
    with pytest.raises(weft.StateConflict, match="it is deactivated, and must be active"):
        await client.users.deactivate("ada")
    await client.users.activate("ada")
    with pytest.raises(weft.StateConflict, match="it is active, and must be deactivated"):
        await client.users.activate("ada")
    assert [user.external_id for user in await client.users.list(role="admin")] == ["ada"]
    assert await client.users.list(role="reader") == []
    assert await _acts(client) == [
        ("create", "user", "ada"),
        *[("change", "user", "ada")] * 4,
        *(("deactivate", "user", "ada"), ("activate", "user", "ada")),
    ]


async def _add_called_like(conn: Conn, ada: weft.User) -> None:
    """Add a user whose name is the id of another, as if the name had been there first."""
    await conn.execute(
        "insert into weft.user (org_id, external_id, role, actor) values (1, $1, 'admin', 'x')", str(ada.id)
    )


async def test_a_user_whose_name_is_the_id_of_another_is_found_by_it(client: weft.Client, conn: Conn) -> None:
    ada = await client.users.add("ada")
    # Nobody is called so whom others could be taken for, by those who name them by id in a text, as HTTP does.
    with pytest.raises(weft.InvalidInput, match="external_id: there is a user"):
        await client.users.add(str(ada.id))
    await _add_called_like(conn, ada)
    number = next(user for user in await client.users.list() if user.external_id == str(ada.id))
    assert (await client.users.show(str(ada.id))).id == number.id
    assert (await client.users.show(number.id)).id == number.id


async def test_whoever_is_named_by_id_is_nobody_whose_name_looks_like_it(client: weft.Client, conn: Conn) -> None:
    ada = await client.users.add("ada", role="admin")
    await _add_called_like(conn, ada)
    assert await client.users.show(ada.id) == ada
    assert (await client.users.change("ada", email="ada@example.com")).external_id == "ada"
    code = (await client.tokens.create_sign_in(user="ada", role="admin")).code
    entered = await client.database.run(lambda conn: sign_ins.take(conn, code))
    assert entered is not None
    made = await client.tokens.create("laptop", user=ada.id)
    assert entered.token.user == made.token.user == "ada"
    assert {token.id for token in await client.tokens.list(user=ada.id)} == {entered.token.id, made.token.id}
    await client.roles.create("finance")
    await client.roles.grant("finance", ada.id)
    await client.users.deactivate(ada.id)
    gone, still = await client.users.show("ada"), await client.users.show(str(ada.id))
    assert (gone.deactivated_at is not None, still.deactivated_at, still.roles) == (True, None, ())


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.users.add(""), "external_id"),
        (lambda client: client.users.add("x" * 501), "external_id"),
        (lambda client: client.users.add("a\x00"), "external_id"),
        (lambda client: client.users.add("ada\r\nact=1\x1b[2J"), "external_id"),
        (lambda client: client.users.add("token:nightly"), "external_id"),
        (lambda client: client.users.add(" Token\uff1anightly"), "external_id"),
        (lambda client: client.users.add("to\u200bken:nightly"), "external_id"),
        (lambda client: client.users.add("\u202eeve"), "external_id"),
        (lambda client: client.users.add("eve "), "external_id"),
        (lambda client: client.users.add("identity provider"), "external_id"),
        (lambda client: client.users.add("worker"), "external_id"),
        (lambda client: client.users.add("x", role="owner"), "role"),
        (lambda client: client.users.add("x", email="nowhere"), "email"),
        (lambda client: client.users.add("eve"), "external_id"),
        (lambda client: client.users.change("eve"), "role"),
        (lambda client: client.users.change("eve", role="worker"), "role"),
        (lambda client: client.users.list(limit=0), "limit"),
        (lambda client: client.users.list(after="\x00"), "after"),
        (lambda client: client.roles.list(after="\x00"), "after"),
        (lambda client: client.orgs.list(after="\x00"), "after"),
        (lambda client: client.roles.create("x", "a\nb"), "name"),
        (lambda client: client.tokens.create(""), "name"),
        (lambda client: client.tokens.create("t", role="root"), "role"),
        (lambda client: client.tokens.create("t", role="admin", user="eve"), "role"),
        (lambda client: client.tokens.create("t", role="worker", user="eve"), "user"),
        (lambda client: client.tokens.create("t", queues=["default"]), "queues"),
        (lambda client: client.tokens.create("t", role="worker", queues=[]), "queues"),
        (lambda client: client.tokens.create("t", expires_in=-1), "expires_in"),
        (lambda client: client.tokens.revoke("x"), "id"),
    ],
)
async def test_what_is_refused_names_the_field_and_writes_nothing(
    client: weft.Client, conn: Conn, call: Callable[[weft.Client], Awaitable[Any]], field: str
) -> None:
    await client.users.add("eve", role="reader")
    before = await _all(conn)
    with pytest.raises(weft.InvalidInput) as refusal:
        await call(client)
    assert refusal.value.field == field
    assert await _all(conn) == before


async def _all(conn: Conn) -> list[Any]:
    tables = ("org", "user", "org_role", "org_role_membership", "token", "audit")
    return [await conn.fetch(f"select * from weft.{table} order by 1, 2") for table in tables]


async def test_a_role_is_given_once_and_goes_from_all_with_itself(client: weft.Client) -> None:
    await client.users.add("ada")
    assert await client.roles.create("finance")
    assert not await client.roles.create("finance", "Other")
    assert [(role.slug, role.name) for role in await client.roles.list()] == [("finance", "Finance")]
    assert await client.roles.grant("finance", "ada")
    assert not await client.roles.grant("finance", "ada")
    assert (await client.users.show("ada")).roles == ("finance",)
    assert await client.roles.revoke("finance", "ada")
    assert not await client.roles.revoke("finance", "ada")
    await client.roles.grant("finance", "ada")
    assert await client.roles.delete("finance") == 1
    assert (await client.users.show("ada")).roles == ()
    with pytest.raises(weft.NotFound, match="role finance"):
        await client.roles.show("finance")
    assert [verb for verb, kind, _ in await _acts(client) if kind == "role"] == (
        ["create", "grant", "revoke", "grant", "delete"]
    )


async def test_a_secret_lets_in_and_is_kept_nowhere(client: weft.Client, conn: Conn) -> None:
    made = await client.tokens.create("nightly", role="writer")
    assert made.secret.startswith(made.token.hint)
    assert len(made.secret) - len(made.token.hint) > 30
    principal = await _principal(client, made.secret)
    assert principal is not None
    assert (principal.org, principal.actor, principal.role, principal.token_id) == (
        *("default", "token:nightly", "writer"), made.token.id,
    )  # fmt: skip
    assert made.secret not in str(await _all(conn))
    for wrong in (made.secret[:-1], made.secret + "A", made.secret.lower(), "", "weft_", "x" * 10_000):
        assert await _principal(client, wrong) is None


async def test_a_secret_lets_nobody_in_once_it_is_revoked_or_past_its_time(client: weft.Client, clock: Clock) -> None:
    revoked = await client.tokens.create("revoked")
    short = await client.tokens.create("short", expires_in=timedelta(hours=1))
    await client.tokens.revoke(revoked.token.id)
    assert await _principal(client, revoked.secret) is None
    with pytest.raises(weft.StateConflict, match="it is revoked"):
        await client.tokens.revoke(revoked.token.id)
    with pytest.raises(weft.NotFound):
        await client.tokens.revoke(12345)
    assert await _principal(client, short.secret) is not None
    assert [token.name for token in await client.tokens.list()] == ["short"]
    await clock.advance(hours=2)
    assert await _principal(client, short.secret) is None
    assert await client.tokens.list() == []
    assert [token.name for token in await client.tokens.list(with_ended=True)] == ["short", "revoked"]


async def test_a_users_token_does_no_more_than_the_user_may_now(client: weft.Client) -> None:
    await client.users.add("ada", role="admin")
    await client.roles.create("finance")
    await client.roles.grant("finance", "ada")
    made = await client.tokens.create("laptop", role="admin", user="ada")
    principal = await _principal(client, made.secret)
    assert principal is not None
    assert (principal.actor, principal.role, principal.roles) == ("ada", "admin", {"finance"})
    await client.users.change("ada", role="reader")
    weaker = await _principal(client, made.secret)
    assert weaker is not None
    assert weaker.role == "reader"
    await client.users.deactivate("ada")
    assert await _principal(client, made.secret) is None
    await client.tokens.create("of a program")
    assert [token.user for token in await client.tokens.list(user="ada", with_ended=True)] == ["ada"]
    assert [token.user for token in await client.tokens.list(with_ended=True)] == [None, "ada"]


async def test_what_a_user_was_let_in_by_stays_revoked_when_he_is_activated_again(client: weft.Client) -> None:
    for user in ("ada", "bob"):
        await client.users.add(user)
    mine = await client.tokens.create("laptop", user="ada")
    others = [await client.tokens.create("laptop", user="bob"), await client.tokens.create("of a program")]
    await client.tokens.revoke((await client.tokens.create("lost", user="ada")).token.id)
    code = await client.tokens.create_sign_in(user="ada")
    await client.users.deactivate("ada")
    assert (await client.audit(limit=1))[0].detail == {"tokens": 1}
    with pytest.raises(weft.InvalidInput, match="user: ada is deactivated: activate him first"):
        await client.tokens.create("again", user="ada")
    await client.users.activate("ada")
    assert await _principal(client, mine.secret) is None
    assert await client.database.run(lambda conn: sign_ins.take(conn, code.code)) is None
    assert all([await _principal(client, made.secret) for made in others])
    again = await client.tokens.create("again", user="ada")
    assert await _principal(client, again.secret) is not None


async def test_no_code_that_is_made_while_its_user_is_deactivated_outlives_that(
    client: weft.Client, conn: Conn
) -> None:
    ada = await client.users.add("ada")
    making = {"role": "reader", "actor": "test", "user": ada.id, "span": timedelta(minutes=1)}
    async with client.database.transaction() as first:
        made = await sign_ins.create(first, await client.org_id(), "b", **making)  # type: ignore[arg-type]
        leaving = asyncio.create_task(client.users.deactivate("ada"))
        while not await conn.fetchval(WAITING, "%deactivated_at%"):
            assert not leaving.done()
            await asyncio.sleep(0.01)
    await leaving
    with pytest.raises(weft.InvalidInput, match="user: ada is deactivated: activate him first"):
        await client.tokens.create_sign_in(user="ada")
    await client.users.activate("ada")
    assert await client.database.run(lambda conn: sign_ins.take(conn, made.code)) is None


async def test_an_org_is_entered_by_its_first_user_and_a_token_that_stands_in_its_audit(client: weft.Client) -> None:
    assert await client.orgs.create("acme", admin="ada")
    assert not await client.orgs.create("acme", admin="eve")
    made = await client.orgs.create_token("acme", user="ada", expires_in=60)
    who = await _principal(client, made.secret)
    assert who is not None
    assert (who.org, who.actor, who.role) == ("acme", "ada", "admin")
    acme = client.of_org(who.org_id, "acme")
    assert [(user.external_id, user.role) for user in await acme.users.list()] == [("ada", "admin")]
    assert [each.subject_kind for each in await acme.audit()] == ["token", "user", "org"]
    assert await client.audit() == []
    with pytest.raises(weft.NotFound, match="org"):
        await client.orgs.create_token("nobody")
    with pytest.raises(weft.InvalidInput):
        await client.orgs.create("globex", admin="")
    assert [org.slug for org in await client.orgs.list()] == ["acme", "default"]


async def test_a_token_tells_when_it_was_last_used_and_is_not_written_at_each_use(
    client: weft.Client, clock: Clock
) -> None:
    made = await client.tokens.create("w", role="worker", queues=["default", "mail"])
    assert made.token.last_used_at is None
    principal = await _principal(client, made.secret)
    assert principal is not None
    assert principal.queues == ("default", "mail")
    first = (await client.tokens.show(made.token.id)).last_used_at
    assert first is not None
    await _principal(client, made.secret)
    assert (await client.tokens.show(made.token.id)).last_used_at == first
    await clock.advance(minutes=2)
    await _principal(client, made.secret)
    last = (await client.tokens.show(made.token.id)).last_used_at
    assert last is not None
    assert last > first


async def test_one_who_is_a_user_of_two_orgs_must_be_told_which(client: weft.Client, make_client: MakeClient) -> None:
    await client.orgs.create("acme")
    acme = await make_client(org="acme", actor="op")
    await client.users.add("ada", role="admin")

    async def vouched(org: str | None) -> str | None:
        found = await client.database.read(lambda conn: users.principal(conn, "ada", org))
        return None if found is None else f"{found.role} in {found.org}"

    assert await vouched(None) == "admin in default"
    assert await vouched("acme") is None
    await acme.users.add("ada", role="reader")
    assert await vouched(None) is None
    assert await vouched("acme") == "reader in acme"
    await acme.users.deactivate("ada")
    assert await vouched(None) == "admin in default"
    assert await vouched("acme") is None


async def test_another_org_neither_sees_nor_changes_people_and_tokens(
    client: weft.Client, make_client: MakeClient, conn: Conn
) -> None:
    await client.orgs.create("acme")
    acme = await make_client(org="acme", actor="op")
    ada = await client.users.add("ada", role="admin")
    await client.roles.create("finance")
    token = (await client.tokens.create("nightly")).token
    before = await _all(conn)
    assert await acme.users.list(with_deactivated=True) == []
    assert await acme.roles.list() == []
    assert await acme.tokens.list(with_ended=True) == []
    for act in (
        acme.users.show(ada.id), acme.users.show("ada"), acme.users.change("ada", role="reader"),
        acme.users.deactivate(ada.id), acme.users.activate(ada.id), acme.roles.show("finance"),
        acme.roles.delete("finance"), acme.roles.grant("finance", ada.id), acme.roles.revoke("finance", "ada"),
        acme.tokens.show(token.id), acme.tokens.revoke(token.id), acme.tokens.list(user=ada.id),
        acme.tokens.create("x", user=ada.id),
    ):  # fmt: skip
        with pytest.raises(weft.NotFound):
            await act
    assert await _all(conn) == before
    # What they call theirs is free for others, and tells them nothing.
    assert (await acme.users.add("ada")).id != ada.id
    assert (await acme.users.add(str(ada.id))).external_id == str(ada.id)
    assert await acme.roles.create("finance")
    with pytest.raises(weft.NotFound):
        await acme.roles.grant("finance", ada.id)
    await acme.roles.delete("finance")
    assert (await client.roles.show("finance")).users == 0


async def test_the_database_itself_refuses_a_role_for_a_user_of_another_org(
    client: weft.Client, make_client: MakeClient, conn: Conn
) -> None:
    await client.orgs.create("acme")
    acme = await make_client(org="acme", actor="op")
    ada = await client.users.add("ada")
    await acme.roles.create("finance")
    role = await acme.roles.show("finance")
    org_id = await conn.fetchval("select org_id from weft.org_role where id = $1", role.id)
    for org in (org_id, 1):
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await conn.execute(
                "insert into weft.org_role_membership (org_id, role_id, user_id, actor) values ($1, $2, $3, 'x')",
                org, role.id, ada.id,
            )  # fmt: skip
