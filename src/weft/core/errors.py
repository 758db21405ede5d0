"""Every error that Weft raises, sorted by who must act.

    WeftError
    ├── CallerError                 whoever called sent something wrong: change the call
    │   ├── InvalidInput            a field has a value that is refused
    │   ├── InvalidDefinition       a workflow definition has errors
    │   ├── UnknownQueue            no such queue
    │   ├── NotFound                no such thing in this org
    │   ├── StateConflict           the thing is in a state that does not allow the verb
    │   ├── DeployConflict          another has deployed the same live DAG meanwhile
    │   ├── TagConflict             somebody else has moved the tag, or it may not be moved so
    │   ├── MergeConflict           both sides changed the same fields
    │   ├── Unauthenticated         a server does not know who asks
    │   ├── Forbidden               whoever asks may not do that
    │   ├── CrossSite               a browser was made to ask by a page that is not the server's own
    │   ├── TooLarge                a request is larger than the server takes
    │   ├── TooManyStreams          an org has as many streams open as a server lets one have
    │   ├── SourceFull              a source has no room for more: send it again later
    │   ├── InvalidSignature        what was sent to a hook is not signed as it asks for
    │   ├── KeyReused               an idempotency key was sent before with another request
    │   ├── KeyBusy                 what was sent with an idempotency key is still being carried out
    │   ├── NeedsDatabase           a server cannot do that: it needs the database itself
    │   ├── DatasetBusy             somebody writes or reads a dataset that is to be changed otherwise
    │   ├── AnswerGone              it has been done, and its answer had a secret that is shown once
    │   └── DevRuns                 a `weft dev` of the same home runs already
    ├── OperatorError               the installation needs attention: change the machine or its settings
    │   ├── InvalidSetting          a setting is unknown or has a value that is refused
    │   ├── DatabaseUnavailable     PostgreSQL cannot be reached
    │   ├── PermissionDenied        the role of the database's address lacks a right
    │   ├── SchemaOutdated          the database has another schema than this release needs
    │   ├── MigrationBlocked        somebody holds a lock that the migration needs
    │   ├── EmbeddedServerFailed    the embedded PostgreSQL cannot be started or used
    │   ├── IdsExhausted            all machine numbers are leased
    │   ├── HandlerImportFailed     a module given by --app cannot be imported
    │   ├── BlobUnavailable         a value in the blob storage is missing, damaged or out of reach
    │   ├── DataUnavailable         files of datasets are missing or out of reach
    │   ├── ProviderUnavailable     the identity provider cannot be asked
    │   ├── ServerUnavailable       a server cannot be reached, or does not speak as Weft does
    │   ├── ServerStopping          a server takes no more, because it is about to stop
    │   └── AddressTaken            another process listens at the address
    ├── WriteConflict               others have written into the same dataset: the task is tried again
    ├── LeaseLost                   another worker holds the task now: drop what you were doing
    ├── ServerFull                  a server has as many streams open as it takes: ask another, or later
    ├── OutcomeWaits                what became of a task cannot be written yet: tell it again
    ├── WorkerLost                  others have what the worker held: register anew
    ├── WaitTimeout                 the task did not end in the time given: wait longer or look at it
    ├── TaskFailed                  the awaited task ended without success: look at its error
    └── JobFailed                   the awaited job ended without success: look at the node that failed

What handlers raise to speak to the engine is in `weft.core.signals`, errors between a server and those who speak with
it are in `weft.core.server_errors`, of datasets in `weft.core.data_errors`, of queries in `weft.core.query_errors`.
Each error has a stable ``code``, which maps once to an exit code, an HTTP status and an anchor in the docs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from weft.core.error_lines import error_line
from weft.core.findings import DefinitionProblem, FieldConflict
from weft.core.suggestions import did_you_mean


class WeftError(Exception):
    """The root of all errors that Weft raises on purpose."""

    code = "error"
    exit_code = 1
    http_status = 500

    @property
    def details(self) -> dict[str, object]:
        """What there is to say for programs beside the code, the message and the field."""
        return {}


class CallerError(WeftError):
    """Whoever called sent something wrong; nothing was written."""

    code = "caller_error"
    exit_code = 2
    http_status = 400


class InvalidInput(CallerError):
    """A field has a value that is refused."""

    code = "invalid_input"
    http_status = 422

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


class InvalidDefinition(CallerError):
    """A workflow definition has errors; ``problems`` are all of them, each with its place."""

    code = "invalid_definition"
    http_status = 422

    def __init__(self, problems: Sequence[DefinitionProblem]) -> None:
        self.problems = problems
        more = f" (and {len(problems) - 1} more; see `weft validate`)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")

    @property
    def details(self) -> dict[str, object]:
        """All problems, each with its place."""
        return {"problems": [problem.to_json() for problem in self.problems]}


class UnknownQueue(CallerError):
    """There is no such queue in this org."""

    code = "unknown_queue"
    http_status = 404
    exit_code = 4

    def __init__(self, name: str, known: Iterable[str] = (), field: str = "queue") -> None:
        self.name = name
        # Those of the engine itself are nobody's business.
        self.known = tuple(each for each in known if not each.startswith("@"))
        self.field = field
        typed = shlex.quote(name) if name.isprintable() else "NAME"
        super().__init__(
            f"{field}: there is no queue {name!r}.{did_you_mean(name, self.known)} "
            f"Make it with `weft queues create {typed}`, or start a worker for it: "
            f"`weft worker --app MODULE --queues {typed}`."
        )


class NotFound(CallerError):
    """There is no such thing in this org."""

    code = "not_found"
    http_status = 404
    exit_code = 4

    def __init__(self, kind: str, key: object, advice: str | None = None) -> None:
        self.kind = kind
        self.key = key
        reason = advice or {
            "org": "name one that exists by WEFT_ORG",
            "tag": "see `weft workflows list`",
            "version": "see `weft workflows log TAG`",
            "move": "see `weft workflows moves TAG`",
            "user": "see `weft users list --all`",
            "role": "see `weft roles list`",
            "token": "see `weft tokens list --all`",
            "approval": "see `weft jobs approvals`, and `weft jobs why ID`",
            "node": "see `weft jobs show ID`",
            "dataset": "see `weft datasets list`; whoever is no admin sees those that his roles may see",
        }.get(kind, "it may have been removed by retention, or never committed")
        super().__init__(f"there is no {kind} {key}; {reason}")


# Why there is nothing to do, by the verb on a tag.
_TAG_ENDS = {
    "undo": "at its first move",
    "redo": "at its last move",
    "undelete": "live",
}


class StateConflict(CallerError):
    """The thing is in a state that does not allow the verb."""

    code = "state_conflict"
    http_status = 409
    exit_code = 5

    def __init__(self, verb: str, key: object, state: str, allowed: Iterable[str], kind: str = "task") -> None:
        self.verb = verb
        self.kind = kind
        self.key = key
        self.state = state
        message = f"cannot {verb} {kind} {key}: it is {state}, and must be {' or '.join(sorted(allowed))}"
        if kind == "tag":
            message = f"nothing to {verb}: tag {key} is {_TAG_ENDS.get(verb, state)}"
        super().__init__(message)


class TagConflict(CallerError):
    """Somebody else has moved the tag, or it may not be moved so; ``now`` is where it stands and who moved it there."""

    code = "tag_conflict"
    http_status = 409
    exit_code = 5

    def __init__(self, tag: str, why: str, now: Mapping[str, object]) -> None:
        self.tag = tag
        self.why = why
        self.now = now
        said = f" ({now['message']})" if now.get("message") else ""
        place = f"version {now.get('target')}, {str(now.get('hash'))[:12]}"
        moved = f"{now.get('moved_by')} moved it at {now.get('moved_at')} to {place}{said}"
        if not now.get("moved_by"):
            moved = "there is no such tag, or not any more"
        advice = {
            "moved": f"tag {tag!r} is not where it was expected: {moved}; look at it and try again",
            "protected": f"tag {tag!r} is protected: move it by force (`--force`), or take that away; {moved}"
            if now.get("verb") != "delete"
            else f"tag {tag!r} was deleted, and is protected: `weft workflows undelete {tag}` brings it back",
            "of another workflow": f"tag {tag!r} belongs to workflow {now.get('workflow_id')!r}: choose another tag, "
            f"or push with `--replaces {now.get('workflow_id')}` if it shall not any more",
            "deployed": f"tag {tag!r} is moved by `weft deploy` and `weft deploy rollback` alone; {moved}",
            "held": f"{tag!r} is held by another writer for too long: nothing was written; try again",
            "lost": f"tag {tag!r} has moves, and no place: `weft workflows fsck --repair` puts it back",
            "there": f"tag {tag!r} is there already: {moved}; choose another name, or move it by `weft workflows tag`",
        }
        super().__init__(advice.get(why, f"tag {tag!r}: {why}"))

    @property
    def details(self) -> dict[str, object]:
        """Why, and what the tag is now: who moved it, when, to what."""
        return {"conflict": {"tag": self.tag, **self.now, "why": self.why}}


class MergeConflict(CallerError):
    """Both sides changed the same fields; nothing was merged. ``conflicts`` are all of them."""

    code = "merge_conflict"
    http_status = 409
    exit_code = 5

    def __init__(self, what: str, conflicts: Sequence[FieldConflict]) -> None:
        self.conflicts = conflicts
        shown = "; ".join(str(conflict) for conflict in conflicts[:5])
        more = f"; and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
        told = f"{what} has {len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}: {shown}{more}"
        super().__init__(f"{told}; take one side by `--prefer ours` or `--prefer theirs`, or change one of the two")

    @property
    def details(self) -> dict[str, object]:
        """All fields that both sides changed, by node."""
        return {"conflicts": [conflict.to_json() for conflict in self.conflicts]}


class OperatorError(WeftError):
    """The installation needs attention."""

    code = "operator_error"
    exit_code = 3
    http_status = 503


class InvalidSetting(OperatorError):
    """A setting is unknown or has a value that is refused."""

    code = "invalid_setting"

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        super().__init__(f"setting {name}: {problem}")


class DatabaseUnavailable(OperatorError):
    """PostgreSQL cannot be reached."""

    code = "database_unavailable"

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(f"cannot reach PostgreSQL at {where}: {problem}: {advice}")


class PermissionDenied(OperatorError):
    """The role of the database's address lacks a right."""

    code = "permission_denied"

    def __init__(self, problem: str, role: str | None = None, lacking: Iterable[str] = ()) -> None:
        rights = ", ".join(lacking)
        detail = f"role {role} lacks {rights} there; " if role and rights else ""
        super().__init__(
            f"{problem} ({detail}docs/how-to/use-your-own-postgres.md lists what each role needs): "
            "grant that to the role, or use the role that owns the schema weft"
        )


