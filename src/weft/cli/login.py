"""``weft login``: signs in to a server, and keeps the token for the commands that follow."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app

app = new_app()


@app.command()
def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of the server: https://weft.example.com.")],
    token: Annotated[
        str | None, typer.Option(metavar="-", help="A - reads the token from the input; without this you are asked.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds the token.")] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call it; by default by the server's host.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Sign in to a server: the commands that follow go there, until `weft logout` or `weft context use local`.

    An admin makes a token by `weft tokens create NAME --role writer`. It is tried before it is kept, in a file that
    only you may read.
    """
    import asyncio

    from weft.cli.contexts import Context, changing_contexts, check_context_name
    from weft.cli.output import remark, tell
    from weft.remote.addresses import check_server
    from weft.remote.identity import who_am_i

    url = check_server(url)
    name = check_context_name(context if context is not None else _name_of(url))
    secret = _read_token(token, token_file)
    me = asyncio.run(who_am_i(url, secret))
    with changing_contexts() as contexts:
        contexts.by_name[name] = Context(name, url, secret)
        contexts.current = name
    if _is_in_the_clear(url):
        remark("the token travels in the clear: use https:// wherever the network is not yours")
    facts = {"context": name, "server": url, **me}
    tell(facts, f"signed in to {url} as {me['actor']}, {me['role']} of {me['org']}", as_json=as_json)


def _read_token(token: str | None, file: Path | None) -> str:
    from weft.core.errors import InvalidInput
    from weft.core.settings import Settings

    if token is not None and file is not None:
        raise InvalidInput("--token", "give either it or --token-file")
    if token is not None and token != "-":
        raise InvalidInput("--token", "other users can read what stands on a command line: give - and pipe it in")
    if file is not None:
        found = file.read_text(encoding="utf-8")
    elif token == "-":
        found = sys.stdin.read()
    elif (known := Settings.load().token) is not None:
        found = known
    elif sys.stdin.isatty():
        import getpass

        found = getpass.getpass("Token (not shown): ")
    else:
        raise InvalidInput("--token", "is missing: give - and pipe the token in, or --token-file")
    if not found.strip():
        raise InvalidInput("--token", "is empty")
    return found.strip()


def _name_of(url: str) -> str:
    from urllib.parse import urlsplit

    found = urlsplit(url)
    return re.sub(r"[^A-Za-z0-9._]+", "-", found.netloc + found.path).strip("-._") or "server"


def _is_in_the_clear(url: str) -> bool:
    from urllib.parse import urlsplit

    return url.startswith("http://") and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")
