"""Runs an attempt of a task with a cache: it takes an output that is there, or makes one that others may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.json import referenced_blob
from weft.queue.cache import Reuse
from weft.queue.work import Completed
from weft.worker.caching import keys_of

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt, Outcome
    from weft.worker.caching import Caching


async def run_cached(attempt: Attempt, params: str, caching: Caching) -> Outcome:
    """Return the outcome of an attempt: with an output that serves, else as its handler makes it."""
    claim, env = attempt.claim, attempt.env
    if (digest := referenced_blob(params)) is not None:
        params = (await env.blobs_of(claim).get(digest)).decode()
    keys = keys_of(claim.handler, attempt.handler.code_version, params)
    if (found := await env.cache.find(claim, keys, caching)) is not None:
        return Completed(claim.id, claim.attempt, *found)
    outcome = await attempt.run_apart(params)
    # What an output owes to a dataset that is not there is not known to whoever makes that later.
    if not isinstance(outcome, Completed) or attempt.has_missed:
        return outcome
    return outcome._replace(reuse=Reuse(keys.key, caching.lasts, most=env.settings.cache_max_output))
