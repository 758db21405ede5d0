"""The page of the errors."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import weft
from docs.pages.markdown import code, table
from weft.core import errors as tree
from weft.core.errors import WeftError

_HEAD = """\
# Errors

An error belongs to whoever has to do something about it. It has a stable `code`, the same on all surfaces: it decides
the exit code of a command and the status of an answer over HTTP, and is the heading on this page. The message names the
place and what to do. Catch `weft.WeftError` for all of them.

"""

_SQL = """
## In SQL

`weft.enqueue` raises these; a driver shows them with their SQLSTATE. `Client.enqueue(connection=…)` turns them into the
errors above.

| SQLSTATE | error | meaning |
| --- | --- | --- |
| `WF001` | `unknown_queue` | There is no such queue; the hint says how to make one. |
| `WF002` | `invalid_input` | A field is refused; the message begins with its name. |

## Errors of tasks

What a handler raises is not raised in the program that enqueued: it is kept with the attempt as `type`, `message` and
`traceback`, and told by `Client.wait` as [task_failed](#task_failed), whose `error` holds all three. Two
exceptions speak to the engine instead: `weft.NonRetryable` and `weft.Snooze`, see
[retries and dead letters](../how-to/retries-and-dead-letters.md).
"""

# What to do, where the message alone cannot say it.
_ADVICE = {
    "error": "Read the message: it is an error that has no code of its own.",
    "caller_error": "Change the call.",
    "invalid_input": "Change the field that the message names. Nothing was written.",
    "invalid_definition": "Mend what `weft validate FILE` shows, each with its line. Nothing was written.",
    "unknown_queue": "Make the queue with `weft queues create`, start a worker with `--queues`, or mend the name.",
    "not_found": "Check the id and the org. A task that ended is kept for `WEFT_RETENTION`.",
    "state_conflict": "Look at the task: it has moved on. The message names the states from which the verb is allowed.",
    "tag_conflict": "Look at what the tag is now, and make your change on that; the message says who moved it.",
    "deploy_conflict": "Look at what the other has deployed, by `weft deploy FILE --plan`, and deploy again.",
    "merge_conflict": "Decide the fields that the message names, by `prefer` or a patch of one side, and merge again.",
    "source_full": "Send it again after a while (`Retry-After`). See `weft live jobs` for what holds the source up, "
    "and give it more workers, or a higher `max_backlog`.",
    "invalid_signature": "Sign as the source says, with the secret that the server has under the name of its "
    "`secret_env`. The server's log says what was wrong.",
    "unauthenticated": "Send a token that an admin of your org has made by `weft tokens create`, or a new one.",
    "forbidden": "Ask an admin of the org for the role that the message names.",
    "provider_unavailable": "Check that the identity provider can be reached from the server, at `WEFT_OIDC_ISSUER`.",
    "cross_site": "Do it on a page of the server itself; a program sends a token instead of a cookie.",
    "too_large": "Send less at once, or let the operator raise `WEFT_SERVER_BODY_LIMIT`.",
    "too_many_streams": "Close streams that nobody looks at, or let the operator raise `WEFT_SERVER_ORG_STREAMS`.",
    "server_full": "Ask again after `Retry-After`; add a server, or raise `WEFT_SERVER_STREAMS` or its `ulimit -n`.",
    "needs_database": "Do what the message says instead, or do it where `WEFT_DATABASE_URL` is set.",
    "worker_lost": "Nothing, if a worker says so: it registers anew. If it happens often, its machine was overloaded.",
    "outcome_waits": "Nothing, if a worker says so: it tells it again. If it goes on, the server's log says what the "
    "database needs.",
    "key_reused": "Take a new key for each request, and the same one only to send the same request again.",
    "key_busy": "Send the same request again with the same key; its answer comes when the first has ended.",
    "answer_gone": "Revoke what the first request made, and make another with a new key.",
    "operator_error": "Read the message: the installation needs attention.",
    "invalid_setting": "Mend the setting that the message names; `weft config` shows all that are in force.",
    "database_unavailable": "Check that PostgreSQL runs and the address is right. Workers try again by themselves.",
    "permission_denied": "Grant the role "
    "what [its work needs](../how-to/use-your-own-postgres.md#as-a-role-without-privileges).",
    "schema_outdated": "Run `weft migrate upgrade`, or install the release that the database belongs to.",
    "migration_blocked": "End the long transaction that holds the lock (see `pg_stat_activity`), then migrate again.",
    "embedded_server_failed": "Do what the message says; `postgres.log` in `WEFT_HOME` tells more.",
    "ids_exhausted": "Let fewer processes enqueue in bulk at once; numbers of dead processes come back in ten minutes.",
    "handler_import_failed": "Mend the module, or the name given by `--app`; it must be importable from here.",
    "blob_unavailable": "Do what the message says: give every process the same `WEFT_BLOB_URL`, see to the storage "
    "or the access to it, or bring a blob that is gone back from a copy of the storage.",
    "dataset_busy": "Wait until the task that the message names has ended, or cancel it; then try again.",
    "data_unavailable": "Do what the message says: give every process the same `WEFT_DATA_URL`, see to the storage "
    "or the access to it.",
    "server_unavailable": "Check the address, and that the server runs: its `/healthz` answers without a token. "
    "`weft context show` says where commands go, and why.",
    "server_stopping": "Ask again: it, or another server, answers soon.",
    "dev_runs": "Use the one that runs, stop it by Ctrl-C or its process, or set `WEFT_HOME` to another folder.",
    "address_taken": "Stop the other process, or choose another address by `--host` and `--port`.",
    "invalid_query": "Mend the SQL as the message says. A query is one `select` over datasets that are named in it.",
    "query_limit_reached": "Ask for less: fewer rows or columns, an aggregate, one partition; the message says which "
    "limit it was.",
    "query_cancelled": "Nothing: somebody, or the end of the connection, has ended it.",
    "query_crashed": "Try it again; if it breaks down each time, a file of one of the datasets that the message names "
    "is damaged: write that partition anew.",
    "query_start_failed": "Do what the message says; `pip install 'weft[data]'` brings what queries need.",
    "walls_missing": "Run queries where the [walls](../explanation/query-walls.md) can stand; the message says which "
    "cannot, and why.",
    "write_conflict": "Nothing: the worker tries the task again, which then sees what the others have written. If it "
    "happens often, give tasks that append to one partition of a dataset the same `concurrency_key`.",
    "lease_lost": "Drop the work and roll back: another worker has the task.",
    "wait_timeout": "Nothing: the task goes on. Wait again, or look at it with `weft tasks show`.",
    "task_failed": "Look at the task's attempts with `weft tasks show`; replay it when the cause is mended.",
    "job_failed": "Look at the nodes with `weft jobs show`: the one that failed has the error of its last attempt.",
}


def all_errors() -> list[type[WeftError]]:
    """Return every error class of the package, parents before children."""
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        if "migrations" not in module.name and not module.name.endswith(("__main__", ".child")):
            importlib.import_module(module.name)
    found: list[type[WeftError]] = []
    waiting: list[type[WeftError]] = [WeftError]
    while waiting:
        kind = waiting.pop(0)
        found.append(kind)
        waiting = [*sorted(kind.__subclasses__(), key=_place), *waiting]
    return found


def _place(kind: type[WeftError]) -> tuple[str, int]:
    return kind.__module__, inspect.getsourcelines(kind)[1]


def page() -> str:
    """Return the page."""
    drawn = re.search(r"^    WeftError\n(?:    .*\n)+", tree.__doc__ or "", re.MULTILINE)
    parts = [_HEAD, "```text\n", *(line[4:] + "\n" for line in (drawn[0] if drawn else "").splitlines()), "```\n\n"]
    kinds = all_errors()
    rows = [(f"[{k.code}](#{k.code})", code(k.__name__), k.exit_code, k.http_status) for k in kinds]
    parts.append(table(("code", "class", "exit code", "HTTP status"), rows))
    for kind in kinds:
        meaning = (kind.__doc__ or "").strip().splitlines()[0]
        where = "weft" if kind.__name__ in weft.__all__ else kind.__module__
        parts.append(
            f"\n## {kind.code}\n\n`{where}.{kind.__name__}`. {meaning}\n\n**What to do.** {_ADVICE[kind.code]}\n"
        )
    return "".join(parts) + _SQL
