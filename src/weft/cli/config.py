"""``weft config``: prints the settings in force."""

from __future__ import annotations

from dataclasses import Field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from weft.cli.apps import JsonFlag, new_app

if TYPE_CHECKING:
    from weft.core.settings import Settings

app = new_app()


@app.command()
def config(as_json: JsonFlag = False) -> None:
    """Print the settings in force, passwords left out; those that differ from their default are marked with *."""
    from weft.cli.output import clean, print_json, print_table, styled
    from weft.cli.target import find_target
    from weft.core.settings import Settings

    settings = Settings.load()
    values = _in_force(settings)
    target = find_target()
    where = values["server"] = target.settings.server
    if as_json:
        print_json(values | {"context": target.context, "target": target.kind, "why": target.why})
        return
    goes = where or {"database": values["database_url"], "embedded": "the embedded database"}[target.kind]
    print(clean(f"commands go to {goes} because {target.why}\n"))
    rows = []
    for field in fields(settings):
        value, is_set = values[field.name], getattr(settings, field.name) != field.default
        text = _text(field, value)
        name = f"WEFT_{field.name.upper()}"
        rows.append(
            (styled(name, "bold" if is_set else ""), "*" if is_set else "", text, styled(field.metadata["doc"], "dim"))
        )
    print_table(("SETTING", "", "VALUE~", "MEANING~"), rows, empty="")


def _text(field: Field[Any], value: Any) -> str:
    from weft.cli.output import size_text, span
    from weft.core.settings import parse_size

    if isinstance(value, timedelta):
        return span(value)
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    return size_text(value) if field.metadata["parse"] is parse_size else str(value)


def _in_force(settings: Settings) -> dict[str, Any]:
    """Return all values, with those that follow from others when they are not set."""
    from weft.db.address import redacted
    from weft.db.blob_address import shown_blob_url
    from weft.db.embedded_layout import home_dir
    from weft.worker.logs import log_dir

    values: dict[str, Any] = {}
    in_part = {"database_url": redacted, "listen_url": redacted, "blob_url": shown_blob_url, "data_url": shown_blob_url}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in in_part:
            value = None if value is None else in_part[field.name](value)
        elif not field.repr:
            # Whatever is a secret, also one that is added later, is never shown.
            value = "…" if value else None
        values[field.name] = value
    home = home_dir(settings)
    return values | {
        "home": home,
        "log_dir": log_dir(settings),
        "blob_url": values["blob_url"] or str(home / "blobs"),
        "data_url": values["data_url"] or str(home / "data"),
        "worker_heartbeat_interval": settings.heartbeat_interval,
        "worker_timeout": settings.lease_time,
    }
