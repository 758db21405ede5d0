"""The app: all routes, the walls around them, and what is opened and closed with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from weft.contract.table import OPERATIONS
from weft.core.settings import Settings
from weft.core.tracing import tracer
from weft.sdk.client import Client
from weft.server import problems
from weft.server.credentials import HOOKS, AskForCredentials
from weft.server.document import document
from weft.server.endpoints import add_operation
from weft.server.headers import AddHeaders
from weft.server.heads import AnswerHeads
from weft.server.limits import LimitBodies
from weft.server.paths import KeepSlashes, keep_apart
from weft.server.routes import (
    additions,
    attempt,
    blob,
    definitions,
    graphs,
    hooks,
    installation,
    me,
    query,
    results,
    rows,
    sessions,
    streams,
    task,
    task_datasets,
    task_live,
    worker,
)
from weft.server.spans import Traced
from weft.server.state import State
from weft.server.traffic import Noted, Traffic
from weft.version import __version__


@cache
def _routes() -> list[BaseRoute]:
    """Return the routes of all operations, which are the same for every app of a process."""
    router = APIRouter()
    # Before what may stand for any name.
    for routes in (streams, definitions, results, graphs, query, rows):
        router.include_router(routes.router)
    for operation in OPERATIONS:
        add_operation(router, operation)
    for each in (installation, hooks, me, sessions, worker, task, attempt, additions, blob, task_datasets, task_live):
        router.include_router(each.router)
    keep_apart(router.routes)
    return router.routes


def make_app(settings: Settings) -> FastAPI:
    """Return the app of a server; it reaches the database when it starts and leaves it when it stops."""
    traffic = Traffic()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Client(settings=settings) as client:
            app.state.weft = state = State(client, traffic)
            try:
                yield
            finally:
                await state.close()
                await state.live.stop()

    app = FastAPI(
        title="Weft",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.router.routes.extend(_routes())
    problems.install(app)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    app.add_middleware(AnswerHeads)
    app.add_middleware(AskForCredentials)  # the paths that it sees are those by which routes are found
    app.add_middleware(KeepSlashes)
    app.add_middleware(
        LimitBodies, limit=settings.server_body_limit, patience=settings.server_read_timeout.total_seconds(),
        others={
            blob.PATH: (settings.value_limit, "WEFT_VALUE_LIMIT"), HOOKS: (settings.inline_limit, "WEFT_INLINE_LIMIT"),
        },
    )  # fmt: skip
    if (spans := tracer()) is not None:
        app.add_middleware(Traced, tracer=spans)
    app.add_middleware(AddHeaders)
    app.add_middleware(Noted, traffic=traffic)
    return app
