"""Settings: one frozen object, read from arguments over ``WEFT_*`` variables over a TOML file."""

from __future__ import annotations

import base64
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidSetting
from weft.core.postgres_variables import url_from_postgres_variables
from weft.core.suggestions import did_you_mean

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LONGEST = 20_000 * 86400.0
_SIZES = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


def environment() -> Mapping[str, str]:
    """Return the variables of this process, for what others than Weft have named."""
    return os.environ


def parse_duration(text: object) -> timedelta:
    """Read a duration: ``30d``, ``1.5h``, ``10m``, ``3s``, ``250ms`` or a number of seconds."""
    if isinstance(text, timedelta):
        return text
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)\s*(ms|s|m|h|d|w)?", str(text).strip())
    if not match or float(match[1]) * _UNITS[match[2] or "s"] > _LONGEST:
        raise ValueError(f"{text!r} is not a duration; write for example 30d, 1.5h, 10m, 3s or a number of seconds")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])


def parse_interval(text: object) -> timedelta:
    """Read a duration above zero."""
    span = parse_duration(text)
    if not span:
        raise ValueError("must be above zero")
    return span


def parse_size(text: object) -> int:
    """Read a number of bytes: ``262144``, ``256KiB`` or ``64MiB``."""
    match = re.fullmatch(r"(\d+)\s*([a-zA-Z]*)", str(text).strip())
    if not match or match[2].lower() not in _SIZES:
        raise ValueError(f"{text!r} is not a size; write for example 262144, 256KiB or 64MiB")
    return int(match[1]) * _SIZES[match[2].lower()]


def parse_flag(text: object) -> bool:
    """Read ``true`` or ``false`` and their usual spellings."""
    word = str(text).strip().lower()
    if word not in ("1", "0", "true", "false", "yes", "no", "on", "off"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word in ("1", "true", "yes", "on")


def parse_count(text: object) -> int:
    """Read a whole number above zero."""
    if not re.fullmatch(r"[1-9]\d{0,9}", str(text).strip()):
        raise ValueError(f"{text!r} is not a whole number above zero")
    return int(str(text))


def _at_most(highest: int) -> Callable[[object], int]:
    def parse(text: object) -> int:
        if (count := parse_count(text)) > highest:
            raise ValueError(f"{count} is more than {highest}")
        return count

    return parse


def _choice(*words: str) -> Callable[[object], str]:
    def parse(text: object) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return str(text)

    return parse


def _setting(default: Any, parse: Callable[[object], Any], doc: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc}, repr=not secret)


def _name(text: object) -> str:
    from weft.core.json import text_problem

    if (problem := text_problem(str(text))) is not None:
        raise ValueError(problem)
    return str(text)


def _secrets(text: object) -> tuple[bytes, ...]:
    """Read secrets with spaces between them: ``whsec_`` and base64, or any text of 24 characters or more."""
    if isinstance(text, tuple):
        return text
    found = []
    for word in str(text).split():
        try:
            key = base64.b64decode(word.removeprefix("whsec_"), validate=True) if word.startswith("whsec_") else b""
        except ValueError:
            raise ValueError("what follows whsec_ is not base64") from None
        if len(key or word) < 24:
            raise ValueError("a secret is too short: take 24 random bytes or more")
        found.append(key or word.encode())
    return tuple(found)


def _words(text: object) -> tuple[str, ...]:
    """Read words with commas between them."""
    words = text if isinstance(text, (list, tuple)) else str(text).split(",")
    return tuple(word.strip() for word in map(str, words) if word.strip())


def _base_url(text: object) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", str(text)):
        raise ValueError(f"{text!r} is not an address; write for example https://weft.example.com")
    return str(text).rstrip("/")


