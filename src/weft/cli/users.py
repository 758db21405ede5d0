"""``weft users``: looks at the users of an org, adds, changes and deactivates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.catalog.model import User

app = new_app("Look at the users of the org, add, change and deactivate them.")

Name = Annotated[str, typer.Argument(metavar="USER", help="What the identity provider calls the user, or an id.")]
RoleName = Annotated[str | None, typer.Option("--role", metavar="ROLE", help="reader, writer or admin.")]
Email = Annotated[str | None, typer.Option(help="Where the user is written to.")]

_COLUMNS = ("USER~", "ROLE", "ROLES OF THE ORG~", "EMAIL~", "ADDED", "")
_LISTING = Listing("users", _COLUMNS, "no users", key="external_id", by="after")


@app.command("list")
def list_users(
    role: RoleName = None,
    every: Annotated[bool, typer.Option("--all", help="Also those who are deactivated.")] = False,
    after: Annotated[str, typer.Option(metavar="USER", help="Go on after this one.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the users of the org."""
    found = call(lambda client: client.users.list(role=role, with_deactivated=every, after=after, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


@app.command()
def show(user: Name, as_json: JsonFlag = False) -> None:
    """Show a user."""
    from weft.cli.output import as_record, print_json, print_table

    found = call(lambda client: client.users.show(user))
    if as_json:
        print_json(as_record(found))
    else:
        print_table(_COLUMNS, [_row(found)], empty="no user")


def _row(user: User) -> tuple[Any, ...]:
    from weft.cli.output import when

    ended = "" if user.deactivated_at is None else f"deactivated {when(user.deactivated_at)}"
    return user.external_id, user.role, ", ".join(user.roles), user.email or "", when(user.created_at), ended


@app.command()
@says_why
def add(
    user: Annotated[str, typer.Argument(metavar="USER", help="What the identity provider calls the user.")],
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="reader, writer or admin.")] = "reader",
    email: Email = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a user to the org."""
    from weft.cli.output import as_record, tell

    added = call(lambda client: client.users.add(user, role=role, email=email))
    tell(as_record(added), f"added {user}, {added.role}", as_json=as_json)


@app.command()
@says_why
def change(user: Name, role: RoleName = None, email: Email = None, as_json: JsonFlag = False) -> None:
    """Give a user another role or address."""
    from weft.cli.output import as_record, tell

    changed = call(lambda client: client.users.change(user, role=role, email=email))
    tell(as_record(changed), f"{changed.external_id} is {changed.role}", as_json=as_json)


@app.command()
@says_why
def deactivate(user: Name, as_json: JsonFlag = False) -> None:
    """Let nobody act as a user any more. The user's tokens and sessions are revoked for good."""
    from weft.cli.output import tell

    call(lambda client: client.users.deactivate(user))
    tell({"user": user, "active": False}, f"deactivated {user}", as_json=as_json)


@app.command()
@says_why
def activate(user: Name, as_json: JsonFlag = False) -> None:
    """Let a user act again who was deactivated, by the identity provider or by new tokens."""
    from weft.cli.output import tell

    call(lambda client: client.users.activate(user))
    tell({"user": user, "active": True}, f"activated {user}", as_json=as_json)
