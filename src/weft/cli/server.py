"""``weft server``: answers over HTTP in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import new_app
from weft.cli.worker import Level, LogFormat

if TYPE_CHECKING:
    from weft.core.settings import Settings

app = new_app()


@app.command()
def server(
    host: Annotated[
        str, typer.Option(help="Where to listen; others than this machine reach it by 0.0.0.0.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes one that is free.")] = 8400,
    log_level: Annotated[
        Level, typer.Option(metavar="LEVEL", help="What to write to stderr: debug, info, warning, error.")
    ] = Level.INFO,
    log_format: LogFormat = None,
) -> None:
    """Answer over HTTP until SIGTERM or Ctrl-C. Any number may run on one database, and none of them is special.

    It runs no tasks and advances no jobs: that take `weft worker` and `weft orchestrator`. Whoever asks needs a token:
    `weft tokens create NAME --role writer` makes one. It listens on this machine only, unless --host says otherwise;
    put what ends TLS before it then. /healthz says that it lives, /readyz that it can serve.

    After SIGTERM /readyz says no for WEFT_SERVER_DRAIN (0 s by default), while everything is still answered; then it
    takes nothing more, answers what has been asked, within 10 s, and ends with 0. A second signal does not wait.

    Example: WEFT_DATABASE_URL=postgresql://weft@db/weft weft server --host 0.0.0.0 --port 8400
    """
    import asyncio

    from weft.cli.target import database_settings
    from weft.cli.worker_process import log_to_stderr, new_loop

    settings = database_settings("weft server")
    log_to_stderr(log_level, log_format or settings.log_format)
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        raise typer.Exit(runner.run(_serve(settings, host, port)))


async def _serve(settings: Settings, host: str, port: int) -> int:
    import asyncio
    import logging
    import sys

    from weft.cli.stopping import StopSignals
    from weft.cli.worker_process import logs_json
    from weft.server.open_files import raise_limit
    from weft.server.serving import Server

    raise_limit()
    signals = StopSignals(None)
    async with Server(settings, host, port) as serving:
        await serving.look_at_walls()
        if logs_json() is not None:
            logging.getLogger("weft.server").info("answers at %s", serving.url)
        else:
            print(f"weft server answers at {serving.url}", file=sys.stderr, flush=True)
        ending = [asyncio.create_task(signals.stop.wait()), asyncio.create_task(serving.wait())]
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        for task in ending:
            task.cancel()
        if signals.stop.is_set():
            await serving.leave(signals.end)
    return signals.exit_code
