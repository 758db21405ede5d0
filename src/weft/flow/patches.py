"""Patches of definitions: JSON Patch (RFC 6902), applied whole or not at all, and made from two documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import jsonpatch
import jsonpointer
import orjson

from weft.core.errors import InvalidInput
from weft.core.json import Json, decode, encode, size_of
from weft.core.suggestions import did_you_mean
from weft.flow.identity import canonical_json
from weft.flow.problems import Path, dotted, path_in

MAX_OPS = 10_000
MAX_BYTES = 1024 * 1024
# With white space and escapes a file of such a patch may be several times as long.
MAX_FILE_BYTES = 8 * MAX_BYTES
# So much may one patch copy: what is copied into itself doubles each time.
MAX_COPIED = 4 * 1024 * 1024
_KINDS = ("add", "remove", "replace", "move", "copy", "test")

Op = dict[str, Json]


def check_ops(ops: object) -> list[Op]:
    """Return operations that have the form of a JSON Patch; raises `InvalidInput` that names the one that has not."""
    if not isinstance(ops, list) or not ops:
        raise InvalidInput("ops", "must be a list of at least one operation, as in RFC 6902")
    if len(ops) > MAX_OPS:
        raise InvalidInput("ops", f"has {len(ops):,} operations, and may have {MAX_OPS:,}")
    for place, op in enumerate(ops):
        _check_op(op, f"ops[{place}]")
    text = encode(ops, "ops")
    if (size := size_of(text)) > MAX_BYTES:
        raise InvalidInput("ops", f"has {size:,} bytes, and may have {MAX_BYTES:,}: push a new version instead")
    return list(decode(text))


def _check_op(op: object, field: str) -> None:
    if not isinstance(op, dict):
        raise InvalidInput(field, f"must be a mapping with op and path, not {type(op).__name__}")
    kind = op.get("op")
    if kind not in _KINDS:
        raise InvalidInput(
            f"{field}.op", f"must be one of {', '.join(_KINDS)}, not {kind!r}.{did_you_mean(str(kind), _KINDS)}"
        )
    needed = {"path", "from"} if kind in ("move", "copy") else {"path"}
    for name in sorted(needed):
        if not isinstance(op.get(name), str) or (op[name] and not op[name].startswith("/")):
            raise InvalidInput(f"{field}.{name}", 'must be a JSON Pointer such as "/nodes/a/params/size"')
    if kind in ("add", "replace", "test") and "value" not in op:
        raise InvalidInput(f"{field}.value", f"is missing: what to {kind}")


def apply_ops(data: Json, ops: Sequence[Op]) -> Json:
    """Return the document with the operations applied; ``data`` is changed on the way and must not be used again.

    Raises `InvalidInput` that names the operation that cannot be applied: a path that is not there, a ``test`` that
    fails.
    """
    return _applied(data, ops, lambda document, _op: document)


def apply_beside(data: Json, ops: Sequence[Op]) -> Json:
    """Return the document with the operations applied; ``data`` stays, and what they do not touch is one with it."""
    own: dict[int, Any] = {}

    def opened(document: Json, op: Op) -> Json:
        for pointer in _pointers(op):
            document = _opened(document, path_of(pointer)[:-1], own)
        return document

    return _applied(data, ops, opened)


def _pointers(op: Op) -> Iterator[str]:
    """Yield the places that an operation names; what else it has, such as a ``from`` of no use, is not read."""
    yield op["path"]
    if op["op"] in ("move", "copy"):
        yield op["from"]


def _opened(value: Json, path: Path, own: dict[int, Any]) -> Json:
    """Return a value in which the holders along a path are one's own, and may be changed."""
    if not isinstance(value, (dict, list)):
        return value
    if id(value) not in own:
        value = value.copy()
        own[id(value)] = value
    if path:
        step = int(path[0]) if isinstance(value, list) and str(path[0]).isdecimal() else path[0]
        with suppress(KeyError, IndexError, TypeError):
            value[step] = _opened(value[step], path[1:], own)
    return value


def _applied(data: Json, ops: Sequence[Op], ready: Callable[[Json, Op], Json]) -> Json:
    """Apply operations one by one, each to a document that is made ready for it."""
    copied = 0
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops):
        raise InvalidInput("ops", "are no list of operations, as in RFC 6902")
    # A copy: what one operation adds, the next may change, and the operations are kept as they are.
    for place, op in enumerate(orjson.loads(orjson.dumps(list(ops)))):
        try:
            if op["op"] == "copy":
                copied += len(orjson.dumps(jsonpointer.resolve_pointer(data, op["from"])))
                if copied > MAX_COPIED:
                    raise InvalidInput(f"ops[{place}]", f"copies with those before it more than {MAX_COPIED:,} bytes")
            data = jsonpatch.JsonPatch([op]).apply(ready(data, op), in_place=True)
        except jsonpatch.JsonPatchTestFailed:
            raise InvalidInput(
                f"ops[{place}]", f"the test of {op['path']} fails: it is {_found(data, op['path'])}"
            ) from None
        except (
            jsonpatch.JsonPatchException,
            jsonpointer.JsonPointerException,
            TypeError,
            KeyError,
            IndexError,
            ValueError,
        ) as problem:
            where = op.get("from", op["path"]) if op["op"] in ("move", "copy") else op["path"]
            why = _missing(data, where) or str(problem)[:150]
            raise InvalidInput(f"ops[{place}]", f"cannot {op['op']} {where}: {why}") from None
    try:
        orjson.dumps(data)
    except TypeError:
        raise InvalidInput("ops", "make a document that is nested too deep") from None
    return data


