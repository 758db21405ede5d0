"""Makes the Typer apps of all commands alike, and loads each command only when it is called."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from weft.cli.root_options import accept

# What `weft --help` lists: the module of each command and its one line, told here so that none is loaded for it.
COMMANDS = {
    "dev": ("dev", "Start everything in one command, for development."),
    "run": ("run", "Execute a workflow here, and show how it goes."),
    "jobs": ("jobs", "Look at jobs, pause, resume, cancel, approve and rerun them."),
    "schedules": ("schedules", "Let workflows begin by themselves, and make up for what was missed."),
    "datasets": ("datasets", "Look at named tables of data, keep them, and go back to what they were."),
    "deploy": ("deploy", "Deploy live DAGs, see what that would do, and go back."),
    "live": ("live", "Look at live DAGs, pause them, and send on what is held."),
    "lineage": ("lineage", "Show what a dataset, a column or a state is made of, and what is made of it."),
    "query": ("query", "Ask datasets, by SQL."),
    "events": ("events", "Tell jobs of events."),
    "server": ("server", "Answer over HTTP in this process."),
    "orchestrator": ("orchestrator", "Advance jobs and live DAGs in this process, and begin those of schedules."),
    "worker": ("worker", "Run tasks in this process or in several."),
    "tasks": ("tasks", "Look at tasks, enqueue, cancel and replay them."),
    "explain": ("explain", "Say why a task ran, or had its output from the cache."),
    "dead": ("dead", "Look at the dead letters, replay or purge them."),
    "queues": ("queues", "Look at queues, make, pause and limit them."),
    "workers": ("workers", "Look at the workers."),
    "workflows": ("workflows", "Keep workflow definitions, change them, and look back."),
    "validate": ("validate", "Check workflow definitions, and say all that is wrong with them."),
    "diff": ("diff", "Show what differs between two workflow definitions, node by node."),
    "bisect": ("bisect", "Find the change that broke a workflow."),
    "graph": ("graph", "Draw a workflow definition."),
    "schema": ("schema", "Print the JSON Schema of workflow definitions, or of live DAGs."),
    "health": ("health", "Say whether the database, workers, orchestrators and tasks are well."),
    "metrics": ("metrics", "Print numbers about jobs, tasks and workers."),
    "outbox": ("outbox", "Look at the outbox, replay or purge what failed."),
    "cache": ("cache", "Look at outputs that serve again, and clear them."),
    "login": ("login", "Sign in to a server, to which commands then go."),
    "logout": ("logout", "Forget a server and the token for it."),
    "context": ("context", "Choose among the servers that you have signed in to."),
    "whoami": ("whoami", "Say as whom commands act."),
    "orgs": ("orgs", "Look at orgs and make them."),
    "users": ("users", "Look at the users of the org, add, change and deactivate them."),
    "roles": ("roles", "Look at the roles that the org defines, give and take them."),
    "tokens": ("tokens", "Look at tokens, make and revoke them."),
    "audit": ("audit", "Look at what was done, and by whom."),
    "db": ("db", "Start, stop, look into, back up the embedded PostgreSQL."),
    "migrate": ("migrate", "Bring the database's schema to a revision."),
    "config": ("config", "Print the settings in force."),
    "demo": ("demo", "Execute a real workflow of a few thousand tasks, live."),
}

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
YesFlag = Annotated[bool, typer.Option("--yes", help="Do it; without this nothing is changed.")]
InputsOption = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="NAME=VALUE", help="An input; may be repeated.")
]
HandlersOption = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="MODULE", help="A module with handlers, importable from here; may be repeated."),
]


# So many commands of one name are told; of a common name, such as list, none.
_FEW = 3


class Group(TyperGroup):
    """A group that prints its help when called without a command, and suggests one when it does not know it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; none at all ask for help."""
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help())
            raise typer.Exit
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command; None when there is none of that name."""
        return accept(ctx, super().get_command(ctx, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            from weft.core.errors import CallerError

            raise CallerError(f"there is no command {ctx.command_path} {name}.{self._advice(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _advice(self, ctx: Any, name: str) -> str:
        """Return what might have been meant by a command that is not there."""
        from weft.core.suggestions import did_you_mean

        groups = ((group, self.get_command(ctx, group)) for group in self.list_commands(ctx))
        inner = [f"`{ctx.command_path} {group} {name}`" for group, it in groups if name in getattr(it, "commands", ())]
        if 0 < len(inner) <= _FEW:
            return f" Did you mean {' or '.join(inner)}?"
        return did_you_mean(name, self.list_commands(ctx)) or f" See `{ctx.command_path} --help`."


class RootGroup(Group):
    """The commands of ``weft`` itself, each in a module that is imported when the command is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order in which help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"weft.cli.{COMMANDS[cmd_name][0]}")
        return accept(ctx, get_command(module.app))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def new_app(help_text: str | None = None) -> typer.Typer:
    """Return a Typer app for one command or one group of them."""
    return typer.Typer(
        cls=Group,
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
