"""Writes of datasets as OpenLineage tells them: a run that has begun, and that has completed, with its datasets."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from weft.catalog.datasets import ALONE, OUTSIDE, columns_of
from weft.core.errors import InvalidInput
from weft.db.statements import Statements
from weft.version import __version__

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/openlineage.sql")
PRODUCER = f"urn:weft:{__version__}"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "schema": "1-2-0/SchemaDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "parent": "1-2-0/ParentRunFacet",
}
# By these the same write is the same run, whoever tells of it and however often.
_RUNS = uuid.UUID("6f1c2f0a-3f55-5c1e-9a52-6d1f6c0b7a11")


async def note_of(conn: type_Connection, event_id: int) -> tuple[int, dict[str, Any], str | None] | None:
    """Return the org, the write and the actor that an event is about; None for one about anything else."""
    row = await conn.fetchrow(SQL.event, event_id)
    if row is None:
        return None
    told = orjson.loads(row["payload"])
    # Anybody may send an event of any name.
    if not isinstance(told, dict) or not all(isinstance(told.get(name), int) for name in ("version", "write")):
        return None
    if not isinstance(told.get("dataset"), str):
        return None
    return row["org_id"], {name: told[name] for name in ("dataset", "version", "write")}, row["actor"]


async def events_of(conn: type_Connection, org: str, payload: Any, namespace: str) -> list[dict[str, Any]]:
    """Return what is told of a write: that its run began, and that it completed."""
    try:
        said = payload["dataset"], int(payload["version"]), int(payload["write"])
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("payload", "must name a dataset, a version and a write") from None
    row = await conn.fetchrow(SQL.write, org, *said)
    if row is None:
        raise InvalidInput("payload", f"there is no write {said[0]}@{said[1]}.{said[2]} any more")
    inputs = await conn.fetch(SQL.inputs, row["org_id"], row["version_id"], said[2])
    ids = sorted({each["input_id"] for each in inputs})
    columns = await conn.fetch(SQL.columns, row["org_id"], row["id"], ids)
    within = f"{namespace}/{org}"
    run: dict[str, Any] = {"runId": str(uuid.uuid5(_RUNS, f"{within} {row['version_id']}.{said[2]}"))}
    if row["job_id"] is not None:
        parent = {
            "run": {"runId": str(uuid.uuid5(_RUNS, f"{within} job {row['job_id']}"))},
            "job": {"namespace": within, "name": row["producer_dag"]},
        }
        run = {**run, "facets": {"parent": _facet("parent", parent)}}
    about = {
        "producer": PRODUCER, "schemaURL": _EVENT, "run": run, "job": _job(within, row),
        "inputs": [_input(within, each) for each in inputs],
    }  # fmt: skip
    began = row["claimed_at"] or row["written_at"]
    return [
        {"eventType": "START", "eventTime": _moment(began), **about, "outputs": []},
        {"eventType": "COMPLETE", "eventTime": _moment(row["written_at"]), **about,
         "outputs": [_output(within, row, f"{said[1]}.{said[2]}", columns)]},
    ]  # fmt: skip


def _job(namespace: str, row: Record) -> dict[str, Any]:
    dag, node = row["producer_dag"], row["producer_node"]
    kind = {"processingType": "BATCH", "integration": "WEFT", "jobType": "TASK"}
    return {
        "namespace": namespace,
        "name": node if dag in (ALONE, OUTSIDE) else f"{dag}.{node}",
        "facets": {"jobType": _facet("jobType", kind)},
    }


def _input(namespace: str, row: Record) -> dict[str, Any]:
    told: dict[str, Any] = {"namespace": namespace, "name": row["name"]}
    if row["version"] is not None:
        told["facets"] = {"version": _facet("version", {"datasetVersion": f"{row['version']}.{row['write']}"})}
    return told


def _output(namespace: str, row: Record, state: str, origins: Sequence[Record]) -> dict[str, Any]:
    fields = [{"name": each.name, "type": each.type} for each in columns_of(row["columns"])]
    facets = {
        "schema": _facet("schema", {"fields": fields}),
        "version": _facet("version", {"datasetVersion": state}),
    }
    made: dict[str, dict[str, list[dict[str, str]]]] = {}
    for each in origins:
        if any(column["name"] == each["output_column"] for column in fields):
            origin = {"namespace": namespace, "name": each["name"], "field": each["input_column"]}
            made.setdefault(each["output_column"], {"inputFields": []})["inputFields"].append(origin)
    if made:
        facets["columnLineage"] = _facet("columnLineage", {"fields": made})
    counted = _facet("outputStatistics", {"rowCount": row["rows"], "size": row["bytes"]})
    return {
        "namespace": namespace, "name": row["name"], "facets": facets, "outputFacets": {"outputStatistics": counted},
    }  # fmt: skip


def _facet(name: str, told: dict[str, Any]) -> dict[str, Any]:
    _, _, kind = _FACETS[name].partition("/")
    address = f"https://openlineage.io/spec/facets/{_FACETS[name]}.json#/$defs/{kind}"
    return {"_producer": PRODUCER, "_schemaURL": address, **told}


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
