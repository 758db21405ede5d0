"""Shows jobs to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.cli.output import as_record, moment_text, print_facts, print_json, print_table, remark, span, state, when
from weft.core.error_lines import error_line

if TYPE_CHECKING:
    from weft.jobs.model import Job, JobNode, JobSummary

_COLUMNS = ("ID", "STATE", "WORKFLOW~", "CREATED", "TIME", "BY~")


def print_jobs(jobs: Sequence[JobSummary], limit: int, *, oldest: bool, as_json: bool) -> None:
    """Print a page of jobs, and how to get the next."""
    following = jobs[-1].id if len(jobs) == limit else None
    if as_json:
        key = None if following is None else str(following)
        print_json({"jobs": [as_record(job) for job in jobs], "next_after" if oldest else "next_before": key})
        return
    print_table(_COLUMNS, map(_row, jobs), empty="no jobs")
    if following is not None:
        remark(f"more with {'--after' if oldest else '--before'} {following}", lead="")


def _row(job: JobSummary) -> tuple[Any, ...]:
    return job.id, state(job.state, job.reason), job.workflow_id, when(job.created_at), time_of(job), job.actor


def time_of(job: JobSummary) -> str:
    """Return how long a job took, or has been running for."""
    if job.ended_at is not None and job.started_at is not None:
        return f"took {span(job.ended_at - job.started_at)}"
    return f"since {when(job.started_at).removesuffix(' ago')}" if job.started_at is not None else ""


def shown_nodes(job: JobSummary, nodes: Sequence[JobNode]) -> list[JobNode]:
    """Return the nodes that people are told of.

    The end of a job that fails is reached as well; nobody wants to read that it was completed.
    """
    is_lost = job.state in ("cancelling", "failed", "cancelled")
    return [node for node in nodes if not (is_lost and node.handler == "@end")]


def print_job(job: Job, nodes: Sequence[JobNode]) -> None:
    """Print a job with its nodes."""
    print_facts(
        {
            "job": job.id,
            "workflow": job.workflow_id,
            "version": None if job.version_hash is None else f"{job.version_hash[:12]} ({job.base_ref})",
            "state": state(job.state, job.reason),
            "created": moment_text(job.created_at),
            "started": moment_text(job.started_at),
            "ended": moment_text(job.ended_at),
            "by": job.actor,
            "labels": " ".join(f"{name}={value}" for name, value in job.labels.items()) or None,
            "patched": f"by {len(job.patch)} operations, for this job only" if job.patch else None,
            "callback": job.callback_url,
            "again": None if job.rerun_of is None else f"what job {job.rerun_of} was",
        }
    )
    print()
    print_table(
        ("NODE~", "STATE", "TRIES>", "TIME", "ERROR~"), map(node_row, shown_nodes(job, nodes)), empty="no nodes"
    )


def node_row(node: JobNode) -> tuple[Any, ...]:
    """Return a node as a line of a table."""
    took = span(node.ended_at - node.claimed_at) if node.ended_at is not None and node.claimed_at is not None else ""
    return node.node, state(node.state, _reason(node)), node.attempt or "", progress_of(node) or took, error_of(node)


def _reason(node: JobNode) -> str | None:
    return node.reason if node.kept_id is None else f"{node.reason} from task {node.kept_id}"


def progress_of(node: JobNode) -> str:
    """Return of a fan_out how many of its items have ended."""
    if not node.items:
        return ""
    ended = sum(count for name, count in node.items.items() if name in ("completed", "failed", "dead", "skipped"))
    return f"{ended:,} of {sum(node.items.values()):,} items"


def error_of(node: JobNode) -> str:
    """Return what ended a node without success, in one line."""
    return error_line(node.error) if node.error else ""
