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
    as_json: JsonFlag = False,
) -> None:
    """Make an org, with a queue of the name default. One that is there is left as it is."""
    from weft.cli.output import tell

    created = call(lambda client: client.orgs.create(org, name))
    text = f"created {org}: use it with WEFT_ORG={org}" if created else f"{org} is there already"
    tell({"org": org, "created": created}, text, as_json=as_json)


@app.command()
@says_why
def rename(
    org: Slug, name: Annotated[str, typer.Argument(help="What people call it from now on.")], as_json: JsonFlag = False
) -> None:
    """Change what people call an org; what programs call it stays."""
    from weft.cli.output import tell

    call(lambda client: client.orgs.rename(org, name))
    tell({"org": org, "name": name}, f"{org} is called {name}", as_json=as_json)
