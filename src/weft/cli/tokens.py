"""``weft tokens``: looks at tokens, makes and revokes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.catalog.model import Token

app = new_app("Look at tokens, make and revoke them.")

_COLUMNS = ("ID", "NAME~", "ROLE", "USER~", "QUEUES~", "BEGINS WITH", "LAST USED", "")
_LISTING = Listing("tokens", _COLUMNS, "no tokens", key="id", by="before")
TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token's id, as the list shows it.")]


@app.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only those of this user.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are revoked or past their time.")] = False,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on before this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List tokens, newest first."""
    from weft.cli.inputs import read_id

    below = read_id("before", before)
    found = call(lambda client: client.tokens.list(user=user, with_ended=every, before=below, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


@app.command()
def show(token: TokenId, as_json: JsonFlag = False) -> None:
    """Show a token, without what would let anybody use it."""
    from weft.cli.output import as_record, print_json, print_table
    from weft.core.checks import check_id

    token_id = check_id(token, "token", shown_by="weft tokens list")
    found = call(lambda client: client.tokens.show(token_id))
    if as_json:
        print_json(as_record(found))
    else:
        print_table(_COLUMNS, [_row(found)], empty="no token")


def _row(token: Token) -> tuple[Any, ...]:
    from weft.cli.output import when

    if token.revoked_at is not None:
        end = f"revoked {when(token.revoked_at)}"
    else:
        end = "" if token.expires_at is None else f"expires {when(token.expires_at)}"
    return (
        token.id, token.name, token.role, token.user or "", ", ".join(token.queues or ()), token.hint,
        when(token.last_used_at), end,
    )  # fmt: skip


@app.command()
@says_why
def create(
    name: Annotated[str, typer.Argument(help="What it is for: it stands in the audit trail.")],
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="reader, writer, admin or worker.")] = "reader",
    user: Annotated[str | None, typer.Option(metavar="USER", help="Make it a token of this user.")] = None,
    queues: Annotated[
        str | None, typer.Option(metavar="QUEUES", help="With --role worker: only these, separated by commas.")
    ] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it is good for, such as 90d; without this, for ever."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a token and print it. It is shown this once, and kept nowhere."""
    from weft.cli.inputs import read_duration
    from weft.cli.output import as_record, print_json, remark

    span = read_duration("expires_in", expires_in)
    names = None if queues is None else [name.strip() for name in queues.split(",")]
    made = call(lambda client: client.tokens.create(name, role=role, user=user, queues=names, expires_in=span))
    if as_json:
        print_json({**as_record(made.token), "secret": made.secret})
    else:
        print(made.secret)
        remark("keep it: it is not shown again")


@app.command("sign-in")
@says_why
def sign_in(
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="reader, writer or admin.")] = "reader",
    user: Annotated[str | None, typer.Option(metavar="USER", help="Let this user in.")] = None,
    expires_in: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the link is good for, such as 10m; an hour at most.")
    ] = "10m",
    as_json: JsonFlag = False,
) -> None:
    """Make a link that lets a browser in once, and print it. It is shown this once, and kept nowhere."""
    from weft.cli.inputs import read_duration
    from weft.cli.output import as_record, print_json, remark

    span = read_duration("expires_in", expires_in)
    assert span is not None
    made = call(lambda client: client.tokens.create_sign_in(role=role, user=user, expires_in=span))
    link = f"{_address() or ''}/sign-in?code={made.code}"
    if as_json:
        print_json({**as_record(made), "link": link})
    else:
        print(link)
        remark("it lets one browser in, once" if "://" in link else "it belongs after the address of a server")


def _address() -> str | None:
    """Return where a browser reaches the server, if anything says so: WEFT_PUBLIC_URL, or a `weft dev` that runs."""
    from weft.cli.dev_lock import running_at
    from weft.cli.target import find_target

    settings = find_target().settings
    return settings.server or settings.public_url or running_at(settings)


@app.command()
@says_why
def revoke(token: TokenId, as_json: JsonFlag = False) -> None:
    """Let nobody act by a token any more. There is no way back: make another."""
    from weft.cli.output import tell
    from weft.core.checks import check_id

    token_id = check_id(token, "token", shown_by="weft tokens list")
    call(lambda client: client.tokens.revoke(token_id))
    tell({"token": str(token_id), "revoked": True}, f"revoked {token_id}", as_json=as_json)
