"""What a rollback of a live DAG would do, told without doing it: which jobs come back, and what readers would see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from weft.catalog.datasets import Producer, Sees, roles_in
from weft.flow.live.identity import JobMeaning
from weft.flow.ticks import CatchUp
from weft.live.dag_versions import find_dag, version_to_go_to
from weft.live.deploying import SQL, absent, deployed, require_datasets
from weft.live.plans import DatasetPlan, Deployed, DeployPlan, InputPlan, Touched, plan_jobs
from weft.queue import queues

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection


async def plan(conn: type_Connection, org_id: int, name: str, to: int | None, *, sees: Sees) -> DeployPlan:
    """Return what a rollback would do by now; nothing is changed. Raises what the rollback would."""
    dag = await find_dag(conn, org_id, name)
    target = await version_to_go_to(conn, org_id, dag, to)
    changes = target["id"] != dag["version_id"]
    if changes:
        await require_datasets(conn, org_id, target["id"], "to", sees)
    lanes, roles = await queues.ids(conn, org_id), roles_in(sees)
    before = await deployed(conn, org_id, dag["version_id"])
    after = await deployed(conn, org_id, target["id"])
    jobs, hashes = _meanings(after, lanes), {each: job.config_hash for each, job in after.items()}
    settings = {each: job.settings for each, job in after.items()}
    # Whatever comes back was there before, and goes on where it was.
    job_plans = plan_jobs(jobs, hashes, settings, before, frozenset(hashes.items()), ())
    outputs = await conn.fetch(SQL.outputs_of_version, org_id, target["id"], roles)
    was = await conn.fetch(SQL.outputs_of_version, org_id, dag["version_id"], roles)
    moved = [row for row in outputs if row["is_seen"] and row["version"] != row["current"]]
    readers = await conn.fetch(SQL.readers, org_id, [row["name"] for row in moved], name, roles)
    busy = {row["name"] for row in await conn.fetch(SQL.jobs_with_work, org_id, target["id"])}
    behind = _behind(jobs, {each.name for each in job_plans if each.resumed}, busy)
    return DeployPlan(
        dag=name,
        changes=changes,
        version=target["number"],
        base=dag["version"],
        replaces=dag["building"] if changes else None,
        at_once=True,
        jobs=job_plans,
        datasets=tuple(_dataset_plans(outputs, was)),
        inputs=await _inputs(conn, org_id, jobs, roles),
        touched=tuple(Touched(**row) for row in readers),
        warnings=(
            *await absent(conn, org_id, jobs, lanes),
            *(_older(row, jobs[row["job"]]) for row in moved if row["job"] in behind and _is_newer(row)),
        ),
    )


def _meanings(after: Mapping[str, Deployed], lanes: Mapping[str, int]) -> dict[str, JobMeaning]:
    """Return what jobs mean that have been deployed, as far as the database tells it."""
    queue_names = {queue_id: queue for queue, queue_id in lanes.items()}
    producers = {dataset: name for name, job in after.items() for dataset in job.document["outputs"]}
    found = {}
    for name, job in after.items():
        upstream = tuple(dict.fromkeys(producers[each] for each in job.document["inputs"] if each in producers))
        settings = {**job.settings, "queue": queue_names.get(job.settings["queue_id"])}
        found[name] = JobMeaning(name, job.document, settings, job.config_hash, upstream, resets=False)
    return found


def _dataset_plans(outputs: Sequence[Record], was: Sequence[Record]) -> Iterator[DatasetPlan]:
    """Yield what becomes of each dataset that may be seen: which version readers get, in the place of which."""
    written = {row["name"] for row in outputs}
    for row in outputs:
        if row["is_seen"]:
            yield DatasetPlan(row["name"], "reused", row["job"], row["version"], row["current"])
    for row in was:
        if row["is_seen"] and row["name"] not in written:
            yield DatasetPlan(row["name"], "left", row["job"], row["current"], row["current"])


async def _inputs(
    conn: type_Connection, org_id: int, jobs: Mapping[str, JobMeaning], roles: list[str] | None
) -> tuple[InputPlan, ...]:
    """Return the inputs from outside of the DAG that may be seen."""
    own = {dataset for job in jobs.values() for dataset in job.outputs}
    wanted = [(name, dataset) for name, job in jobs.items() for dataset in job.inputs if dataset not in own]
    rows = await conn.fetch(SQL.datasets, org_id, sorted({dataset for _, dataset in wanted}), roles)
    by = {
        row["name"]: None if row["producer_dag"] is None else str(Producer(row["producer_dag"], row["producer_node"]))
        for row in rows
        if row["is_seen"]
    }
    return tuple(InputPlan(dataset, name, by[dataset]) for name, dataset in wanted if dataset in by)


def _behind(jobs: Mapping[str, JobMeaning], returning: Collection[str], busy: Collection[str]) -> set[str]:
    """Return which jobs that come back have something to take up: sources, which nobody knows better, and all after."""
    readers = defaultdict[str, list[str]](list)
    for name in returning:
        for each in jobs[name].upstream:
            readers[each].append(name)
    open_ = [name for name in returning if name in busy or jobs[name].activation == "source"]
    found = set(open_)
    while open_:
        following = [each for each in readers[open_.pop()] if each not in found]
        found.update(following)
        open_ += following
    return found


def _is_newer(row: Record) -> bool:
    """Whether what readers see now of a dataset was written later than what they would see."""
    then, now = row["written_at"], row["current_written_at"]
    return now is not None and (then is None or then < now)


def _older(row: Record, job: JobMeaning) -> str:
    """Return the warning that readers of a dataset will see older rows, and what becomes of the newer ones."""
    name, then = row["name"], row["written_at"]
    last = "never written" if then is None else f"last written at {_at(then)}"
    now = f"{name}@{row['current']}, which readers see now, at {_at(row['current_written_at'])}"
    rows = "no rows" if then is None else "the older rows"
    return f"{name}@{row['version']} was {last}, and {now}: they see {rows}{_until(job)}"


def _until(job: JobMeaning) -> str:
    """Return how long they do so; what came to some sources meanwhile does not come again."""
    source = job.document["source"] or {}
    match source.get("kind"), (job.settings.get("source") or {}).get("catch_up"):
        case ("table", _):
            return f", and what came to {job.name}, a source of rows, meanwhile does not come again"
        case ("cron" | "interval", CatchUp.NONE):
            return f", and what came to {job.name}, a source of ticks, meanwhile does not come again"
        case ("cron" | "interval", CatchUp.LATEST | None):
            return f", and of the ticks meanwhile {job.name} makes up for the latest alone"
        case _:
            return f" until {job.name} has caught up"


def _at(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
