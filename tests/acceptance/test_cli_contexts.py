"""Signing in to servers, choosing among them, and where commands go because of it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from apps.cli_scene import Cli


@pytest.fixture
def url(emptied_url: str) -> str:
    return emptied_url


@pytest.fixture
def served(url: str, home: Path, tmp_path: Path) -> Iterator[Cli]:
    """A command line that knows no database, beside a server; its contexts are in a folder of its own."""
    with Cli(url, home, XDG_CONFIG_HOME=str(tmp_path / "config")).through_server("writer") as cli:
        yield cli


@pytest.fixture
def server(served: Cli) -> str:
    return served.environment.pop("WEFT_SERVER")


@pytest.fixture
def token(served: Cli, server: str) -> str:
    return served.environment.pop("WEFT_TOKEN")


def test_whoever_signs_in_goes_to_that_server_until_he_signs_out(served: Cli, server: str, token: str) -> None:
    cli = served
    said = cli("login", server, "--token", "-", "--context", "here", text=f"{token}\n")
    assert said == f"signed in to {server} as token:cli, writer of default\n"
    file = Path(cli.environment["XDG_CONFIG_HOME"]) / "weft" / "contexts.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cli.json("queues", "list")["queues"][0]["name"] == "default"
    me = cli.json("whoami")
    assert (me["org"], me["actor"], me["role"], me["through"]) == ("default", "token:cli", "writer", server)
    assert cli.json("context", "show") == {
        "context": "here", "kind": "server", "where": server, "why": "here is the current context"
    }  # fmt: skip
    assert cli.json("config")["why"] == "here is the current context"
    said = cli("db", "status", code=2)
    assert said.startswith(f"weft: weft db works on the database itself, and commands go to {server} because here is")
    for command in ("migrate", "demo", "orchestrator", "worker without --server", "server"):
        assert f"weft: weft {command} works on the database itself" in cli(command.split()[0], code=2)
    everything = [cli("context", "list"), cli("context", "show"), cli("config"), cli("config", "--json"), me, said]
    assert token not in json.dumps(everything)
    assert cli("logout") == f"signed out of {server}\n"
    assert cli.json("context", "show")["kind"] == "embedded"
    assert token not in file.read_text(encoding="utf-8")


def test_what_is_asked_for_wins_over_what_is_current(served: Cli, server: str, token: str) -> None:
    cli = served
    direct = cli.direct.environment["WEFT_DATABASE_URL"]

    def shown(*options: str, **variables: str) -> tuple[str | None, str]:
        other = Cli(None, Path(cli.environment["WEFT_HOME"]), **{**cli.environment, **variables})
        found = other.json(*options, "context", "show")
        return found["context"], found["kind"]

    cli("login", server, "--token", "-", "--context", "one", text=token)
    cli("login", server, "--token", "-", "--context", "two", text=token)
    assert shown() == ("two", "server")
    assert shown("--context", "one") == ("one", "server")
    assert shown(WEFT_CONTEXT="one") == ("one", "server")
    assert shown("--context", "local") == ("local", "embedded")
    assert shown(WEFT_DATABASE_URL=direct) == (None, "database")
    assert shown("--context", "one", WEFT_DATABASE_URL=direct) == ("one", "server")
    assert shown(WEFT_SERVER="http://127.0.0.1:1", WEFT_CONTEXT="one") == (None, "server")
    cli("context", "use", "one")
    assert [each["name"] for each in cli.json("context", "list")["contexts"] if each["current"]] == ["one"]
    cli("context", "delete", "one")
    assert shown() == (None, "embedded")
    assert cli("context", "use", "one", code=4).startswith("weft: there is no context one; there are local and two;")
    assert "there is no context on;" in cli("--context", "on", "queues", "list", code=4)
    cli.environment["WEFT_SERVER"] = server
    assert "WEFT_SERVER is set, and would win" in cli("--context", "two", "queues", "list", code=2)


def test_a_sign_in_that_is_refused_says_why_and_keeps_nothing(served: Cli, server: str, token: str) -> None:
    cli = served
    assert "the token is unknown, revoked or past its time" in cli("login", server, "--token", "-", text="x", code=8)
    assert "cannot reach the server at http://127.0.0.1:1" in cli(
        "login", "http://127.0.0.1:1", "--token", "-", text=token, code=3
    )
    assert "is not an address" in cli("login", "weft.example.com", "--token", "-", text=token, code=2)
    assert "other users can read what stands on a command line" in cli("login", server, "--token", token, code=2)
    assert "is missing" in cli("login", server, code=2)
    assert "is empty" in cli("login", server, "--token", "-", text="\n", code=2)
    assert "choose another name" in cli("login", server, "--token", "-", "--context", "local", text=token, code=2)
    assert [each["name"] for each in cli.json("context", "list")["contexts"]] == ["local"]
    assert cli("logout", code=4).startswith("weft: there is no context current; you are signed in nowhere")


def test_a_file_of_tokens_that_others_may_read_is_refused(served: Cli, server: str, token: str) -> None:
    kept = Path(served.environment["XDG_CONFIG_HOME"]) / "weft" / "contexts.toml"
    (kept.parent / "token").parent.mkdir(parents=True)
    (kept.parent / "token").write_text(token, encoding="utf-8")
    served("login", server, "--token-file", str(kept.parent / "token"))
    os.chmod(kept, 0o644)
    assert served("queues", "list", code=3).endswith(f"others may read it: `chmod 600 {kept}`")
    os.chmod(kept, 0o600)
    kept.write_text("contexts = 3", encoding="utf-8")
    assert "each context must be a table" in served("queues", "list", code=3)