class SchemaOutdated(OperatorError):
    """The database has another schema than this release needs."""

    code = "schema_outdated"

    def __init__(self, found: str | None, needed: str, home: str | None = None) -> None:
        self.found = found
        self.needed = needed
        if found is None:
            problem = "the database has no Weft schema yet"
        elif found > needed:
            problem = (
                f"the database is at revision {found}, newer than this release, which needs {needed}: upgrade Weft"
            )
        elif found == needed:
            anew = "`weft db reset` empties an embedded database"
            if home is not None:
                anew = f"make it anew: `WEFT_HOME={shlex.quote(home)} weft db reset --yes` removes all data in it"
            problem = (
                f"the database is at revision {found} as it was in another build of Weft, before it was released: go "
                "back to the revision before it with `weft migrate downgrade` of that build, and then `weft migrate "
                f"upgrade`; or, where nothing in it is needed, {anew}"
            )
        else:
            problem = f"the database is at revision {found} and this release needs {needed}"
        advice = "" if found is not None and found >= needed else ": run `weft migrate upgrade`"
        super().__init__(problem + advice)


class MigrationBlocked(OperatorError):
    """Somebody holds a lock that the migration needs."""

    code = "migration_blocked"

    def __init__(self, waited: str, *, by_migration: bool = False) -> None:
        holders = "another migration" if by_migration else "the long transactions on the weft schema"
        super().__init__(
            f"the migration waited {waited} for a lock and gave up, nothing is changed: "
            f"end {holders} (see pg_stat_activity) and run it again"
        )


