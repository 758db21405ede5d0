"""``weft context``: chooses among the servers that a person has signed in to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.completion import complete_context

app = new_app("Choose among the servers that you have signed in to by `weft login`.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A context, as the list shows it.", autocompletion=complete_context)
]


@app.command("list")
def list_contexts(as_json: JsonFlag = False) -> None:
    """List the contexts; the current one is marked with *. `local` is the database of this machine."""
    from weft.cli.contexts import LOCAL, read_contexts
    from weft.cli.output import print_json, print_table
    from weft.cli.target import is_used

    contexts = read_contexts()
    current = contexts.current if is_used(contexts) else LOCAL
    found: list[dict[str, Any]] = [{"name": LOCAL, "server": None, "current": current == LOCAL}]
    for each in contexts.by_name.values():
        found.append({"name": each.name, "server": each.server, "current": each.name == current})
    if as_json:
        print_json({"contexts": found})
        return
    rows = [("*" if each["current"] else "", each["name"], each["server"] or "this machine") for each in found]
    print_table(("", "NAME", "SERVER~"), rows, empty="")


@app.command()
def use(name: Name, as_json: JsonFlag = False) -> None:
    """Let commands go to this server from now on; `local` lets them go to the database of this machine."""
    from weft.cli.contexts import LOCAL, changing_contexts
    from weft.cli.output import tell

    with changing_contexts() as contexts:
        server = None if name == LOCAL else contexts.find(name).server
        contexts.current = None if name == LOCAL else name
    tell({"context": name, "server": server}, f"commands go to {server or 'this machine'} now", as_json=as_json)


@app.command()
def show(as_json: JsonFlag = False) -> None:
    """Say where commands go now, and why; `weft whoami` says as whom."""
    from weft.cli.output import print_facts, print_json
    from weft.cli.target import find_target
    from weft.db.address import redacted

    found = find_target()
    url = found.settings.database_url
    where = found.settings.server or (None if url is None else redacted(url))
    facts = {"context": found.context, "kind": found.kind, "where": where, "why": found.why}
    print_json(facts) if as_json else print_facts(facts)


@app.command()
def delete(name: Name, as_json: JsonFlag = False) -> None:
    """Forget a server and the token for it. The token itself is good until it is revoked."""
    from weft.cli.contexts import changing_contexts
    from weft.cli.output import tell

    with changing_contexts() as contexts:
        del contexts.by_name[contexts.find(name).name]
        contexts.current = None if contexts.current == name else contexts.current
    tell({"deleted": name}, f"deleted {name}", as_json=as_json)
