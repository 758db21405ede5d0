"""Deploys a live DAG: its version, its jobs and their datasets are made in one transaction, or nothing of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.catalog import dataset_versions, datasets
from weft.catalog.datasets import Producer, Sees, roles_in
from weft.core.data_errors import DeployConflict
from weft.core.errors import InvalidInput, UnknownQueue
from weft.core.ids import CONTROL_QUEUE
from weft.core.suggestions import did_you_mean
from weft.db.statements import Statements
from weft.flow.live.identity import JobMeaning, config_hashes
from weft.flow.live.model import LINE
from weft.flow.live.operators import OWN
from weft.history import tags
from weft.live.plans import (
    Deployed,
    DeployPlan,
    InputPlan,
    JobPlan,
    Touched,
    emptied,
    nonces_of,
    plan_datasets,
    plan_jobs,
)  # fmt: skip
from weft.live.sources import following, put_source
from weft.queue import audit, queues
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.flow.live.validation import CheckedDag
    from weft.history.contents import Content

SQL = Statements("weft.live", "sql/deploying.sql")
_STORAGE = {"kind": "parquet"}
# All orchestrators serve the queue of control, and know what comes with Weft.
_ORCHESTRATING = (CONTROL_QUEUE, OWN)
_NO_ORCHESTRATOR = "no orchestrator is there: nothing of it begins before one is; start `weft orchestrator`"
# By what a setting is called in a document, what the database calls it.
_SPANS = {"timeout_seconds": "timeout", "heartbeat_timeout_seconds": "heartbeat_timeout", "idle_timeout": "idle_after"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sound document that is to be deployed, and by whom.

    ``is_same`` says that its very text is in effect, ``is_built`` that it is being built; ``anew`` are jobs that begin
    anew though they mean the same.
    """

    checked: CheckedDag
    actor: str
    sees: Sees
    is_same: bool = False
    is_built: bool = False
    anew: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the DAG."""
        return self.checked.sound.dag


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan, with all that is needed to carry it out."""

    plan: DeployPlan
    hashes: Mapping[str, str]
    nonces: Mapping[str, int]
    lanes: Mapping[str, int]


async def plan(conn: type_Connection, org_id: int, wanted: Wanted) -> DeployPlan:
    """Return what a deploy would do by now; nothing is changed."""
    dag = await conn.fetchrow(SQL.dag, org_id, wanted.name)
    return (await _drafted(conn, org_id, dag, wanted)).plan


async def last_version(conn: type_Connection, org_id: int, name: str) -> tuple[int, int | None, int | None]:
    """Return the number of the last version of a DAG, 0 for none, and the artifacts in effect and being built."""
    row = await conn.fetchrow(SQL.dag, org_id, name)
    return (0, None, None) if row is None else (row["last_version"], row["artifact_id"], row["building_artifact_id"])


async def deploy(
    conn: type_Connection, org_id: int, wanted: Wanted, content: Content | None, seen: int, message: str | None
) -> DeployPlan:
    """Make the version that a document says, unless nothing would change; in effect at once, or when it has caught up.

    ``seen`` is the number of the last version that whoever deploys knows of: raises `DeployConflict` when another has
    deployed since. Without ``content`` the document is the one that is in effect.
    """
    await conn.execute(SQL.add_dag, org_id, wanted.name, wanted.actor)
    await conn.fetchrow(SQL.lock_dag, org_id, wanted.name)
    dag = await conn.fetchrow(SQL.dag, org_id, wanted.name)
    assert dag is not None
    if dag["last_version"] != seen:
        raise DeployConflict(wanted.name, dag["last_version"])
    draft = await _drafted(conn, org_id, dag, wanted)
    if not draft.plan.changes:
        return draft.plan
    if dag["building_id"] is not None:
        await conn.fetchval(SQL.abandon, org_id, dag["building_id"])
    version_id = await _put_version(conn, org_id, dag, wanted, content, message)
    await _hold_datasets(conn, org_id, wanted, is_swap=draft.plan.at_once)
    written: dict[str, int] = {}
    for name, job in wanted.checked.jobs.items():
        job_id, is_new = await _put_job(conn, org_id, dag["id"], job, draft, wanted.actor)
        await conn.execute(
            SQL.put_version_job, version_id, job_id, org_id, _json(_kept_settings(job.settings, draft.lanes))
        )
        if is_new:
            await _put_outputs(conn, org_id, wanted, job, job_id, draft.hashes[name])
            await _put_inputs(conn, org_id, job, job_id, written)
            await put_source(conn, org_id, job, job_id, wanted.sees)
        rows = await conn.fetch(SQL.outputs, org_id, job_id)
        for dataset, row in zip(job.outputs, rows, strict=True):
            await conn.execute(SQL.put_version_dataset, version_id, row["dataset_id"], row["version_id"], org_id)
            written[dataset] = row["version_id"]
    await require_datasets(conn, org_id, version_id, "jobs", None)
    await conn.execute(SQL.begin_building, org_id, dag["id"], version_id, draft.plan.version)
    async with tags.explained(f"{wanted.name}/{LINE}"), following():
        if draft.plan.at_once:
            await conn.execute(SQL.swap, dag["id"], version_id, "deploy", None, None)
        else:
            await conn.execute(SQL.settle, dag["id"])
    told = {"version": draft.plan.version, "at_once": draft.plan.at_once}
    await audit.record_named(conn, org_id, wanted.actor, AuditVerb.DEPLOY, "live_dag", wanted.name, told)
    return draft.plan


