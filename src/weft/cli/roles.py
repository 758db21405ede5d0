"""``weft roles``: looks at the roles that an org defines, gives and takes them."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.calls import call
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

app = new_app("Look at the roles that the org defines, give and take them.")

Slug = Annotated[str, typer.Argument(metavar="ROLE", help="The role's short name.")]
User = Annotated[str, typer.Argument(metavar="USER", help="What the identity provider calls the user, or an id.")]

_COLUMNS = ("ROLE~", "NAME~", "USERS>", "CREATED")
_LISTING = Listing("roles", _COLUMNS, "no roles", key="slug", by="after")


@app.command("list")
def list_roles(
    after: Annotated[str, typer.Option(metavar="ROLE", help="Go on after this one.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the roles that the org defines. What a user may do is told by `weft users`."""
    from weft.cli.output import when

    found = call(lambda client: client.roles.list(after=after, limit=limit))
    _LISTING.show(found, lambda role: (role.slug, role.name, role.users, when(role.created_at)), limit, as_json=as_json)


@app.command()
def show(role: Slug, as_json: JsonFlag = False) -> None:
    """Show a role of the org: what it is called, and how many have it."""
    from weft.cli.output import as_record, print_json, print_table, when

    found = call(lambda client: client.roles.show(role))
    if as_json:
        print_json(as_record(found))
    else:
        print_table(_COLUMNS, [(found.slug, found.name, found.users, when(found.created_at))], empty="no role")


@app.command()
@says_why
def create(
    role: Slug,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Define a role. One that is there is left as it is."""
    from weft.cli.output import tell

    created = call(lambda client: client.roles.create(role, name))
    tell(
        {"role": role, "created": created},
        f"created {role}" if created else f"{role} is there already",
        as_json=as_json,
    )


@app.command()
@says_why
def delete(role: Slug, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Take a role away from all who have it, and the role itself."""
    from weft.cli.output import tell

    if not yes:
        users = call(lambda client: client.roles.show(role)).users
        tell(
            {"role": role, "deleted": False, "users": users},
            f"would delete {role}, which {users} have: add --yes",
            as_json=as_json,
        )
        return
    users = call(lambda client: client.roles.delete(role))
    tell({"role": role, "deleted": True, "users": users}, f"deleted {role}, which {users} had", as_json=as_json)


@app.command()
@says_why
def grant(role: Slug, user: User, as_json: JsonFlag = False) -> None:
    """Give a user a role."""
    from weft.cli.output import tell

    granted = call(lambda client: client.roles.grant(role, user))
    text = f"{user} has the role {role}" + ("" if granted else " already")
    tell({"role": role, "user": user, "granted": granted}, text, as_json=as_json)


@app.command()
@says_why
def revoke(role: Slug, user: User, as_json: JsonFlag = False) -> None:
    """Take a role from a user."""
    from weft.cli.output import tell

    revoked = call(lambda client: client.roles.revoke(role, user))
    text = f"{user} has the role {role} no more" if revoked else f"{user} does not have the role {role}"
    tell({"role": role, "user": user, "revoked": revoked}, text, as_json=as_json)
