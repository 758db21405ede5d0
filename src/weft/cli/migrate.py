"""``weft migrate``: brings the database's schema to a revision."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.inputs import require_yes

if TYPE_CHECKING:
    from weft.db.database import Database

app = new_app()


class Action(StrEnum):
    """What to do with the schema."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    CURRENT = "current"
    HISTORY = "history"


@app.command()
def migrate(
    action: Annotated[Action, typer.Argument(metavar="ACTION", help="What to do.")] = Action.UPGRADE,
    revision: Annotated[
        str | None,
        typer.Argument(metavar="REVISION", help="A revision, `head` or `base`; an upgrade goes to head by default."),
    ] = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that an upgrade would run, and change nothing.")
    ] = False,
    server_role: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="Give this role what `weft server` needs, each session held to one org."),
    ] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Bring the database's schema to a revision, or tell which one it has.

    An embedded database is started first; it also upgrades itself whenever a command or a worker opens it. With
    --sql what is printed begins at the database's revision; when there is no database yet, or it cannot be reached,
    at nothing. Roles that are held to one org at a time are held in new tables too.
    """
    from weft.core.errors import InvalidInput

    if revision is not None and action in (Action.CURRENT, Action.HISTORY):
        raise InvalidInput("revision", f"`weft migrate {action}` takes none")
    if sql and action is not Action.UPGRADE:
        raise InvalidInput("--sql", "is for `weft migrate upgrade` only")
    if server_role is not None and action is not Action.UPGRADE:
        raise InvalidInput("--server-role", "is for `weft migrate upgrade` only")
    match action:
        case Action.UPGRADE:
            _upgrade(revision or "head", server_role, sql=sql, as_json=as_json)
        case Action.DOWNGRADE:
            if revision is None:
                raise InvalidInput("revision", "name the revision to go back to; `base` drops everything")
            _downgrade(revision, yes=yes, as_json=as_json)
        case Action.CURRENT:
            _print_current(as_json=as_json)
        case Action.HISTORY:
            _print_history(as_json=as_json)


def _upgrade(revision: str, server_role: str | None, *, sql: bool, as_json: bool) -> None:
    from weft.cli.output import tell
    from weft.cli.progress import counted
    from weft.db import migrate

    if sql:
        statements = migrate.sql_of_upgrade(revision, asyncio.run(_found()), server_role=server_role)
        statements = statements.rstrip("\n")
        tell({"sql": statements}, statements, as_json=as_json)
        return

    async def main() -> tuple[str | None, str | None]:
        database = await _reached()
        before = await _current(database)
        steps = [each for each, _ in reversed(migrate.history())]
        with counted("applied", len(steps)) as show:
            tell_step = None if show is None else lambda step: show(1 + steps.index(step))
            address = database.listen_url or database.url
            await migrate.upgrade(address, revision, tell_step, server_role=server_role)
        return before, await _current(database)

    before, after = asyncio.run(main())
    text = f"at revision {after} already" if before == after else f"upgraded from {before or 'nothing'} to {after}"
    tell({"before": before, "current": after}, text, as_json=as_json)


def _downgrade(revision: str, *, yes: bool, as_json: bool) -> None:
    from weft.cli.output import tell
    from weft.cli.progress import counted
    from weft.db import migrate

    require_yes(yes, f"going back to {revision} drops what later revisions have added, with its data")

    async def main() -> tuple[str | None, str | None]:
        database = await _reached()
        before = await _current(database)
        steps = [each for each, _ in migrate.history() if revision == "base" or each > revision]
        with counted("taken back", len(steps)) as show:
            tell_step = None if show is None else lambda step: show(1 + steps.index(step))
            await migrate.downgrade(database.listen_url or database.url, revision, tell_step)
        return before, await _current(database)

    before, after = asyncio.run(main())
    text = f"downgraded from {before or 'nothing'} to {after or 'nothing'}"
    tell({"before": before, "current": after}, text, as_json=as_json)


def _print_current(*, as_json: bool) -> None:
    from weft.cli.output import print_json
    from weft.db import revisions

    async def main() -> str | None:
        return await _current(await _reached())

    found, head = asyncio.run(main()), revisions.head()
    if as_json:
        print_json({"current": found, "head": head})
    else:
        print(f"{found or 'nothing'}{' (head)' if found == head else f', and head is {head}'}")


def _print_history(*, as_json: bool) -> None:
    from weft.cli.output import print_json, print_table
    from weft.db import migrate

    steps = migrate.history()
    if as_json:
        print_json({"revisions": [{"revision": revision, "title": title} for revision, title in steps]})
    else:
        print_table(("REVISION", "TITLE~"), steps, empty="no revisions")


async def _found() -> str | None:
    """Return the revision of the database, None when there is none or nobody can tell."""
    from weft.cli.output import complain
    from weft.cli.target import database_settings
    from weft.core.errors import DatabaseUnavailable
    from weft.db import embedded

    settings = database_settings("weft migrate")
    if settings.database_url is None and not (await embedded.status(settings)).size:
        return None
    try:
        return await _current(await _reached())
    except DatabaseUnavailable as problem:
        complain(f"{problem}; this is the whole upgrade, from nothing")
        return None


async def _reached() -> Database:
    """Return the database of the settings as it is, whatever its schema; the embedded one is started."""
    from weft.cli.target import database_settings
    from weft.db import embedded
    from weft.db.database import Database

    settings = database_settings("weft migrate")
    return Database(settings.database_url or (await embedded.ensure_running(settings)).url, settings)


async def _current(database: Database) -> str | None:
    from weft.db import revisions

    conn = await database.connect(database.listen_url)
    try:
        return await revisions.current(conn)
    finally:
        await conn.close()
