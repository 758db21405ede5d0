"""``weft orgs``: looks at orgs and makes them."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

app = new_app("Look at orgs and make them.")

_COLUMNS = ("ORG~", "NAME~", "CREATED")
_LISTING = Listing("orgs", _COLUMNS, "no orgs", key="slug", by="after")
Slug = Annotated[str, typer.Argument(metavar="ORG", help="The org's short name, as WEFT_ORG takes it.")]
After = Annotated[str, typer.Option(metavar="ORG", help="Go on after this one.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]


@app.command("list")
def list_orgs(after: After = "", limit: Limit = 100, as_json: JsonFlag = False) -> None:
    """List the orgs of the installation."""
    from weft.cli.output import when

    found = call(lambda client: client.orgs.list(after=after, limit=limit))
    _LISTING.show(found, lambda org: (org.slug, org.name, when(org.created_at)), limit, as_json=as_json)


@app.command()
def show(org: Slug, as_json: JsonFlag = False) -> None:
    """Show an org."""
    from weft.cli.output import as_record, print_json, print_table, when

    found = call(lambda client: client.orgs.show(org))
    if as_json:
        print_json(as_record(found))
    else:
        print_table(_COLUMNS, [(found.slug, found.name, when(found.created_at))], empty="no org")


@app.command()
@says_why
def create(
    org: Slug,
    name: Annotated[str | None, typer.Option(help="What people call it; without this, as it is called here.")] = None,
    admin: Annotated[
        str | None, typer.Option(metavar="USER", help="Its first user, an admin, as the identity provider calls him.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make an org, with a queue of the name default. One that is there is left as it is."""
    from weft.cli.output import tell
    from weft.cli.target import find_target

    created = call(lambda client: client.orgs.create(org, name, admin=admin))
    has_server = find_target().kind == "server"
    how = f"`weft orgs token {org}` makes a token to get in" if has_server else f"use it with WEFT_ORG={org}"
    text = f"created {org}: {how}" if created else f"{org} is there already"
    tell({"org": org, "created": created}, text, as_json=as_json)


@app.command()
@says_why
def token(
    org: Slug,
    name: Annotated[str, typer.Option(help="What it is for: it stands in the audit trail of the org.")] = "first",
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="reader, writer, admin or worker.")] = "admin",
    user: Annotated[str | None, typer.Option(metavar="USER", help="Make it a token of this user of the org.")] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it is good for, such as 1d; without this, for ever."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a token of an org, by which its first people get in, and print it. It is shown this once."""
    from weft.cli.inputs import read_duration
    from weft.cli.output import as_record, print_json, remark

    span = read_duration("expires_in", expires_in)
    made = call(lambda client: client.orgs.create_token(org, name, role=role, user=user, expires_in=span))
    if as_json:
        print_json({**as_record(made.token), "secret": made.secret})
    else:
        print(made.secret)
        remark("keep it: it is not shown again")


@app.command()
@says_why
def rename(
    org: Slug, name: Annotated[str, typer.Argument(help="What people call it from now on.")], as_json: JsonFlag = False
) -> None:
    """Change what people call an org; what programs call it stays."""
    from weft.cli.output import tell

    call(lambda client: client.orgs.rename(org, name))
    tell({"org": org, "name": name}, f"{org} is called {name}", as_json=as_json)
