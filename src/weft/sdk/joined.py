"""Calls the public SQL functions inside a transaction of the caller's, whichever driver its connection is of."""

from __future__ import annotations

from typing import Any

from weft.core.checks import check_key, check_word
from weft.core.json import encode
from weft.core.states import OutboxKind
from weft.db.foreign import Row, fetch_row
from weft.queue.enqueue import Draft, translated
from weft.queue.model import TaskHandle

_ENQUEUE = "text json text int text timestamptz interval int json interval interval text text text".split()
_ADD_EFFECT = "text json text text text".split()


async def enqueue_on(connection: Any, draft: Draft, org: str, actor: str | None) -> TaskHandle:
    """Enqueue in the transaction of ``connection``."""
    row = await _call(connection, "weft.enqueue", _ENQUEUE, draft.arguments(org, actor), draft.form.queue)
    return TaskHandle(row[0], row[1])


async def add_effect(
    connection: Any, kind: str, payload: Any, ordering_key: str | None, org: str, actor: str | None
) -> int:
    """Add an effect to the outbox in the transaction of ``connection``; return its id."""
    word = str(check_word(kind, "kind", OutboxKind))
    key = None if ordering_key is None else check_key(ordering_key, "ordering_key")
    arguments = (word, encode(payload, "payload"), key, org, actor)
    queue = str(payload.get("queue") or "default") if isinstance(payload, dict) else ""
    return int((await _call(connection, "weft.add_effect", _ADD_EFFECT, arguments, queue))[0])


async def _call(connection: Any, function: str, types: list[str], arguments: tuple[Any, ...], queue: str) -> Row:
    try:
        answer = fetch_row(connection, function, tuple(zip(arguments, types, strict=True)))
        return answer if isinstance(answer, tuple) else await answer
    except Exception as problem:
        raise translated(getattr(problem, "orig", problem), queue) from problem