async def require_datasets(conn: type_Connection, org_id: int, version_id: int, field: str, sees: Sees) -> None:
    """Raise `InvalidInput` unless all datasets of a version are there; who goes on from there holds them."""
    gone = await conn.fetchrow(SQL.deleted_datasets, org_id, version_id, roles_in(sees))
    if gone is None:
        return
    if not gone["is_seen"]:
        raise InvalidInput(field, "a dataset that you do not see has been deleted: ask an admin to bring it back")
    name = gone["name"]
    raise InvalidInput(field, f"{name} has been deleted: `weft datasets undelete {name}` brings it back")


async def _drafted(conn: type_Connection, org_id: int, dag: Record | None, wanted: Wanted) -> _Draft:
    """Return what a deploy does, given what is in effect; raises `InvalidInput` for what cannot be."""
    jobs, name = wanted.checked.jobs, wanted.name
    if await conn.fetchval(SQL.is_workflow, org_id, name):
        raise InvalidInput(
            "dag", f"there is a workflow {name!r}, or a tag {name}/{LINE} of one: call the DAG otherwise"
        )
    before = {} if dag is None else await deployed(conn, org_id, dag["version_id"])
    highest = {} if dag is None else await _highest(conn, org_id, dag["id"], jobs)
    anew = wanted.anew if wanted.is_same else (*wanted.anew, *(each.name for each in jobs.values() if each.resets))
    nonces = nonces_of(jobs, before, highest, anew)
    hashes = config_hashes(jobs, nonces)
    lanes = await _lanes(conn, org_id, jobs)
    known = frozenset[tuple[str, str]]()
    if dag is not None:
        there = await conn.fetch(SQL.known_jobs, org_id, dag["id"], list(hashes), list(hashes.values()))
        known = frozenset((row["name"], row["config_hash"]) for row in there)
    settings = {each: _kept_settings(job.settings, lanes) for each, job in jobs.items()}
    job_plans = plan_jobs(jobs, hashes, settings, before, known, anew)
    rows = await _datasets(conn, org_id, jobs, before, wanted.sees)
    _require_free(name, jobs, rows)
    inputs = await _outside(conn, org_id, wanted, rows, before)
    owners = {dataset: hashes[each] for each, job in jobs.items() for dataset in job.outputs}
    found = await conn.fetch(SQL.versions_by_hash, org_id, list(owners), list(owners.values()))
    versions = {row["name"]: row["number"] for row in found}
    current = {each: row["version"] for each, row in rows.items()}
    planned = plan_datasets(jobs, hashes, before, versions, current)
    others = [each.name for each in planned if each.action == "rebuilt" or each.version != current.get(each.name)]
    readers = await conn.fetch(SQL.readers, org_id, others, name, roles_in(wanted.sees))
    is_seen = {each: row["is_seen"] for each, row in rows.items()}
    shown = tuple(each for each in planned if is_seen.get(each.name, True))
    is_new = any(each.action in ("new", "changed") for each in job_plans)
    plan = DeployPlan(
        dag=name,
        changes=_changes(dag, wanted, job_plans),
        version=1 + (0 if dag is None else dag["last_version"]),
        base=None if dag is None else dag["version"],
        replaces=None if dag is None else dag["building"],
        at_once=dag is None or dag["version"] is None or not is_new,
        jobs=job_plans,
        datasets=shown,
        inputs=inputs,
        touched=tuple(Touched(**row) for row in readers if is_seen.get(row["dataset"], True)),
        warnings=(
            *await absent(conn, org_id, jobs, lanes),
            *emptied(name, jobs, shown, {each: row["rows"] for each, row in rows.items()}),
        ),
    )
    if not plan.changes:
        plan = replace(plan, version=(plan.replaces if wanted.is_built else plan.base) or plan.version, replaces=None)
    return _Draft(plan, hashes, nonces, lanes)


