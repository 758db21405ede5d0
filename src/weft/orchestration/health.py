"""Whether everything that jobs need is there, and where logs are."""

from __future__ import annotations

from weft.core.errors import WeftError
from weft.core.settings import Settings
from weft.jobs.adding import SQL
from weft.orchestration.context import borrowed_client
from weft.sdk.client import Client
from weft.worker.logs import log_dir


async def health_check() -> bool:
    """Return whether the database answers, a worker is there, and no task is held by one that is gone.

    Example::

        assert await health_check()
    """
    try:
        async with borrowed_client() as client:
            return all((await check_health(client)).values())
    except WeftError:
        return False


async def check_health(client: Client) -> dict[str, bool]:
    """Return the parts of `health_check`, by name."""
    org_id = await client.org_id()
    row = await client.database.read(lambda conn: conn.fetchrow(SQL.health, org_id))
    assert row is not None
    return {"database": True, "workers": row["has_workers"], "stale_tasks": not row["has_stale_tasks"]}


def get_logs_dir() -> str:
    """Return the folder of the logs of tasks: ``WEFT_LOG_DIR``, else one below the home.

    It is made when it is not there. Example::

        print(get_logs_dir())
    """
    folder = log_dir(Settings.load())
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)
