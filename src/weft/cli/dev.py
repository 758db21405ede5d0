"""``weft dev``: database, server, orchestrator and workers in one command."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from weft.cli.apps import HandlersOption, new_app
from weft.cli.worker import Level, LogFormat

app = new_app()

# Most of a start is loading Python, which those who wait for it count too.
_BEGAN = time.monotonic()


@app.command()
def dev(
    modules: HandlersOption = None,
    port: Annotated[int, typer.Option(help="The port of the server, on this machine only; 0 takes a free one.")] = 8400,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="How many worker processes.")] = 1,
    operators: Annotated[
        bool, typer.Option("--operators", help="Workers also without --app: for operators of live DAGs.")
    ] = False,
    reloads: Annotated[
        bool, typer.Option("--reload/--no-reload", help="New workers when a Python file below this folder changes.")
    ] = True,
    log_level: Annotated[
        Level, typer.Option(metavar="LEVEL", help="What the parts write to stderr: debug, info, warning, error.")
    ] = Level.INFO,
    log_format: LogFormat = None,
) -> None:
    """Start all of an installation for development, until Ctrl-C: database, server, orchestrator, workers.

    The database is the embedded one, unless WEFT_DATABASE_URL names another. The server answers on this machine only.
    When a Python file changes, new workers are started; the old ones end what they have begun once the new ones are
    ready, and go on if these cannot start. Ctrl-C stops the parts in order: the server, the workers, which may end what
    runs, the orchestrator, and the database if it did not run before. A second one does not wait for tasks.
    """
    import asyncio

    from weft.cli.dev_house import House
    from weft.cli.dev_lines import Lines
    from weft.cli.worker_process import new_loop
    from weft.core.settings import Settings

    settings = Settings.load()
    format = log_format or settings.log_format
    lines = Lines(as_json=format == "json")
    lines.take_log(log_level)
    house = House(
        settings, lines, port=port, workers=workers, modules=modules or [], operators=operators,
        reloads=reloads, logging=["--log-level", log_level, "--log-format", format], began=_BEGAN,
    )  # fmt: skip
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        raise typer.Exit(runner.run(house.run()))
