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
    """Advance jobs until SIGTERM or Ctrl-C: choose branches, expand fan-outs, end them. Any number may run."""
    import asyncio

    from weft.cli.leash import Leash
    from weft.cli.worker_process import OrchestratorProcess, log_to_stderr, new_loop
    from weft.core.settings import Settings

    settings = Settings.load(profile="fast" if fast else None)
    log_to_stderr(log_level, log_format or settings.log_format)
    process = OrchestratorProcess(settings, Leash(leash))
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        raise typer.Exit(runner.run(process.run()))
