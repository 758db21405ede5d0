"""Errors between a server and those who speak with it; part of the tree in `weft.core.errors`."""

from __future__ import annotations

from weft.core.errors import CallerError, InvalidInput, OperatorError, WeftError


class Unauthenticated(CallerError):
    """A server does not know who asks: there is no credential, or one that lets nobody in."""

    code = "unauthenticated"
    http_status = 401
    exit_code = 8

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}: send a token as `Authorization: Bearer weft_…`; an admin makes one by `weft tokens create`"
        )


class Forbidden(CallerError):
    """Whoever asks may not do that."""

    code = "forbidden"
    http_status = 403
    exit_code = 8

    def __init__(self, actor: str, role: str, needed: str) -> None:
        if needed == "operator":
            # Not a role that anybody can be given.
            told = "this is for those who operate the installation: ask an admin of its org `default` to do it"
        else:
            told = f"this takes {needed}: ask an admin of the org for it"
        super().__init__(f"{actor} is {role}, and {told}")


class CrossSite(CallerError):
    """A browser was made to ask by a page that is not the server's own."""

    code = "cross_site"
    http_status = 403
    exit_code = 8

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}: a browser that is signed in changes things from the server's own pages only")


class TooLarge(CallerError):
    """A request is larger than the server takes."""

    code = "too_large"
    http_status = 413

    def __init__(self, limit: int, setting: str = "WEFT_SERVER_BODY_LIMIT") -> None:
        super().__init__(f"the request is larger than {limit} bytes, which is {setting} of the server")


class NeedsDatabase(InvalidInput):
    """Something was asked of a client or worker that goes through a server, and cannot be done without the database."""

    code = "needs_database"

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what, f"needs the database, and this goes through a server: {advice}")


class TooManyStreams(CallerError):
    """An org has as many streams open as a server lets one have."""

    code = "too_many_streams"
    http_status = 429
    exit_code = 5

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"your org has {limit} streams open at this server, which is WEFT_SERVER_ORG_STREAMS of it: "
            "close some, or ask again later"
        )


class SourceFull(CallerError):
    """A source that listens for an event has no room for more; nothing was sent."""

    code = "source_full"
    http_status = 429
    exit_code = 5

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(
            f"the source {source} listens for this, and has as many units open as its max_backlog: nothing was sent; "
            "send it again later, and see `weft live jobs` for what holds it up"
        )


class InvalidSignature(CallerError):
    """What was sent to a hook is not signed as the hook asks for, or there is no such hook."""

    code = "invalid_signature"
    http_status = 401
    exit_code = 8

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}: nothing was taken; see how the source of the event says that it is signed")


class ServerFull(WeftError):
    """A server has as many streams open as it takes; another may have room."""

    code = "server_full"
    http_status = 503
    exit_code = 5

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{limit} streams are open at this server, which is WEFT_SERVER_STREAMS of it: ask another, or again later"
        )


class WorkerLost(WeftError):
    """A worker was given up for lost: what it held is with others."""

    code = "worker_lost"
    http_status = 409

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id
        super().__init__(f"worker {worker_id} was given up for lost, or has left: end what it runs, and register anew")


class OutcomeWaits(WeftError):
    """What became of a task cannot be written yet: somebody has it locked, or the database needs attention."""

    code = "outcome_waits"
    http_status = 409

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        super().__init__(
            f"what became of task {task_id} cannot be written yet: somebody has it locked, or the database needs "
            "attention, and the server's log says how; what else you sent has landed, send each again by itself"
        )


class KeyReused(CallerError):
    """An idempotency key was sent before with another request."""

    code = "key_reused"
    http_status = 422

    def __init__(self, key: str) -> None:
        self.field = "idempotency-key"
        super().__init__(f"idempotency-key: {key[:80]!r} was sent with another request: take a new key for each")


class KeyBusy(CallerError):
    """What was asked for with an idempotency key is still being carried out."""

    code = "key_busy"
    http_status = 409
    exit_code = 5

    def __init__(self, key: str) -> None:
        self.field = "idempotency-key"
        super().__init__(
            f"idempotency-key: what was sent with {key[:80]!r} is still being carried out: "
            "send the same again, and you get its answer once it is there"
        )


class AnswerGone(CallerError):
    """What was asked for has been done, and its answer had a secret in it that is shown once."""

    code = "answer_gone"
    http_status = 409
    exit_code = 5

    def __init__(self, key: str) -> None:
        self.field = "idempotency-key"
        super().__init__(
            f"what was sent with the key {key[:80]!r} has been done, and its secret was shown once: "
            "see `weft tokens list`, revoke what it made, and make another with a new key"
        )


class ProviderUnavailable(OperatorError):
    """The identity provider cannot be asked, and nothing that it said before is known."""

    code = "provider_unavailable"

    def __init__(self, issuer: str, problem: str) -> None:
        super().__init__(f"cannot ask the identity provider {issuer}: {problem}: check WEFT_OIDC_ISSUER")


class ServerUnavailable(OperatorError):
    """A server cannot be reached, or does not speak as Weft does; ``done`` says how far a long call was by then."""

    code = "server_unavailable"

    def __init__(self, where: str, problem: str, *, done: int | None = None) -> None:
        self.where = where
        self.problem = problem
        self.done = done
        far = (
            "" if done is None else f"; {done} were done by then, and what is done stays: the same again does the rest"
        )
        super().__init__(f"cannot reach the server at {where}: {problem}{far}: check the address, and that it runs")

    def after(self, done: int) -> ServerUnavailable:
        """Return the same of a call of which ``done`` were done before the part that went wrong."""
        return ServerUnavailable(self.where, self.problem, done=done + (self.done or 0))


class ServerStopping(OperatorError):
    """A server takes no more, because it is about to stop."""

    code = "server_stopping"

    def __init__(self) -> None:
        super().__init__("the server is about to stop: ask again, it or another answers soon")


class AddressTaken(OperatorError):
    """Another process listens at the address."""

    code = "address_taken"

    def __init__(self, where: str, problem: str, *, in_use: bool) -> None:
        advice = "give another --port, or stop what listens there" if in_use else "give another --host or --port"
        super().__init__(f"cannot listen at {where}: {problem}: {advice}")


class DevRuns(CallerError):
    """A ``weft dev`` of the same home runs already."""

    code = "dev_runs"
    exit_code = 5
    http_status = 409

    def __init__(self, home: str, pid: int | None, url: str | None) -> None:
        self.pid = pid
        self.url = url
        where = "is starting" if url is None else f"answers at {url}"
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"weft dev runs already: {who} {where}; stop it there, or set WEFT_HOME to another than {home}"
        )
