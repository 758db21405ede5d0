"""What operators that come with Weft work with: walls around SQL, and a way out that leads to public addresses only."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput
from weft.core.settings import Settings, environment

if TYPE_CHECKING:
    import httpx

    from weft.data.queries import Queries
    from weft.data.query_process import QueryProcess

# What holds of all settings where operators run in a process of their own.
_COUNTS = ("query_memory", "query_rows", "query_concurrency", "value_limit")
_WORDS = ("fetch_allowed", "dag_secrets")


def settings_to_tell(settings: Settings) -> dict[str, Any]:
    """Return the settings that operators go by, as another process is told them; there are no secrets among them."""
    told: dict[str, Any] = {name: getattr(settings, name) for name in (*_COUNTS, *_WORDS)}
    return told | {"query_timeout": settings.query_timeout.total_seconds()}


def told_settings(told: dict[str, Any]) -> Settings:
    """Return the settings that another process has told."""
    said: dict[str, Any] = {name: tuple(told[name]) for name in _WORDS} | {name: told[name] for name in _COUNTS}
    return Settings(**said, query_timeout=timedelta(seconds=told["query_timeout"]))


class Workshop:
    """What the operators of a worker share; nothing of it is started before it is needed.

    One that is not ``is_lasting`` is cleared when the operator that used it has ended.
    """

    def __init__(self, settings: Settings, *, is_lasting: bool = True) -> None:
        self.settings = settings
        self._is_lasting = is_lasting
        self._queries: Queries | None = None
        self._http: httpx.AsyncClient | None = None

    async def queries(self) -> QueryProcess:
        """Return what runs SQL and functions behind walls."""
        if self._queries is None:
            from weft.data.queries import Queries

            self._queries = Queries(self.settings)
        return await self._queries.process()

    def http(self) -> httpx.AsyncClient:
        """Return what fetches from public addresses, and from those that are allowed."""
        if self._http is None:
            from weft.worker.operators.fetching import guarded_client

            self._http = guarded_client(self.settings.fetch_allowed)
        return self._http

    def secret(self, name: str, field: str) -> str:
        """Return an environment variable that a DAG names; raises `InvalidInput` unless it may, and it is there."""
        if name not in self.settings.dag_secrets:
            raise InvalidInput(
                field, f"{name} is not among the variables that DAGs may name; WEFT_DAG_SECRETS has them"
            )
        if not (value := environment().get(name)):
            raise InvalidInput(field, f"{name} is not set where this worker runs")
        return value

    async def put_away(self) -> None:
        """Clear it when an operator has ended, unless others use it too."""
        if not self._is_lasting:
            await self.close()

    async def close(self) -> None:
        """End everything that was started."""
        queries, http, self._queries, self._http = self._queries, self._http, None, None
        if queries is not None:
            await queries.close()
        if http is not None:
            await http.aclose()
