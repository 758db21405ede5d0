"""Signing in to servers, choosing among them, and where commands go because of it."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

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
    for command in ("migrate", "demo", "orchestrator", "server"):
        assert f"weft: weft {command} works on the database itself" in cli(command, code=2)
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
    for place in (("context", "--context", "one", "show"), ("context", "show", "--context", "one", "-q")):
        assert cli.json(*place)["context"] == "one"
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
    assert "WEFT_SERVER is set, and would win" in cli("queues", "list", "--context", "two", code=2)


@pytest.mark.parametrize(("by", "processes"), [("WEFT_SERVER", "1"), ("a context", "2")])
def test_a_worker_goes_where_commands_go(url: str, home: Path, tmp_path: Path, by: str, processes: str) -> None:
    with Cli(url, home, XDG_CONFIG_HOME=str(tmp_path / "config")).through_server("worker") as cli:
        if by == "a context":
            server, token = cli.environment.pop("WEFT_SERVER"), cli.environment.pop("WEFT_TOKEN")
            cli("login", server, "--token", "-", text=token)
        with cli.start("worker", "--app", "cli_app", "--processes", processes) as worker:
            worker.line(r"ready\b")
            assert cli.direct.json("tasks", "enqueue", "cli:add", "--params", '{"a": 2}', "--wait")["output"] == 3


def test_a_sign_in_that_is_refused_says_why_and_keeps_nothing(served: Cli, server: str, token: str) -> None:
    cli = served
    refused = cli("login", server, "--token", "-", text="x", code=8)
    assert "the token is unknown, revoked or past its time" in refused
    assert "`weft login URL` signs in" in refused
    assert "cannot reach the server at http://127.0.0.1:1" in cli(
        "login", "http://127.0.0.1:1", "--token", "-", text=token, code=3
    )
    for address, said in (
        ("weft.example.com", "is not an address"), ("http://", "is not an address"),
        ("http://127.0.0.1:port", "is not an address"), ("http://[::1", "is not an address"),
        ("http://ada@127.0.0.1", "has a user in its address"), (f"{server}/api/v1", f"write {server}"),
        (f"{server}/?a=b", "leave out what follows ?"),
    ):  # fmt: skip
        assert said in cli("login", address, "--token", "-", text=token, code=2)
    assert "copy it anew" in cli("login", server, "--token", "-", text="größe", code=2)
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


class _Elsewhere(BaseHTTPRequestHandler):
    """What people find who have the wrong address, and a proxy that has the server under a path of its own."""

    server_url: ClassVar[str]

    def do_GET(self) -> None:
        if self.path.startswith("/weft/"):
            asked = Request(self.server_url + self.path.removeprefix("/weft"), headers=dict(self.headers))
            with urlopen(asked) as found:
                status, headers, body = found.status, {}, found.read()
        else:
            status, headers, body = {
                "/moved/api/v1/me": (301, {"location": "https://weft.example.com/api/v1/me"}, b""),
                "/page/api/v1/me": (200, {}, b"<html>Welcome</html>"),
            }.get(self.path, (404, {}, b"<html>not here</html>"))
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_wrong_address_is_told_with_what_to_do_and_a_prefix_is_part_of_a_right_one(
    served: Cli, server: str, token: str
) -> None:
    _Elsewhere.server_url = server
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{elsewhere.server_port}"
        for address, said in (
            (f"http://{place}", "answered 404 without saying why; is it the address of a Weft server?"),
            (f"http://{place}/page", "answered with what is not Weft's"),
            (f"http://{place}/moved", "sends to https://weft.example.com/api/v1/me"),
            (f"https://{place}/weft", "does its address begin with http://?"),
        ):
            assert said in served("login", address, "--token", "-", text=token, code=3)
        served("login", f"http://{place}/weft/", "--token", "-", text=token)
        assert served.json("context", "show")["where"] == f"http://{place}/weft"
        assert served.json("context", "show")["context"] == f"{place.replace(':', '-')}-weft"
        assert served.json("queues", "list")["queues"][0]["name"] == "default"
        elsewhere.shutdown()
