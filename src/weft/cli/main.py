"""The command ``weft``: reads the command line, runs one command, and ends with one line and a code when it fails."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from weft.cli.apps import RootGroup
from weft.cli.root_options import ContextOption, QuietFlag, take
from weft.version import __version__

if TYPE_CHECKING:
    from weft.cli.failures import Failure

INTERRUPTED = 130

app = typer.Typer(
    cls=RootGroup,
    help="Weft: a durable task queue, its workers, and workflow definitions with their history, in PostgreSQL.",
    epilog="Commands go to the server of WEFT_SERVER or `weft login`, else to the database of WEFT_DATABASE_URL, else "
    "to an embedded PostgreSQL under WEFT_HOME. `weft context show` says where.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
# Typer brings its own copy of Click, older ones take the package: both have this root of what users get wrong.
_UsageError: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    context: ContextOption = None,
    quiet: QuietFlag = False,
) -> None:
    """Read the options that stand before the command."""
    take("context", context)
    take("quiet", quiet)


def run() -> NoReturn:
    """Run the command line of this process; never returns."""
    _open_closed_streams()
    try:
        result = typer.main.get_command(app).main(prog_name="weft", standalone_mode=False)
        sys.stdout.flush()
    except _UsageError as problem:
        from weft.cli.failures import Failure

        _fail(Failure(_explained(problem), 2, "usage"))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as problem:  # noqa: BLE001  the outermost: one line for whoever called, the traceback if asked for
        _fail_by(problem)
    sys.exit(result if isinstance(result, int) else 0)


def _open_closed_streams() -> None:
    """Give the standard streams that the caller closed to nobody, or the next file that is opened takes their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open for as long as we run)


def _fail_by(problem: Exception) -> NoReturn:
    from weft.cli.failures import drop_standard_output, failure_of, is_debugging

    if is_debugging():
        import traceback

        traceback.print_exception(problem)
    if drop_standard_output() and isinstance(problem, BrokenPipeError):
        sys.exit(1)  # whoever read the output has seen enough
    _fail(failure_of(problem))


def _fail(failure: Failure) -> NoReturn:
    """Tell people on the standard error; whoever asked for JSON, and has no answer yet, on the standard output."""
    from weft.cli.failures import drop_standard_output
    from weft.cli.output import complain, has_answered, print_json

    if "--json" in sys.argv and not has_answered():
        facts = {"code": failure.code, "message": failure.message, "field": failure.field, **failure.details}
        print_json({"error": facts})
        drop_standard_output()
    complain(failure.message)
    sys.exit(failure.exit_code)


def _explained(problem: BaseException) -> str:
    message: str = problem.format_message()  # type: ignore[attr-defined]
    context = getattr(problem, "ctx", None)
    advice = f" See `{context.command_path} --help`." if context is not None else ""
    return f"{message.strip().rstrip('.')}.{advice}"
