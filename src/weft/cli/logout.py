"""``weft logout``: forgets a server and the token for it."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.completion import complete_context

app = new_app()


@app.command()
def logout(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[CONTEXT]", help="By default the current one.", autocompletion=complete_context),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Forget a server and the token for it: commands go to this machine again.

    The token itself is good until an admin revokes it by `weft tokens revoke`, or it is past its time.
    """
    from weft.cli.contexts import changing_contexts
    from weft.cli.output import tell
    from weft.cli.target import is_used
    from weft.core.errors import NotFound

    with changing_contexts() as contexts:
        wanted = name or (contexts.current if is_used(contexts) else None)
        if wanted is None:
            raise NotFound("context", "current", advice="you are signed in nowhere; see `weft context list`")
        found = contexts.find(wanted)
        del contexts.by_name[found.name]
        contexts.current = None if contexts.current == found.name else contexts.current
    tell({"context": found.name, "server": found.server}, f"signed out of {found.server}", as_json=as_json)