def _changes(dag: Record | None, wanted: Wanted, jobs: Sequence[JobPlan]) -> bool:
    """Whether there is anything to do: also when what is in effect is to take the place of what is being built."""
    if dag is None or not (wanted.is_same or wanted.is_built):
        return True
    if wanted.is_built:
        return bool(wanted.anew)
    return dag["building"] is not None or any(each.action != "unchanged" for each in jobs)


async def deployed(conn: type_Connection, org_id: int, version_id: int | None) -> dict[str, Deployed]:
    """Return the jobs of a version by name; none of no version."""
    if version_id is None:
        return {}
    rows = await conn.fetch(SQL.jobs_of_version, org_id, version_id)
    return {
        row["name"]: Deployed(
            row["config_hash"], row["nonce"], orjson.loads(row["document"]), orjson.loads(row["settings"])
        )
        for row in rows
    }


async def _highest(conn: type_Connection, org_id: int, dag_id: int, jobs: Mapping[str, JobMeaning]) -> dict[str, int]:
    rows = await conn.fetch(SQL.highest_nonces, org_id, dag_id, list(jobs))
    return {row["name"]: row["nonce"] for row in rows}


async def _lanes(conn: type_Connection, org_id: int, jobs: Mapping[str, JobMeaning]) -> dict[str, int]:
    known = await queues.ids(conn, org_id)
    for job in jobs.values():
        if job.settings["runtime"] != "inline" and job.settings["queue"] not in known:
            raise UnknownQueue(job.settings["queue"], known)
    return known


async def _datasets(
    conn: type_Connection, org_id: int, jobs: Mapping[str, JobMeaning], before: Mapping[str, Deployed], sees: Sees
) -> dict[str, Record]:
    names = {each for job in jobs.values() for each in (*job.inputs, *job.outputs)}
    names |= {each for old in before.values() for each in old.document["outputs"]}
    rows = await conn.fetch(SQL.datasets, org_id, sorted(names), roles_in(sees))
    return {row["name"]: row for row in rows}


def _require_free(dag: str, jobs: Mapping[str, JobMeaning], rows: Mapping[str, Record]) -> None:
    """Refuse to write what somebody else writes."""
    for name, job in jobs.items():
        for place, dataset in enumerate(job.outputs):
            row = rows.get(dataset)
            if row is not None and row["producer_dag"] not in (None, dag):
                known = Producer(row["producer_dag"], row["producer_node"])
                by = f"is written by {known}" if row["is_seen"] else "is written by somebody else"
                raise InvalidInput(
                    f"jobs.{name}.outputs[{place}]", f"{dataset} {by}, and has one producer: write another dataset"
                )


async def _outside(
    conn: type_Connection, org_id: int, wanted: Wanted, rows: Mapping[str, Record], before: Mapping[str, Deployed]
) -> tuple[InputPlan, ...]:
    """Return the inputs from outside of the DAG; one that is not there, or may not be seen, is refused.

    What a job reads already it may read on, whoever deploys it.
    """
    jobs = wanted.checked.jobs
    own = {dataset for job in jobs.values() for dataset in job.outputs}
    found = []
    for name, job in jobs.items():
        for place, dataset in enumerate(job.inputs):
            if dataset in own:
                continue
            row = rows.get(dataset)
            is_read = name in before and dataset in before[name].document["inputs"]
            if row is None or not (row["is_seen"] or is_read):
                seen = [each["name"] for each in await conn.fetch(SQL.names_of_datasets, org_id, roles_in(wanted.sees))]
                hint = did_you_mean(dataset, [*own, *seen])
                what = f"there is no dataset {dataset!r}, in this DAG or elsewhere.{hint}"
                raise InvalidInput(f"jobs.{name}.inputs[{place}]", what)
            if row["is_seen"]:
                by = None if row["producer_dag"] is None else str(Producer(row["producer_dag"], row["producer_node"]))
                found.append(InputPlan(dataset, name, by))
    return tuple(found)


async def absent(
    conn: type_Connection, org_id: int, jobs: Mapping[str, JobMeaning], lanes: Mapping[str, int]
) -> tuple[str, ...]:
    """Return a warning for whoever is not there and would be needed by jobs: workers, and an orchestrator."""
    places = {name: (_queue_id(job.settings, lanes), job.handler) for name, job in jobs.items()}
    queue_ids, handlers = zip(*sorted({_ORCHESTRATING, *places.values()}), strict=True)
    known = {tuple(row) for row in await conn.fetch(SQL.known_handlers, org_id, queue_ids, handlers, OWN)}
    missing: dict[tuple[str, str], list[str]] = {}
    for name, place in places.items():
        if place not in known and place[0] != CONTROL_QUEUE:
            missing.setdefault(_missing(jobs[name]), []).append(name)
    workers = (f"{who}: {', '.join(names)} will wait for one; start `{what}`" for (who, what), names in missing.items())
    return (*workers, *(() if _ORCHESTRATING in known else (_NO_ORCHESTRATOR,)))


