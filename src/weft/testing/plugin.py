"""The pytest plugin: fixtures for a database of a test's own, and for executing workflows in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from weft.jobs.model import Job
    from weft.testing.database import ScratchDatabase, ScratchServer
    from weft.testing.runner import Runner


@pytest.fixture(scope="session")
def weft_server() -> Iterator[ScratchServer]:
    """The PostgreSQL of this run: an embedded one of its own, or the one of ``WEFT_TEST_DATABASE_URL``."""
    from weft.testing.database import ScratchServer

    server = ScratchServer(os.environ.get("WEFT_TEST_DATABASE_URL"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def weft_db(weft_server: ScratchServer) -> Iterator[ScratchDatabase]:
    """A migrated, empty database of the test's own."""
    database = weft_server.take()
    yield database
    weft_server.give_back(database)


@pytest.fixture
def weft_runner(weft_db: ScratchDatabase) -> Iterator[Runner]:
    """A worker and an orchestrator with the handlers of the program, and the clock by which they go."""
    from weft.testing.runner import Runner

    runner = Runner(weft_db).start()
    yield runner
    runner.stop()


@pytest.fixture
def weft_job(weft_db: ScratchDatabase) -> Callable[..., Job]:
    """Executes a workflow to its end and returns its job: ``weft_job(workflow, inputs, handlers={…})``.

    Time does not pass: whenever all wait for it, it moves on.
    """
    from weft.testing.runner import Runner

    def execute(
        workflow: Any, inputs: Mapping[str, Any] | None = None, *,
        handlers: Mapping[str, Callable[..., Any]] | None = None, **settings: Any,
    ) -> Job:  # fmt: skip
        runner = Runner(weft_db, handlers=handlers, **settings).start()
        try:
            return runner.call(runner.run_now(workflow, inputs))
        finally:
            runner.stop()

    return execute
