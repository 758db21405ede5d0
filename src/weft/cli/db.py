"""``weft db``: starts, stops, looks into and backs up the embedded PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.inputs import require_yes

if TYPE_CHECKING:
    from weft.core.settings import Settings

app = new_app("Start, stop, look into, back up the embedded PostgreSQL.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup's file.")]


def _settings() -> Settings:
    from weft.cli.target import database_settings

    return database_settings("weft db")


def _embedded_settings(verb: str) -> Settings:
    """Return the settings when there is no outside database, which is not ours to ``verb``."""
    from weft.core.errors import CallerError
    from weft.db.address import redacted

    settings = _settings()
    if settings.database_url is not None:
        where = redacted(settings.database_url)
        raise CallerError(f"cannot {verb} an outside database ({where}): do it there, or unset WEFT_DATABASE_URL")
    return settings


@app.command()
def start(as_json: JsonFlag = False) -> None:
    """Start the embedded PostgreSQL, unless it runs."""
    from weft.cli.output import tell
    from weft.db import embedded

    settings = _embedded_settings("start")

    async def main() -> None:
        was_running = (await embedded.status(settings)).running
        server = await embedded.ensure_running(settings)
        facts = {"started": not was_running, "version": server.version, "pid": server.pid}
        text = f"PostgreSQL {server.version} {'runs already' if was_running else 'runs'}, process {server.pid}"
        tell(facts, text, as_json=as_json)

    asyncio.run(main())


@app.command()
def stop(
    immediate: Annotated[
        bool, typer.Option("--immediate", help="Do not wait for anything; the next start recovers.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Stop the embedded PostgreSQL. Whatever is in the queue is there again at the next start."""
    from weft.cli.output import tell
    from weft.db import embedded

    was_running = asyncio.run(embedded.stop(_embedded_settings("stop"), "immediate" if immediate else "fast"))
    tell({"stopped": was_running}, "stopped" if was_running else "it does not run", as_json=as_json)


@app.command()
def status(as_json: JsonFlag = False) -> None:
    """Say whether the database runs, where, how large it is. Exits with 1 when it does not run."""
    from weft.cli.output import print_facts, print_json

    settings = _settings()
    facts = asyncio.run(_embedded_facts(settings) if settings.database_url is None else _outside_facts(settings))
    if as_json:
        print_json(facts)
    else:
        from weft.cli.output import moment_text, size_text

        shown = facts | {
            "running": "yes" if facts["running"] else "no",
            "size": None if facts["size"] is None else size_text(facts["size"]),
            "started_at": moment_text(facts["started_at"]),
        }
        print_facts({name.removesuffix("_at"): value for name, value in shown.items()})
    if not facts["running"]:
        raise typer.Exit(1)


async def _embedded_facts(settings: Settings) -> dict[str, Any]:
    from weft.db import embedded

    found = await embedded.status(settings)
    return {
        "kind": "embedded",
        "running": found.running,
        "version": None if found.version == "unknown" else found.version,
        "pid": found.pid,
        "url": found.url,
        "folder": str(found.data_dir),
        "size": found.size,
        "started_at": found.started_at,
    }


async def _outside_facts(settings: Settings) -> dict[str, Any]:
    from weft.core.errors import DatabaseUnavailable
    from weft.db.address import redacted
    from weft.db.database import Database

    url = settings.database_url or ""
    facts = {
        "kind": "outside",
        "running": False,
        "url": redacted(url),
        "version": None,
        "size": None,
        "started_at": None,
    }
    try:
        found = await Database(url, settings).facts()
    except DatabaseUnavailable as problem:
        return {**facts, "problem": str(problem)}
    return {**facts, "running": True, **found}


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(ctx: typer.Context) -> None:
    """Open psql on the database. What follows is handed to psql: `weft db psql -c 'select 1'`."""
    from weft.db import embedded
    from weft.db.address import check_address, split_password
    from weft.db.embedded_programs import pg_bin

    settings = _settings()
    environment = dict(os.environ)
    if settings.database_url is None:
        server = asyncio.run(embedded.ensure_running(settings))
        command = embedded.psql_command(server)
    else:
        address = split_password(check_address(settings.database_url, "WEFT_DATABASE_URL"))
        command = [str(pg_bin() / "psql"), address.url]
        if address.password is not None:
            environment["PGPASSWORD"] = address.password  # never an argument, which every user could read
    sys.stdout.flush()
    os.execve(command[0], [command[0], *ctx.args, "-d", *command[1:]], environment)


@app.command()
def url(
    show_password: Annotated[bool, typer.Option("--show-password", help="With the password, if it has one.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the address of the database. The embedded one is started if need be."""
    from weft.cli.output import tell
    from weft.db import embedded
    from weft.db.address import redacted

    settings = _settings()
    found = settings.database_url or asyncio.run(embedded.ensure_running(settings)).url
    shown = found if show_password else redacted(found)
    tell({"url": shown}, shown, as_json=as_json)


@app.command()
def backup(file: File, as_json: JsonFlag = False) -> None:
    """Write the whole database to a file, as it is at one moment. Work goes on meanwhile.

    An older backup of that name is replaced when the new one is whole; any other file stays.
    """
    from weft.cli.output import size_text, tell
    from weft.cli.progress import counted
    from weft.db import embedded, embedded_backup
    from weft.db.blob_address import blob_address

    settings = _embedded_settings("back up")
    blobs = blob_address(settings)

    async def main() -> None:
        if file.exists():
            await embedded_backup.require_backup(file)
        # What is written is packed, so there is no telling how much it will be in the end.
        size = (await embedded.status(settings)).size
        whole = "" if size is None else f" of a database of {size_text(size)}"
        with counted("wrote", shown=lambda count: size_text(count) + whole) as show:
            await embedded_backup.backup(settings, file, show)

    asyncio.run(main())
    size = file.stat().st_size
    beside = f"; large values are in {blobs}, not in it: "
    if not isinstance(blobs, Path):
        beside += "keep a copy of that bucket too"
    elif blobs.exists():
        beside += "copy that folder too"
    else:
        beside = ""
    tell({"file": file, "size": size}, f"wrote {file}, {size_text(size)}{beside}", as_json=as_json)


@app.command()
def restore(file: File, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Replace the database by the one in a backup. Stop the workers before.

    What was there stays until the backup has loaded whole, and is then removed for good: that needs --yes, unless the
    database is empty.
    """
    from weft.cli.output import size_text, tell
    from weft.cli.progress import counted
    from weft.db import embedded_backup

    settings = _embedded_settings("restore")

    async def main() -> None:
        await embedded_backup.require_backup(file)
        if not yes and await embedded_backup.holds_data(settings):
            require_yes(yes, "this replaces all tasks and queues that are there now")
        with counted("loaded", shown=size_text) as show:
            await embedded_backup.restore(settings, file, show)

    asyncio.run(main())
    tell({"restored": file}, f"restored {file}", as_json=as_json)


@app.command()
def reset(yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Stop the embedded PostgreSQL and remove all its data for good."""
    from weft.cli.output import tell
    from weft.db import embedded

    settings = _embedded_settings("reset")
    folder = asyncio.run(embedded.status(settings)).data_dir
    require_yes(yes, f"this removes all data in {folder}")
    asyncio.run(embedded.reset(settings))
    tell({"reset": folder}, "reset", as_json=as_json)