def _missing(job: JobMeaning) -> tuple[str, str]:
    """Return which worker is not there that could run a job, and the command that starts one."""
    queue = job.settings["queue"]
    if job.handler.startswith(OWN):
        return f"no worker of the queue {queue} is there", f"weft worker --operators --queues {queue}"
    who = f"no worker of the queue {queue} that is there knows the handler {job.handler}"
    return who, f"weft worker --app MODULE --queues {queue}"


async def _put_version(
    conn: type_Connection, org_id: int, dag: Record, wanted: Wanted, content: Content | None, message: str | None
) -> int:
    artifact_id = dag["artifact_id"]
    if content is not None:
        kept = content.digest, content.bytes, content.stored, bytes.fromhex(wanted.checked.version_hash)
        artifact_id = await conn.fetchval(
            SQL.put_artifact, org_id, wanted.name, artifact_id, *kept, wanted.actor, message
        )
    said = dag["id"], dag["last_version"] + 1, artifact_id, wanted.actor, message
    return int(await conn.fetchval(SQL.add_version, org_id, *said))


async def _put_job(
    conn: type_Connection, org_id: int, dag_id: int, job: JobMeaning, draft: _Draft, actor: str
) -> tuple[int, bool]:
    row = await conn.fetchrow(
        SQL.put_job, org_id, dag_id, job.name, draft.hashes[job.name], draft.nonces[job.name], job.activation,
        job.operator, job.handler, _json(job.document), job.strategy, CONTROL_QUEUE, actor,
    )  # fmt: skip
    assert row is not None
    return row["id"], row["is_new"]


async def _hold_datasets(conn: type_Connection, org_id: int, wanted: Wanted, *, is_swap: bool) -> None:
    """Make the outputs that are not there yet, and hold all that the DAG has to do with, each in the order of all."""
    jobs = wanted.checked.jobs.values()
    outputs = {datasets.check_dataset(each) for job in jobs for each in job.outputs}
    names = sorted(outputs.union(*(job.inputs for job in jobs)))
    # First what is there, deleted or not: whoever brings one back holds it before he takes its name.
    await conn.execute(SQL.hold_datasets, org_id, wanted.name, names, None, is_swap)
    for name in sorted(outputs):
        await conn.execute(datasets.SQL.create, org_id, name, None, _json(_STORAGE), wanted.actor)
    await conn.execute(SQL.hold_datasets, org_id, wanted.name, names, None, is_swap)


async def _put_outputs(
    conn: type_Connection, org_id: int, wanted: Wanted, job: JobMeaning, job_id: int, config_hash: str
) -> None:
    rows = {row["name"]: row for row in await conn.fetch(SQL.outputs_by_name, org_id, job.outputs)}
    for place, name in enumerate(job.outputs):
        if (row := rows.get(name)) is None:
            raise InvalidInput(f"jobs.{job.name}.outputs[{place}]", f"{name} has been deleted meanwhile")
        if row["producer_dag"] is None:
            await conn.execute(SQL.claim_dataset, org_id, row["id"], wanted.name, job.name)
        elif row["producer_dag"] != wanted.name:
            raise InvalidInput(f"jobs.{job.name}.outputs[{place}]", f"{name} has been written by another meanwhile")
        version_id = await conn.fetchval(SQL.keep_version, org_id, row["id"], config_hash)
        if version_id is None:
            version_id = await dataset_versions.add(conn, org_id, row["id"], config_hash, wanted.actor)
        await conn.execute(SQL.put_output, job_id, place, org_id, row["id"], version_id)


async def _put_inputs(
    conn: type_Connection, org_id: int, job: JobMeaning, job_id: int, written: Mapping[str, int]
) -> None:
    for place, name in enumerate(job.inputs):
        if await conn.fetchval(SQL.put_input, job_id, place, org_id, name, written.get(name)) is None:
            raise InvalidInput(f"jobs.{job.name}.inputs[{place}]", f"the dataset {name} has been removed meanwhile")


def _kept_settings(settings: Mapping[str, Any], lanes: Mapping[str, int]) -> dict[str, Any]:
    """Return how a job is executed as the database has it."""
    found = {key: value for key, value in settings.items() if key not in (*_SPANS, "queue", "priority")}
    for written, kept in _SPANS.items():
        span = settings[written]
        found[kept] = None if span is None else f"{timedelta(seconds=span).total_seconds()} seconds"
    return {**found, "rank": -settings["priority"], "queue_id": _queue_id(settings, lanes)}


def _queue_id(settings: Mapping[str, Any], lanes: Mapping[str, int]) -> int:
    return CONTROL_QUEUE if settings["runtime"] == "inline" else lanes[settings["queue"]]


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return orjson.dumps(value).decode()
