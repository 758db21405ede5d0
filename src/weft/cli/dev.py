"""``weft dev``: database, server, orchestrator and workers in one command."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import HandlersOption, new_app
from weft.cli.worker import Level

app = new_app()


@app.command()
def dev(
    modules: HandlersOption = None,
    port: Annotated[int, typer.Option(help="The port of the server, on this machine only; 0 takes a free one.")] = 8400,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="How many worker processes.")] = 1,
    reloads: Annotated[
        bool, typer.Option("--reload/--no-reload", help="New workers when a Python file below this folder changes.")
    ] = True,
    log_level: Annotated[
        Level, typer.Option(metavar="LEVEL", help="What the parts write to stderr: debug, info, warning, error.")
    ] = Level.INFO,
) -> None:
    """Start all of an installation for development, until Ctrl-C: database, server, orchestrator, workers.

    The database is the embedded one, unless WEFT_DATABASE_URL names another. The server answers on this machine only.
    When a Python file changes, new workers are started; the old ones end what they have begun once the new ones are
    ready, and go on if these cannot start. Ctrl-C stops the parts in order: the server, the workers, which may end what
    runs, the orchestrator, and the database if it did not run before. A second one does not wait for tasks.
    """
    import asyncio
    import logging

    from weft.cli.dev_house import House, PartLog
    from weft.cli.worker_process import new_loop
    from weft.core.settings import Settings

    handler = PartLog(log_level.upper())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("alembic", "httpx", "uvicorn"):  # they tell of each step
        logging.getLogger(chatty).setLevel(logging.WARNING)
    house = House(
        Settings.load(), port=port, workers=workers, modules=modules or [], reloads=reloads, log_level=log_level
    )
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        raise typer.Exit(runner.run(house.run()))