class EmbeddedServerFailed(OperatorError):
    """The embedded PostgreSQL cannot be started or used."""

    code = "embedded_server_failed"

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}{': ' if advice else ''}{advice}")


class IdsExhausted(OperatorError):
    """All machine numbers are leased."""

    code = "ids_exhausted"

    def __init__(self, count: int) -> None:
        super().__init__(
            f"all {count} machine numbers for ids are in use: fewer processes may enqueue in bulk at once; "
            "numbers of processes that died come back within ten minutes"
        )


class HandlerImportFailed(OperatorError):
    """A module given by ``--app`` cannot be imported."""

    code = "handler_import_failed"

    def __init__(self, module: str, problem: str) -> None:
        super().__init__(f"cannot import {module!r} given by --app: {problem}")


class BlobUnavailable(OperatorError):
    """A value in the blob storage is missing, damaged or out of reach."""

    code = "blob_unavailable"

    def __init__(self, digest: str, problem: str) -> None:
        self.digest = digest
        self.problem = problem
        super().__init__(f"blob {digest} {problem}")


class LeaseLost(WeftError):
    """The task is not this attempt's any more: what it would have written is refused, and belongs to nobody."""

    code = "lease_lost"
    http_status = 409

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        super().__init__(
            f"the lease on task {task_id} is lost: its outcome was not written; "
            "leave the task to whoever holds it now, and roll back what belongs to it"
        )


