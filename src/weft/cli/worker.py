"""``weft worker``: runs tasks in this process or in several."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import HandlersOption, new_app
from weft.cli.completion import complete_queue
from weft.cli.inputs import read_names
from weft.core.checks import MAX_RUNNING

if TYPE_CHECKING:
    from weft.core.settings import Settings

app = new_app()


class Level(StrEnum):
    """How much a worker says of itself."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(StrEnum):
    """How lines of the log are written."""

    TEXT = "text"
    JSON = "json"


LogFormat = Annotated[
    Format | None, typer.Option(metavar="FORMAT", help="text or json; by default WEFT_LOG_FORMAT, which is text.")
]


@app.command()
def worker(
    modules: HandlersOption = None,
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="The queues to work; by default `default` and those that the handlers name.",
            autocompletion=complete_queue,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_RUNNING, metavar="N", help="How many tasks run at once in each process."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, metavar="P", help="How many processes.")] = 1,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Work through this server, with the token in WEFT_TOKEN, without a database; by default where other "
            "commands go: WEFT_SERVER, a context, a database.",
        ),
    ] = None,
    operators: Annotated[
        bool, typer.Option("--operators", help="Work without handlers: for operators of live DAGs that come with Weft.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Notice a dead worker within 3 s instead of 15 s.")] = False,
    log_level: Annotated[
        Level, typer.Option(metavar="LEVEL", help="What to write to stderr: debug, info, warning, error.")
    ] = Level.INFO,
    log_format: LogFormat = None,
    leash: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run tasks until SIGTERM or Ctrl-C.

    Then nothing more is claimed, what has not begun is handed back, and what runs may end (30 s by default,
    WEFT_WORKER_SHUTDOWN_GRACE). A second signal ends it at once: what ran is handed back.

    Only handlers in the modules of --app are run: a name that comes from a queue is looked up, never imported. One
    process is one Python: for handlers that compute give as many --processes as there are cores, for those that wait
    a larger --concurrency. Any number may run, on any number of machines; start new ones before you stop old ones.

    Example: weft worker --app shop.tasks --queues default,mail --concurrency 50 --processes 4
    """
    import asyncio

    from weft.cli.leash import Leash
    from weft.cli.worker_process import log_to_stderr

    names = read_names("queues", queues)
    settings = _settings(server, "fast" if fast else None)
    if processes > 1:
        from weft.cli.supervisor import Supervisor

        argv = _command_line(modules or [], names, concurrency, fast, log_level, server)
        argv += [] if log_format is None else ["--log-format", log_format]
        argv += ["--operators"] if operators else []
        supervisor = Supervisor(argv, processes, Leash(leash), settings.worker_shutdown_grace)
        raise typer.Exit(asyncio.run(supervisor.run()))
    log_to_stderr(log_level, log_format or settings.log_format)
    raise typer.Exit(_run_one(settings, modules or [], names, concurrency, leash, needs_handlers=not operators))


def _settings(server: str | None, profile: str | None) -> Settings:
    """Return the settings in force, of the server that was named, else of where commands go."""
    import os
    from dataclasses import replace

    from weft.cli.contexts import LOCAL
    from weft.cli.target import find_target
    from weft.core.settings import Settings

    if server is not None:
        return Settings.load(profile=profile, server=server)
    found = find_target()
    if (pinned := found.context or (LOCAL if found.settings.server is None else None)) is not None:
        os.environ["WEFT_CONTEXT"] = pinned  # a process that is started anew goes where the others are
    # The profile is read with the rest, and what the context says stands.
    return replace(Settings.load(profile=profile), server=found.settings.server, token=found.settings.token)


def _command_line(
    modules: list[str], queues: list[str], concurrency: int | None, fast: bool, log_level: str, server: str | None
) -> list[str]:
    """Return the command line of one of several processes."""
    argv = [sys.executable, "-m", "weft", "worker", "--log-level", log_level]
    for module in modules:
        argv += ["--app", module]
    if queues:
        argv += ["--queues", ",".join(queues)]
    if concurrency is not None:
        argv += ["--concurrency", str(concurrency)]
    if server is not None:
        argv += ["--server", server]
    return [*argv, "--fast"] if fast else argv


def _run_one(
    settings: Settings,
    modules: list[str],
    queues: list[str],
    concurrency: int | None,
    leash: int | None,
    *,
    needs_handlers: bool,
) -> int:
    import asyncio

    from weft.cli.leash import Leash
    from weft.cli.worker_process import WorkerProcess, import_apps, new_loop
    from weft.core.errors import InvalidInput
    from weft.core.tracing import tracer
    from weft.worker.registry import REGISTRY

    import_apps(modules)
    if (spans := tracer()) is not None:
        spans.share()  # after the modules, which may have their own
    if needs_handlers and not REGISTRY.names():
        what = "there are no handlers: give modules that have functions with @weft.task; or --operators for live DAGs"
        raise InvalidInput("--app", what)
    process = WorkerProcess(settings, modules, queues, concurrency, Leash(leash))
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        return runner.run(process.run())
