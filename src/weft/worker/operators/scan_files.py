"""Looks for files that have arrived, one slice after the other; each that has settled becomes a unit of the job."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.data.own_thread import in_own_thread
from weft.flow.durations import seconds_of
from weft.flow.globs import split_pattern
from weft.live.staging import LONGEST_KEY
from weft.worker.operators.bucket_listing import leads_elsewhere
from weft.worker.operators.file_places import FilePlace, FoundFile, place_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.worker.live import LiveContext

# So many files are looked at in a slice, so many of them compared at once, and so many changes are made of them.
_LOOKED, _COMPARED, _CHANGES = 200_000, 2000, 6000
_STATE = "files"
_IN_ORDER = "files"


class _Said(NamedTuple):
    """What the source says."""

    place: FilePlace
    poll: float
    settle: float
    order: str | None


class _Slice(NamedTuple):
    """What came of a slice: where the next goes on, and whether a file has not settled yet."""

    after: str
    is_waiting: bool


async def run(live: LiveContext) -> None:
    """Look at the next files; when all were looked at, rest."""
    said = _said(live)
    state = await live.state(_STATE) or {"after": "", "is_waiting": False}
    made = await in_own_thread(_look, live, said, state["after"])
    is_waiting = state["is_waiting"] or made.is_waiting
    is_over = made.after == ""
    await live.set_state({"after": made.after, "is_waiting": is_waiting and not is_over}, _STATE)
    if not is_over:
        await live.rest(0)
    elif is_waiting:
        await live.rest(min(said.poll, said.settle))
    else:
        await live.caught_up()
        await live.rest(said.poll)


def _said(live: LiveContext) -> _Said:
    source: Mapping[str, Any] = live.source
    path, pattern = split_pattern(source["path"])
    place = place_at(path, pattern or source.get("pattern") or "*", live.workshop.settings.files_roots)
    settle = 0.0 if place.is_whole_at_once else _seconds(source, "settle", 2.0)
    return _Said(place, _seconds(source, "poll", 5.0), settle, source.get("order"))


def _seconds(source: Mapping[str, Any], name: str, usual: float) -> float:
    value = source.get(name)
    return usual if value is None else 0.0 if value in (0, "0") else seconds_of(value)


def _look(live: LiveContext, said: _Said, after: str) -> _Slice:
    notes, units, is_waiting = list[dict[str, Any]](), list[FoundFile](), False
    for part, until in said.place.look(after, _LOOKED, _COMPARED):
        live.task.heartbeat()
        found = live.compare_files([(file.path, file.tag) for file in part], said.settle, after, until)
        for each in found["changed"]:
            file = part[each["place"]]
            is_settled = said.settle == 0 or bool(each["is_settled"])
            is_waiting = is_waiting or not is_settled
            if each["is_new"] or is_settled:
                notes.append({"path": file.path, "tag": file.tag, "is_emitted": is_settled})
            if is_settled and leads_elsewhere(file.path):
                live.task.logger.warning("passed over: %r has a part of dots", said.place.address(file.path))
            elif is_settled and (file.size > 0 or said.place.is_there(file)):
                units.append(file)
        notes += [{"path": path, "tag": None} for path in found["gone"]]
        after = until or ""
        if len(notes) >= _CHANGES:
            break
    live.note_files(notes, [_unit(said, file) for file in _in_order(said, units)])
    return _Slice(after, is_waiting)


def _in_order(said: _Said, units: list[FoundFile]) -> list[FoundFile]:
    return sorted(units, key=lambda file: (file.mtime, file.path)) if said.order == "mtime" else units


def _unit(said: _Said, file: FoundFile) -> dict[str, Any]:
    told = {"path": said.place.address(file.path), "size": file.size, "mtime": file.mtime.isoformat()}
    return {
        "key": _short(f"{file.path}#{file.tag}"), "lane": _IN_ORDER if said.order else _short(file.path), "said": told,
    }  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_KEY else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