class WaitTimeout(WeftError):
    """The task did not end in the time given."""

    code = "wait_timeout"
    exit_code = 6
    http_status = 504

    def __init__(self, task_id: int, seconds: float) -> None:
        self.task_id = task_id
        super().__init__(
            f"task {task_id} did not end within {seconds:g} s: it goes on; see `weft tasks show {task_id}`"
        )


class TaskFailed(WeftError):
    """The awaited task ended without success.

    ``error`` is what its last attempt ended with, as in `Task`: type, message and traceback; None when there was no
    attempt that failed. ``problem`` says it in short, or is the reason.
    """

    code = "task_failed"
    http_status = 409

    def __init__(
        self, task_id: int, state: str, error: Mapping[str, str] | None = None, reason: str | None = None
    ) -> None:
        self.task_id = task_id
        self.state = state
        self.error = error
        self.problem = error_line(error or {}) or reason
        super().__init__(f"task {task_id} is {state}{f': {self.problem}' if self.problem else ''}")


class JobFailed(WeftError):
    """The awaited job ended without success.

    ``node`` is the one that failed, ``error`` what its last attempt ended with: type, message and traceback. Both are
    None when no node is to blame, as in a job that was cancelled or ran out of time; then ``reason`` says why.
    """

    code = "job_failed"
    http_status = 409

    def __init__(
        self, job_id: int, workflow_id: str, state: str, *, node: str | None = None,
        error: Mapping[str, str] | None = None, reason: str | None = None,
    ) -> None:  # fmt: skip
        self.job_id = job_id
        self.workflow_id = workflow_id
        self.state = state
        self.node = node
        self.error = error
        self.reason = reason
        self.problem = error_line(error or {}) or reason
        at = f" at {node!r}" if node else ""
        what = f": {self.problem}" if self.problem else ""
        super().__init__(f"job {job_id} of {workflow_id} {state}{at}{what}; see `weft jobs show {job_id}`")
