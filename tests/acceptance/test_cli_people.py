"""Orgs, users, roles and tokens through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from apps.cli_scene import Cli


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


def test_people_are_managed(cli: Cli) -> None:
    assert cli.json("orgs", "create", "acme") == {"org": "acme", "created": True}
    assert [org["slug"] for org in cli.json("orgs", "list")["orgs"]] == ["acme", "default"]
    assert cli.json("users", "add", "ada", "--role", "writer")["role"] == "writer"
    assert cli("roles", "create", "finance").strip() == "created finance"
    assert cli.json("roles", "grant", "finance", "ada") == {"role": "finance", "user": "ada", "granted": True}
    assert cli.json("users", "show", "ada")["roles"] == ["finance"]
    assert "would delete finance, which 1 have" in cli("roles", "delete", "finance")
    assert cli.json("roles", "delete", "finance", "--yes") == {"role": "finance", "deleted": True, "users": 1}
    cli("users", "deactivate", "ada")
    assert cli("users", "list").strip() == "no users"
    assert "deactivated" in cli("users", "list", "--all")


def test_a_secret_is_printed_alone_and_once(cli: Cli) -> None:
    secret = cli("tokens", "create", "nightly", "--role", "worker", "--queues", "a,b", "--expires-in", "90d").strip()
    assert secret.startswith("weft_")
    assert len(secret.split()) == 1
    listed = cli("tokens", "list")
    assert secret not in listed
    assert secret[:11] in listed
    [token] = cli.json("tokens", "list")["tokens"]
    assert (token["name"], token["role"], token["queues"]) == ("nightly", "worker", ["a", "b"])
    assert cli.json("tokens", "revoke", token["id"]) == {"token": token["id"], "revoked": True}
    assert cli("tokens", "list").strip() == "no tokens"
    assert "revoked" in cli("tokens", "list", "--all")
    assert secret not in cli("audit", "list", "--json")


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (("users", "add", "ada", "--role", "owner"), 2, "role: 'owner' is not one of reader, writer, admin"),
        (("users", "show", "nobody"), 4, "there is no user nobody; see `weft users list --all`"),
        (("tokens", "create", "x", "--queues", "a"), 2, "queues: only a token with the role worker"),
        (("tokens", "revoke", "x"), 2, "token: 'x' is not an id: give a number as `weft tokens list` shows it"),
        (("orgs", "create", "No Way"), 2, "org: 'No Way' may have small letters"),
    ],
)
def test_what_is_refused_is_told(cli: Cli, argv: tuple[str, ...], code: int, told: str) -> None:
    assert told in cli(*argv, code=code)
