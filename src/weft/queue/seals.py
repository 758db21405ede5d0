"""The seals of the audit: a chain over acts, by which it is evident when one was changed or taken away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.queue", "sql/seal.sql")
BATCH = 10_000
_PAGE = 10


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that is not as it was sealed; ``subject_id`` is the id of an act or the number of a seal.

    An act was ``changed``, is ``missing``, or was ``added`` to what was sealed; a seal is ``broken``; the head that was
    noted, or what came before the first seal, is ``lost``.
    """

    code: str
    subject_id: int
    what: str


@dataclass(frozen=True, slots=True)
class AuditSeals:
    """What the seals of an org's audit say: nothing was tampered with when there are no ``findings``.

    Acts are sealed within a minute while a worker runs; ``unsealed`` are those that no seal holds yet. ``head`` names
    the last seal: whoever noted it elsewhere can tell later that all before it is still what it was.
    """

    is_sound: bool
    sealed: int
    unsealed: int
    unsealed_since: datetime | None
    head: str | None
    findings: tuple[AuditFinding, ...]


async def seal(conn: type_Connection) -> int:
    """Seal what was done since the last time, a batch for each org; return how many acts."""
    return int(await conn.fetchval(SQL.seal, BATCH))


async def prune(conn: type_Connection, older_than: timedelta) -> int:
    """Forget the seals of acts of long ago; return how many."""
    return len(await conn.fetch(SQL.prune, older_than))


async def verify(conn: type_Connection, org_id: int, retention: timedelta, expected: str | None = None) -> AuditSeals:
    """Compare all acts of an org with their seals, and the seals with each other.

    What is past the ``retention`` may be gone. ``expected`` is a head that was noted before.
    """
    findings: list[AuditFinding] = []
    heads: set[str] = set()
    first: Record | None = None
    last: Record | None = None
    sealed, oldest = 0, await conn.fetchval(SQL.oldest_kept, retention)
    while rows := await conn.fetch(SQL.page, org_id, 0 if last is None else last["number"], _PAGE):
        for row in rows:
            if first is None:
                first = row
                findings += _beginning(row, oldest)
            findings += _links(row, last)
            now = {found["id"]: found["hash"] for found in await conn.fetch(SQL.hashes_now, org_id, row["ids"])}
            findings += _acts(row, now, oldest)
            sealed, last = sealed + len(now), row
            heads.add(_head(row))
    if expected is not None and expected not in heads:
        findings.append(AuditFinding("lost", int(expected.partition(":")[0]), _lost(expected, first)))
    open_ = await conn.fetchrow(SQL.unsealed, org_id, oldest, 0 if last is None else last["done_to"])
    assert open_ is not None
    findings += [_added(id) for id in open_["late"] if id >= oldest]
    head = None if last is None else _head(last)
    return AuditSeals(not findings, sealed, open_["count"], open_["oldest_at"], head, tuple(findings))


def _beginning(row: Record, oldest: int) -> list[AuditFinding]:
    """Tell what is wrong with the first seal that there is: those before it may be gone once their time is over."""
    number = row["number"]
    if number == 1 and not row["follows_on_nothing"]:
        return [AuditFinding("broken", number, "seal 1 follows on another, and is the first")]
    if number > 1 and row["before_id"] >= oldest:
        what = "were taken away before the retention was over, unless that was shorter until lately"
        return [AuditFinding("lost", number, f"the seals before {number} {what}")]
    return []


def _lost(expected: str, first: Record | None) -> str:
    if first is not None and int(expected.partition(":")[0]) < first["number"]:
        return f"there is no seal {expected} any more: it is past the retention or was taken away; note a newer head"
    return f"there is no seal {expected} any more"


def _links(row: Record, before: Record | None) -> list[AuditFinding]:
    number = row["number"]
    if row["digest_now"] != row["digest"]:
        return [AuditFinding("broken", number, f"seal {number} is not what it was when it was made")]
    if before is not None and (before["number"] + 1, before["digest"]) != (number, row["before"]):
        return [AuditFinding("broken", number, f"seal {number} does not follow on the one before it")]
    if before is not None and row["done_to"] < before["done_to"]:
        return [AuditFinding("broken", number, f"seal {number} leaves open what the one before it has closed")]
    return [_added(id) for id in row["ids"] if before is not None and id < before["done_to"]]


def _added(id: int) -> AuditFinding:
    return AuditFinding("added", id, f"act {id} is of a time whose acts were sealed before: it came later")


def _acts(row: Record, now: Mapping[int, bytes], oldest: int) -> list[AuditFinding]:
    found = []
    for id, hash in zip(row["ids"], row["hashes"], strict=True):
        if id not in now and id >= oldest:
            found.append(AuditFinding("missing", id, f"act {id} was taken away after it was sealed"))
        elif id in now and now[id] != hash:
            found.append(AuditFinding("changed", id, f"act {id} was changed after it was sealed"))
    return found


def _head(row: Record) -> str:
    return f"{row['number']}:{row['digest'].hex()}"
