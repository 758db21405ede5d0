"""``weft whoami``: says as whom commands act."""

from __future__ import annotations

from typing import Any

from weft.cli.apps import JsonFlag, new_app

app = new_app()


@app.command()
def whoami(as_json: JsonFlag = False) -> None:
    """Say as whom commands act: the org, the name under which acts are kept, the role, until when."""
    import asyncio
    from datetime import datetime

    from weft.cli.output import moment_text, print_facts, print_json
    from weft.cli.target import find_target

    target = find_target()
    facts = asyncio.run(_through_server(target.settings)) if target.kind == "server" else _by_database(target.settings)
    facts = {**facts, "through": target.settings.server or target.kind, "why": target.why}
    if as_json:
        print_json(facts)
        return
    end = facts.pop("expires_at")
    print_facts(facts | {"good until": None if end is None else moment_text(datetime.fromisoformat(end))})


async def _through_server(settings: Any) -> dict[str, Any]:
    from weft.remote.identity import who_am_i

    return await who_am_i(settings.server, settings.token)


def _by_database(settings: Any) -> dict[str, Any]:
    """Return who whoever reaches the database is: nobody asks for a role there."""
    from weft.sdk.actor import default_actor

    return {"org": settings.org, "actor": settings.actor or default_actor(), "role": None, "expires_at": None}
