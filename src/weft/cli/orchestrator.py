"""``weft orchestrator``: advances jobs in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import new_app
from weft.cli.worker import Level, LogFormat

app = new_app()


@app.command()
def orchestrator(
    fast: Annotated[bool, typer.Option("--fast", help="Notice a dead one within 3 s instead of 15 s.")] = False,
    log_level: Annotated[
        Level, typer.Option(metavar="LEVEL", help="What to write to stderr: debug, info, warning, error.")
    ] = Level.INFO,
    log_format: LogFormat = None,
    leash: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Advance jobs until SIGTERM or Ctrl-C: choose branches, expand fan-outs, end them; begin those of schedules.

    What comes to live DAGs is handed to their jobs by it, too, and new versions of them come into effect.

    It runs no handlers, so it needs none of your code; tasks are run by `weft worker`. Any number may run on one
    database: each job is advanced by one of them, and if that dies, another takes over after some seconds
    (WEFT_ORPHAN_THRESHOLD). Two on different machines are enough for most installations.

    Example: WEFT_DATABASE_URL=postgresql://weft@db/weft weft orchestrator
    """
    import asyncio

    from weft.cli.leash import Leash
    from weft.cli.target import database_settings
    from weft.cli.worker_process import OrchestratorProcess, log_to_stderr, new_loop

    settings = database_settings("weft orchestrator", profile="fast" if fast else None)
    log_to_stderr(log_level, log_format or settings.log_format)
    process = OrchestratorProcess(settings, Leash(leash))
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        raise typer.Exit(runner.run(process.run()))
