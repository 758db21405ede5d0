"""The part of the client that deploys live DAGs, and goes back to what was deployed before."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import check_number, check_span
from weft.core.errors import InvalidInput, WaitTimeout
from weft.core.json import Json, plain
from weft.flow.document import Document
from weft.flow.live.model import DagDefinition
from weft.flow.live.validation import CheckedDag, check_dag
from weft.flow.patches import same
from weft.flow.reading import read_file, read_text
from weft.flow.structure import is_dag
from weft.history.contents import packing
from weft.history.reading import Reader
from weft.live import dag_versions, deploying, looking, rollbacks
from weft.live.dag_versions import DagVersion
from weft.live.deploying import Wanted
from weft.live.looking import LiveDag
from weft.live.plans import DeployPlan
from weft.sdk.live_sql import require_readable
from weft.sdk.workflow_calls import check_message

if TYPE_CHECKING:
    from weft.sdk.client import Client

Definition = Path | str | bytes | Mapping[str, Json] | DagDefinition
# How often somebody who waits looks how far it is.
_LOOK_EVERY = 0.25


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Which version of a live DAG is in effect now, and which was before; the same when nothing was to be done."""

    dag: str
    version: int
    was: int | None


class LiveDeploys:
    """What brings versions of live DAGs into effect."""

    def __init__(self, session: Client) -> None:
        self._session = session

    async def plan(self, definition: Definition) -> DeployPlan:
        """Return what a deploy of a document would do; nothing is changed.

        Example::

            plan = await client.live.plan(Path("market.yaml"))
            print([(job.name, job.action) for job in plan.jobs])
        """
        wanted, _, _ = await self._wanted(definition)
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: deploying.plan(conn, org_id, wanted))

    async def deploy(
        self, definition: Definition, *, message: str | None = None, seen: int | None = None
    ) -> DeployPlan:
        """Deploy a live DAG: jobs that mean what they did go on, others are built beside what is in effect.

        When these have caught up, all datasets of the version become current at once; the first version of a DAG is in
        effect with its deploy. ``seen`` is the number of the last version that you know of, 0 for none. Returns what
        was done; nothing is, when nothing would change. Raises `InvalidDefinition`, and `DeployConflict` when another
        has deployed meanwhile. Example::

            done = await client.live.deploy(Path("market.yaml"), message="five minutes, not one")
            await client.live.wait(done.dag, done.version, timeout=600)
        """
        said = check_message(message)
        if seen is not None:
            check_number(seen, "seen", 0, 2**31 - 1)
        wanted, document, last = await self._wanted(definition)
        reader, org_id = await self._reader(), await self._session.org_id()
        text = orjson.dumps(document.data)
        content = await reader.pack(text, packing(text, self._session.settings))
        known = last if seen is None else seen
        return await self._session.database.run(
            lambda conn: deploying.deploy(conn, org_id, wanted, None if wanted.is_same else content, known, said)
        )

    async def _anew(self, dag: str, job: str, *, dry_run: bool) -> DeployPlan:
        """Build what is in effect of a DAG beside it once more, with one job and all after it anew."""
        org_id = await self._session.org_id()
        _, artifact_id, _ = await self._session.database.read(lambda conn: deploying.last_version(conn, org_id, dag))
        if artifact_id is None:
            await self._session.database.read(lambda conn: looking.require_dag(conn, org_id, dag))
            raise InvalidInput("dag", f"no version of {dag} is in effect: deploy one")
        reader = await self._reader()
        data = await reader.document(await reader.of(artifact_id))
        wanted, _, seen = await self._wanted(data)
        if job not in wanted.checked.jobs:
            await self._session.database.read(lambda conn: looking.find_job(conn, org_id, dag, job))
            raise InvalidInput("job", f"{job} is not in the version of {dag} that is in effect")
        again = Wanted(wanted.checked, wanted.actor, wanted.sees, is_same=True, anew=(job,))
        if dry_run:
            return await self._session.database.read(lambda conn: deploying.plan(conn, org_id, again))
        return await self._session.database.run(
            lambda conn: deploying.deploy(conn, org_id, again, None, seen, f"{job} anew")
        )

    async def plan_rollback(self, dag: str, *, version: int | None = None) -> DeployPlan:
        """Return what a rollback would do; nothing is changed.

        Raises what the rollback would. Example::

            plan = await client.live.plan_rollback("market", version=3)
            print([(each.name, each.current, each.version) for each in plan.datasets])
        """
        org_id, sees = await self._session.org_id(), self._session.sees
        return await self._session.database.read(lambda conn: rollbacks.plan(conn, org_id, dag, version, sees=sees))

    async def rollback(self, dag: str, *, version: int | None = None, message: str | None = None) -> RolledBack:
        """Bring an earlier version into effect at once: the one before, or that of a number.

        Its jobs go on where they were, and take up what came meanwhile. Nothing is lost: the version that was in effect
        can be gone back to in the same way. Example::

            await client.live.rollback("market")
        """
        org_id, actor, said = await self._session.org_id(), self._session.actor, check_message(message)
        sees = self._session.sees
        now, was = await self._session.database.run(
            lambda conn: dag_versions.roll_back(conn, org_id, dag, version, actor, said, sees=sees)
        )
        return RolledBack(dag, now, was)

    async def abandon(self, dag: str) -> int:
        """Give up the version that is being built; return its number. What is in effect goes on.

        Example::

            await client.live.abandon("market")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(lambda conn: dag_versions.abandon(conn, org_id, dag, actor))

    async def drain(self, dag: str) -> None:
        """Let all jobs of a DAG end what they are at, and stop; its datasets stay as they are.

        A deploy or a rollback brings it back. Example::

            await client.live.drain("market")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: dag_versions.drain(conn, org_id, dag, actor))

    async def history(self, dag: str, *, before: int | None = None, limit: int = 100) -> builtins.list[DagVersion]:
        """Return the versions of a DAG that are kept, newest first; ``before`` is the last number of the page before.

        Example::

            for each in await client.live.history("market"):
                print(each.number, each.state, each.actor, each.message)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: dag_versions.list_versions(conn, org_id, dag, before=before, limit=limit)
        )

    if TYPE_CHECKING:

        async def show(self, dag: str) -> LiveDag:
            """Return a live DAG, as `Live` does."""

    async def wait(
        self, dag: str, version: int, timeout: float | timedelta | None = None,
        on_look: Callable[[LiveDag], None] | None = None,
    ) -> LiveDag:  # fmt: skip
        """Return a DAG when a version is in effect; raises `WaitTimeout`, and `InvalidInput` when it was given up.

        ``on_look`` is called with how far the DAG is, again and again. Example::

            await client.live.wait("market", 4, timeout=600)
        """
        span = None if timeout is None else check_span(timeout, "timeout", zero=True).total_seconds()
        clock = asyncio.get_running_loop()
        until = None if span is None else clock.time() + span
        while True:
            found = await self.show(dag)
            if on_look is not None:
                on_look(found)
            if found.version == version:
                return found
            if found.building != version:
                raise InvalidInput("version", f"version {version} of {dag} is neither in effect nor being built")
            if until is not None and span is not None and clock.time() >= until:
                raise WaitTimeout(found.id, span)
            await asyncio.sleep(_LOOK_EVERY)

    async def _reader(self) -> Reader:
        return Reader(self._session.database, await self._session.org_id(), lambda: self._session.blobs)

    async def _wanted(self, definition: Definition) -> tuple[Wanted, Document, int]:
        """Return what is to be deployed, its document, and the number of the last version that there is."""
        document = dag_document(definition)
        checked: CheckedDag = check_dag(document)
        name, org_id = checked.sound.dag, await self._session.org_id()
        seen, artifact_id, built_id = await self._session.database.read(
            lambda conn: deploying.last_version(conn, org_id, name)
        )
        is_same, is_built = await self._is(artifact_id, document), await self._is(built_id, document)
        if not is_same and not is_built:
            await require_readable(self._session.queries, checked)
        return Wanted(checked, self._session.actor, self._session.sees, is_same, is_built), document, seen

    async def _is(self, artifact_id: int | None, document: Document) -> bool:
        if artifact_id is None:
            return False
        reader = await self._reader()
        return same(await reader.document(await reader.of(artifact_id)), document.data)


def dag_document(definition: Definition | Any) -> Document:
    """Return the document of a live DAG in any of its forms; raises `InvalidDefinition` when it cannot be read."""
    if isinstance(definition, DagDefinition):
        return Document(definition.model_dump(by_alias=True, exclude_unset=True, mode="json"))
    if isinstance(definition, Path):
        document = read_file(definition)
    elif isinstance(definition, (str, bytes)):
        document = read_text(definition)
    elif isinstance(definition, Mapping):
        document = Document(plain(dict(definition), "definition"))
    else:
        raise InvalidInput("definition", f"must be a file, a text or a mapping, not {type(definition).__name__}")
    if isinstance(document.data, dict) and "nodes" in document.data and not is_dag(document.data):
        what = "this is a workflow, and no live DAG: `weft workflows push` keeps it, and `weft run` executes it"
        raise InvalidInput("definition", what)
    return document