def touched_nodes(ops: Sequence[Op]) -> set[str] | None:
    """Return the nodes of a definition that operations may change; None: any of them."""
    found = set()
    for op in ops:
        for pointer in _pointers(op):
            first, *rest = path_of(pointer) or ("",)
            if (first == "nodes" and not rest) or pointer == op["path"] == "":
                return None
            if first == "nodes":
                found.add(rest[0])
    return found


def _missing(data: Json, pointer: str) -> str | None:
    """Return which part of a pointer leads nowhere, and what may be meant; None when no name is missing."""
    walked: tuple[str, ...] = ()
    for part in path_of(pointer):
        if not isinstance(data, dict):
            return None
        if part not in data:
            return f"there is no {pointer_of((*walked, part))}.{did_you_mean(part, data)}".rstrip(".")
        data, walked = data[part], (*walked, part)
    return None


def _found(data: Json, pointer: str) -> str:
    try:
        return repr(jsonpointer.resolve_pointer(data, pointer))[:100]
    except jsonpointer.JsonPointerException:
        return "not there"


def ops_between(old: Json, new: Json) -> list[Op]:
    """Return the operations that make one document of another: field by field, lists as a whole."""
    return list(_ops(old, new, ()))


def _ops(old: Json, new: Json, path: Path) -> Iterator[Op]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                yield {"op": "remove", "path": pointer_of((*path, key))}
        for key, value in new.items():
            if key not in old:
                yield {"op": "add", "path": pointer_of((*path, key)), "value": value}
            else:
                yield from _ops(old[key], value, (*path, key))
    elif not same(old, new):
        yield {"op": "replace", "path": pointer_of(path), "value": new}


def same(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON: 1 is neither 1.0 nor true."""
    return one is other or canonical_json(one) == canonical_json(other)


def pointer_of(path: Path) -> str:
    """Return a path as a JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def path_of(pointer: str) -> tuple[str, ...]:
    """Return the parts of a JSON Pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def ops_setting(data: Mapping[str, Json], wanted: Mapping[str, Json]) -> list[Op]:
    """Return the operations that set fields, one after the other: what one adds, the next may go into."""
    found: list[Op] = []
    for field, value in wanted.items():
        found.append(op_for(data, field, value))
        if len(found) < len(wanted):
            data = apply_beside(data, found[-1:])
    return found


def op_for(data: Mapping[str, Json], assignment: str, value: Json) -> Op:
    """Return the operation that sets a field named as people do: ``nodes.resize.params.sizes[0]``.

    Raises `InvalidInput` where what should hold the field is not there.
    """
    parts = path_in(assignment)
    if parts is None:
        raise InvalidInput("set", f"{assignment!r} is no field: write nodes.x.params.y, or nodes.x.params.list[0]")
    holder: Any = data
    path: Path = ()
    for part in parts[:-1]:
        step = _step(holder, part, path)
        if step is None or (isinstance(holder, dict) and step not in holder):
            known, place = list(holder) if isinstance(holder, dict) else [], dotted((*path, part))
            hint = did_you_mean(str(part), known)
            if not hint and isinstance(holder, dict) and len(path) > 1:
                hint = f" Set it first: {place}={{}}."
            raise InvalidInput("set", f"there is no {place!r} in the definition.{hint}")
        holder, path = holder[step], (*path, step)
    last = "-" if isinstance(holder, list) and parts[-1] == "-" else _step(holder, parts[-1], path)
    if last is None:
        raise InvalidInput("set", f"{dotted(path)!r} is a value, and has no fields")
    is_there = last in holder if isinstance(holder, dict) else last != "-"
    return {"op": "replace" if is_there else "add", "path": pointer_of((*path, last)), "value": value}


def _step(holder: Json, part: str | int, path: Path) -> str | int | None:
    """Return the key or the index by which a holder has a part; None: it is a value, and has none."""
    if isinstance(holder, dict):
        if isinstance(part, int):
            raise InvalidInput("set", f"{dotted(path)!r} is a mapping, and [{part}] the index of a list")
        return part
    if not isinstance(holder, list):
        return None
    if str(part).isdecimal() and int(part) < len(holder):
        return int(part)
    why = f"no index {part}" if str(part).isdecimal() else f"no index {part!r}, which is no number from 0"
    raise InvalidInput("set", f"{dotted(path)!r} has {len(holder)} items and {why}; {dotted(path)}.- adds one")
