"""The page of the settings."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

from docs.pages.markdown import code, duration, sentence, size, table
from weft.core.settings import Settings, parse_duration, parse_interval, parse_size

_HEAD = """\
# Settings

All settings are read once, when a client, a worker or a command starts, into one frozen object (`weft.Settings`).
An argument (`weft.Client(inline_limit="1MiB")`) wins over an environment variable, which wins over the TOML file. A
key that does not exist is refused, with the nearest one that does, so a misspelt variable never goes unnoticed.
`weft config` prints what is in force.

- **Environment**: the name in the table. An empty variable counts as not set.
- **TOML**: `weft.toml` in the current folder, or the file that `WEFT_CONFIG` names. Its keys are the names in small
  letters without `WEFT_`: `worker_timeout = "30s"`. All keys stand at the top level. `WEFT_CONFIG`,
  `WEFT_CONTEXT`, `WEFT_DEBUG` and `WEFT_QUIET` are read from the environment only.
- **Durations** are written `30d`, `1.5h`, `10m`, `3s`, `250ms`, or as a number of seconds.
- **Sizes** are written `262144`, `256KiB`, `64MiB`.
- **Flags** are `true` or `false` (also `1`, `0`, `yes`, `no`, `on`, `off`).

"""

_TAIL = """
## Where the database is

`WEFT_DATABASE_URL` decides. Without it, `POSTGRES_HOST` with `POSTGRES_PORT` (5432), `POSTGRES_USER` (postgres),
`POSTGRES_PASSWORD` and `POSTGRES_DB` (postgres) make the address; a host that begins with a slash is the folder of a
socket, and there may be several hosts with commas between them. Without either, an embedded PostgreSQL is started
under `WEFT_HOME`.

## Where `WEFT_HOME` is when it is not set

On Linux `$XDG_DATA_HOME/weft`, else `~/.local/share/weft`; on macOS `~/Library/Application Support/weft`. For root
it is `/var/lib/weft` when the unprivileged user that runs the embedded PostgreSQL may not enter root's own folder.

## What follows from the profile

| | `standard` | `fast` |
| --- | --- | --- |
| time between heartbeats | 3 s | 0.5 s |
| a worker without a heartbeat is lost after | 10 s | 2 s |

`WEFT_WORKER_HEARTBEAT_INTERVAL` and `WEFT_WORKER_TIMEOUT` set each for itself. Keep the second at three times the
first or more.
"""


def _default(name: str, value: object, parse: object) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, timedelta):
        return code(duration(value))
    if parse is parse_size and isinstance(value, int):
        return code(size(value))
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(value)


def _kind(parse: object) -> str:
    if parse in (parse_duration, parse_interval):
        return "duration"
    if parse is parse_size:
        return "size"
    names = {"parse_flag": "flag", "parse_count": "number", "_path": "path", "str": "text", "_name": "text",
             "parse": "choice", "_secrets": "text", "_words": "list", "_base_url": "text"}  # fmt: skip
    return names[parse.__name__]  # type: ignore[attr-defined]


def page() -> str:
    """Return the page."""
    rows = [
        (
            code(f"WEFT_{field.name.upper()}"),
            _kind(field.metadata["parse"]),
            _default(field.name, field.default, field.metadata["parse"]),
            sentence(field.metadata["doc"]),
        )
        for field in fields(Settings)
    ]
    rows.insert(0, (code("WEFT_CONFIG"), "path", "", "The TOML file; by default `weft.toml` in the current folder."))
    rows.insert(
        1, (code("WEFT_CONTEXT"), "text", "", "Which server commands go to, by its name in `weft context list`.")
    )
    rows.insert(2, (code("WEFT_DEBUG"), "flag", code("false"), "A command that fails also prints its traceback."))
    rows.insert(
        3, (code("WEFT_QUIET"), "flag", code("false"), "Commands show answers and errors only, like `--quiet`.")
    )
    return _HEAD + table(("setting", "kind", "default", "meaning"), rows) + _TAIL