def _path(text: object) -> Path:
    return Path(str(text)).expanduser().absolute()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, each with its default.

    Example::

        settings = Settings.load(database_url="postgresql://localhost/app")
    """

    home: Path | None = _setting(
        None, _path, "folder of the embedded PostgreSQL, blobs and logs; by default the user's data folder"
    )
    database_url: str | None = _setting(
        None, str, "a PostgreSQL 15 or later; by default an embedded PostgreSQL is started under WEFT_HOME", secret=True
    )
    listen_url: str | None = _setting(
        None,
        str,
        "a direct connection for LISTEN when WEFT_DATABASE_URL leads through a transaction pooler",
        secret=True,
    )
    pooler: str = _setting(
        "none",
        _choice("none", "transaction"),
        "`transaction` when WEFT_DATABASE_URL leads through a transaction pooler",
    )
    postgres_user: str | None = _setting(
        None, str, "the user as which root runs the embedded PostgreSQL; by default `weft` if it exists, else `nobody`"
    )
    org: str = _setting("default", _name, "the org that calls belong to")
    actor: str | None = _setting(
        None, _name, "who acts, as recorded with tasks and in the audit; by default `user@host` of the process"
    )
    blob_url: str | None = _setting(
        None, str, "where large values are kept: a folder, or `s3://bucket/prefix`; by default WEFT_HOME/blobs"
    )
    data_url: str | None = _setting(
        None, str, "where the files of datasets are: a folder, or `s3://bucket/prefix`; by default WEFT_HOME/data"
    )
    files_roots: tuple[str, ...] = _setting(
        (), _words, "the folders, or `s3://bucket/prefix`, in which sources of live DAGs look for files; none at first"
    )
    dataset_retention: timedelta = _setting(
        timedelta(days=30),
        parse_interval,
        "how long the states of a dataset can be read, and gone back to, after others took their place",
    )
    data_outside: tuple[str, ...] = _setting(
        (), _words, "folders and `s3://` prefixes, by comma, whose files may be registered and read; by default none"
    )
    query_fetch: int = _setting(4 * 1024**3, parse_size, "how much a query may copy, of a bucket or of tables")
    swap_lag: timedelta = _setting(
        timedelta(seconds=5), parse_interval, "a deploy comes into effect when what its new jobs have to do is younger"
    )
    query_memory: int = _setting(512 * 1024**2, parse_size, "how much memory a query over datasets may take")
    query_timeout: timedelta = _setting(
        timedelta(seconds=60), parse_interval, "a query over datasets is ended after this time"
    )
    query_rows: int = _setting(10_000_000, parse_count, "a query with more rows in its answer is ended")
    query_concurrency: int = _setting(4, parse_count, "how many queries a process runs at once; others wait")
    inline_limit: int = _setting(
        256 * 1024, parse_size, "params and outputs above this size go to the blob storage and are fetched by reference"
    )
    value_limit: int = _setting(64 * 1024**2, parse_size, "params and outputs above this size are refused")
    cache_max_output: int = _setting(16 * 1024**2, parse_size, "outputs above this size are not kept to serve again")
    cache_max_bytes: int | None = _setting(None, parse_size, "how much an org may have in the cache, in bytes")
    log_dir: Path | None = _setting(None, _path, "folder of the tasks' logs; by default WEFT_HOME/logs")
    log_limit: int = _setting(10 * 1024**2, parse_size, "a task's log is cut with a marker beyond this size")
    log_format: str = _setting(
        "text",
        _choice("text", "json"),
        "how workers, orchestrators and servers write their log: `text`, or `json`, an object a line",
    )
    log_upload: bool = _setting(False, parse_flag, "copy a log to the blob storage when its attempt ends")
    retention: timedelta = _setting(timedelta(days=30), parse_interval, "how long ended tasks are kept, and logs")
    audit_retention: timedelta | None = _setting(
        None,
        parse_interval,
        "how long acts are kept in the audit, and their seals; by default as long as the retention",
    )
    idempotency_ttl: timedelta = _setting(
        timedelta(days=7), parse_duration, "how long an idempotency key is kept after its task ended"
    )
    no_handler_timeout: timedelta = _setting(
        timedelta(minutes=10),
        parse_duration,
        "a task fails with `no_handler` when for this long nobody alive knew its handler and it was declined",
    )
    profile: str = _setting(
        "standard",
        _choice("standard", "fast"),
        "`fast` notices a dead worker within 3 s instead of 15 s, for more heartbeats",
    )
    worker_concurrency: int = _setting(100, parse_count, "how many tasks a worker process runs at once")
    worker_heartbeat_interval: timedelta | None = _setting(
        None, parse_interval, "time between heartbeats; by default 3 s, in the fast profile 0.5 s"
    )
    worker_timeout: timedelta | None = _setting(
        None,
        parse_interval,
        "a worker without a heartbeat for this long is lost; by default 10 s, in the fast profile 2 s",
    )
    worker_poll_interval: timedelta = _setting(
        timedelta(seconds=5), parse_interval, "how often an idle worker looks for work that no notification told it of"
    )
    worker_task_timeout: timedelta = _setting(
        timedelta(hours=1), parse_interval, "an attempt of a task without a timeout of its own is ended after this time"
    )
    orchestrator_heartbeat_interval: timedelta | None = _setting(
        None, parse_interval, "time between heartbeats of an orchestrator; by default 2 s, in the fast profile 0.5 s"
    )
    orphan_threshold: timedelta | None = _setting(
        None,
        parse_interval,
        "an orchestrator without a heartbeat for this long is lost, and its jobs are orphans; by default 6 s, in the "
        "fast profile 2 s",
    )
    orphan_scan_interval: timedelta | None = _setting(
        None,
        parse_interval,
        "how often an orchestrator looks for orphaned jobs, to own them; by default 2 s, in the fast profile 0.5 s",
    )
    job_default_timeout: timedelta = _setting(
        timedelta(hours=24), parse_interval, "a job whose workflow says nothing else fails after this time"
    )
    public_url: str | None = _setting(
        None, _base_url, "the address at which others reach this installation; callbacks name results by it"
    )
    server: str | None = _setting(
        None, _base_url, "the address of a server, through which commands then work instead of a database"
    )
    token: str | None = _setting(None, str, "the token by which a server knows who asks", secret=True)
    server_body_limit: int = _setting(
        16 * 1024**2, parse_size, "a server refuses requests whose body is larger than this"
    )
    server_read_timeout: timedelta = _setting(
        timedelta(seconds=30),
        parse_interval,
        "a server gives up a client that sends nothing for this long amid a request",
    )
    server_streams: int = _setting(5000, parse_count, "how many streams a server process keeps open at once")
    server_org_streams: int = _setting(2000, parse_count, "how many of them one org may have")
    server_proxies: tuple[str, ...] = _setting(
        (),
        _words,
        "proxies before a server that are believed when they say who asks and how (`X-Forwarded-For`, `-Proto`): "
        "addresses or networks, with commas between",
    )
    oidc_issuer: str | None = _setting(
        None, _base_url, "the identity provider whose tokens a server takes beside its own, by OpenID Connect"
    )
    oidc_audience: str | None = _setting(None, str, "whom the tokens of the identity provider must be meant for")
    oidc_user_claim: str = _setting("sub", str, "the claim that says who somebody is: the external id of a user")
    oidc_org_claim: str | None = _setting(
        None, str, "the claim that says of which org somebody is a user; without this all are of the org `default`"
    )
    oidc_add_users: str | None = _setting(
        None, _choice("reader"), "`reader` adds whom the provider knows and the org does not, as a reader"
    )
    server_drain: timedelta = _setting(
        timedelta(0),
        parse_duration,
        "how long a server that is to stop still answers while `/readyz` says no, so that requests go elsewhere first",
    )
    callback_secret: tuple[bytes, ...] = _setting(
        (),
        _secrets,
        "signs callbacks: `whsec_` and base64, or a text of 24 characters or more; several with spaces between",
        secret=True,
    )
    callback_allowed: tuple[str, ...] = _setting(
        (),
        _words,
        "receivers of callbacks that are not public: hosts, hosts with ports, networks such as `10.1.0.0/16`, "
        "with commas between",
    )
    callback_timeout: timedelta = _setting(
        timedelta(seconds=10), parse_interval, "how long a receiver of a callback has to answer"
    )
    fetch_allowed: tuple[str, ...] = _setting(
        (),
        _words,
        "addresses that operators of live DAGs may fetch although they are not public: hosts, hosts with ports, "
        "networks such as `10.1.0.0/16`, with commas between",
    )
    dag_secrets: tuple[str, ...] = _setting(
        (),
        _words,
        "environment variables of a worker that live DAGs may name, such as the token of a feed, with commas between",
    )
    openlineage_url: str | None = _setting(
        None, _base_url, "where each write into a dataset is told as OpenLineage, such as `https://host/api/v1/lineage`"
    )
    openlineage_token: str | None = _setting(None, str, "the bearer token that goes with it", secret=True)
    openlineage_namespace: str = _setting("weft", _name, "the namespace of what is told so; the org's name follows it")
    compaction_depth: int = _setting(
        10, _at_most(1000), "after so many patches on a version of a workflow a new version is made of them"
    )
    worker_max_attempts: int = _setting(
        3, parse_count, "how often a task is attempted of which neither its caller nor its handler says so"
    )
    worker_crash_limit: int = _setting(
        3, parse_count, "a task is dead when its own process dies and it has been in this many crashes"
    )
    worker_loss_limit: int = _setting(
        10,
        parse_count,
        "a task is dead when its worker dies and it has been in this many crashes; higher than the other limit, "
        "because most tasks that lose their worker have not killed it",
    )
    worker_shutdown_grace: timedelta = _setting(
        timedelta(seconds=30), parse_duration, "how long running tasks may go on after SIGTERM"
    )

    def __post_init__(self) -> None:
        if self.worker_max_attempts > 32767:
            raise InvalidSetting("WEFT_WORKER_MAX_ATTEMPTS", "must be at most 32767")
        if self.worker_concurrency > 2**31 - 1:
            raise InvalidSetting("WEFT_WORKER_CONCURRENCY", "must be at most 2147483647")
        _check_lease("WEFT_WORKER_TIMEOUT", self.lease_time, self.heartbeat_interval, "workers")
        patience = self.orphan_threshold or self._by_profile(6, 2)
        _check_lease("WEFT_ORPHAN_THRESHOLD", patience, self._orchestrator_interval, "orchestrators")

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
        """Read the settings; arguments win over the environment, which wins over the TOML file."""
        environ = os.environ if environ is None else environ
        values = _read_file(environ)
        values.update(_read_environment(environ))
        if "database_url" not in values and (url := url_from_postgres_variables(environ)):
            values["database_url"] = (url, "POSTGRES_HOST")
        values.update({name: (value, name) for name, value in arguments.items() if value is not None})
        parsed = {}
        for name, (value, source) in values.items():
            if name not in _PARSERS:
                raise InvalidSetting(source, f"there is no such setting.{_suggestion(name, source)}")
            try:
                parsed[name] = _PARSERS[name](value)
            except ValueError as problem:
                raise InvalidSetting(source, str(problem)) from None
        return cls(**parsed)

    @property
    def heartbeat_interval(self) -> timedelta:
        """The time between two heartbeats, after the profile."""
        return self.worker_heartbeat_interval or self._by_profile(3, 0.5)

    @property
    def lease_time(self) -> timedelta:
        """How long a heartbeat vouches for a worker, after the profile."""
        return self.worker_timeout or self._by_profile(10, 2)

    @property
    def acts_kept(self) -> timedelta:
        """How long acts are kept in the audit."""
        return self.audit_retention or self.retention

    @property
    def scan_interval(self) -> timedelta:
        """How often an orchestrator looks for orphaned jobs, after the profile."""
        return self.orphan_scan_interval or self._by_profile(2, 0.5)

    @property
    def for_orchestrator(self) -> Settings:
        """These settings with the heartbeats of an orchestrator."""
        patience = self.orphan_threshold or self._by_profile(6, 2)
        return replace(self, worker_heartbeat_interval=self._orchestrator_interval, worker_timeout=patience)

    @property
    def _orchestrator_interval(self) -> timedelta:
        return self.orchestrator_heartbeat_interval or self._by_profile(2, 0.5)

    def _by_profile(self, standard: float, fast: float) -> timedelta:
        return timedelta(seconds=fast if self.profile == "fast" else standard)


def _check_lease(name: str, lease: timedelta, interval: timedelta, who: str) -> None:
    if lease < 2 * interval:
        raise InvalidSetting(name, f"{lease} is less than two heartbeats of {interval}: {who} would be lost")


# Read before the settings, so no keys of the file: where that is, which server a command goes to by its name in
# `weft context list`, and whether a command tells its errors' tracebacks, and how far it is.
ENVIRONMENT_ONLY = ("WEFT_CONFIG", "WEFT_CONTEXT", "WEFT_DEBUG", "WEFT_QUIET")
# Secrets that documents name, and no settings.
HOOK_SECRETS = "WEFT_HOOK_"
_PARSERS: dict[str, Callable[[object], Any]] = {f.name: f.metadata["parse"] for f in fields(Settings)}


def _suggestion(name: str, source: str) -> str:
    """Suggest a setting in the spelling of the place where the wrong one stands."""
    if source.startswith("WEFT_"):
        return did_you_mean(source, [*ENVIRONMENT_ONLY, *(f"WEFT_{known.upper()}" for known in _PARSERS)])
    return did_you_mean(name, _PARSERS)


def _read_environment(environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    found = {}
    for variable, value in environ.items():
        is_own = variable.startswith("WEFT_") and not variable.startswith(HOOK_SECRETS)
        if is_own and variable not in ENVIRONMENT_ONLY and value != "":
            found[variable.removeprefix("WEFT_").lower()] = (value, variable)
    return dict[str, tuple[object, str]](found)


def _read_file(environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    named = environ.get("WEFT_CONFIG")
    path = Path(named) if named else Path("weft.toml")
    if not path.is_file():
        if named:
            raise InvalidSetting("WEFT_CONFIG", f"there is no file {named}")
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise InvalidSetting(str(path), f"not valid TOML: {problem}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidSetting(str(path), f"cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    return {name: (value, f"{name} in {path}") for name, value in document.items()}
