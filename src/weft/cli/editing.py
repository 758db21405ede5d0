"""Lets a definition be changed in an editor, and keeps what was written until it has been taken over."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from weft.cli.calls import call
from weft.core.errors import InvalidDefinition, InvalidInput

if TYPE_CHECKING:
    from weft.history.model import Materialized, Pushed

# The first line of the file: what was opened, so that it can be opened again and nobody's change is lost.
_HEAD = "# {tag} at move {move}, version {version}. What you save is taken over when it is sound."
_HEAD_READ = re.compile(r"^# (\S+) at move (\d+), version (\d+)\.", re.MULTILINE)


def patch_by_hand(tag: str, kept: Path | None, options: dict[str, Any]) -> Pushed:
    """Open what a tag is at in the editor, or a file that was ``kept``, and patch the tag by what was changed."""
    opened = _opened(tag, kept, options["expect"])
    with _written(opened, kept) as path:
        ops = _changes(opened, path)
        if not ops:
            return _unchanged(opened)
        # On what was shown: whoever moved the tag meanwhile is not overruled.
        options = options | {"expect": options["expect"] or opened.tag_version}
        return call(lambda client: client.workflows.patch(tag, ops, **options))


def _opened(tag: str, kept: Path | None, expect: int | str | None) -> Materialized:
    """Return the document that is changed: the one that a kept file says it was made from, or what the tag is at."""
    shown = call(lambda client: client.workflows.show(tag))
    if kept is None:
        return shown
    made_from = _HEAD_READ.search(_text(kept))
    if made_from is None or made_from[1] != shown.tag:
        if expect is not None:
            return shown
        # Compared with what the tag is at now, it would take back what others have changed meanwhile.
        problem = f"{kept} does not say which move of {shown.tag} it was made from (`# {shown.tag} at move …`)"
        raise InvalidInput("file", f"{problem}: say it by --expect, see `weft workflows moves {shown.tag}`")
    was = call(lambda client: client.workflows.show(int(made_from[3])))
    return replace(was, tag=shown.tag, tag_version=int(made_from[2]))


def _unchanged(opened: Materialized) -> Pushed:
    from weft.history.model import Pushed

    assert opened.tag is not None
    assert opened.tag_version is not None
    return Pushed(opened.artifact_id, opened.version_hash, opened.tag, opened.tag_version, created=False)


@contextmanager
def _written(opened: Materialized, kept: Path | None) -> Iterator[Path]:
    """Lend the file that was written; when it is not taken over, keep it, and add to the error how to go on."""
    path = kept or _new_file(opened)
    before = _text(path)
    try:
        _edit(path)
        yield path
    except BaseException as problem:
        # Whatever it is, and also when somebody interrupts: nothing that was written is lost.
        if kept is None and _text(path) == before:
            shutil.rmtree(path.parent)
        else:
            _tell_kept(problem, opened, path)
        raise
    if kept is None:
        shutil.rmtree(path.parent)


def _new_file(opened: Materialized) -> Path:
    from weft.flow.writing import write_yaml

    head = _HEAD.format(tag=opened.tag, move=opened.tag_version, version=opened.artifact_id)
    path = _new_folder() / "definition.yaml"
    path.write_text(f"{head}\n{write_yaml(opened.data)}", encoding="utf-8")
    return path


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="weft-"))


def _edit(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise InvalidInput("edit", "there is no terminal to edit in: use --set or --file, or name an $EDITOR")
        editor = "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as problem:
        raise InvalidInput("edit", f"cannot start {editor!r}, see $VISUAL and $EDITOR: {problem}") from None
    if code != 0:
        raise InvalidInput("edit", f"{editor} ended with {code}: nothing was changed")


def _changes(opened: Materialized, path: Path) -> list[Any]:
    """Return the operations that make the document what was written, which must be sound."""
    from weft.flow.patches import ops_between
    from weft.flow.reading import check_file, sound

    checked = check_file(path)
    sound(checked)
    return ops_between(dict(opened.data), checked.document.data)


def _tell_kept(problem: BaseException, opened: Materialized, path: Path) -> None:
    """Say all that is wrong with what was written, where it is kept, and how to go on."""
    from weft.cli.output import clean, complain, print_complaints

    command = ["weft", "workflows", "patch", str(opened.tag)]
    ops = None if isinstance(problem, (InvalidDefinition, InvalidInput)) else _ops(opened, path)
    if ops is None:
        if isinstance(problem, InvalidDefinition):
            print_complaints(problem.problems)
        command += ["--edit", "--file", str(path)]
    else:
        command += ["--file", str(ops)]
    kept = clean(f"what you wrote is kept in {path}; go on with `{shlex.join(command)}`")
    if isinstance(problem, Exception):
        problem.add_note(kept)
    else:
        complain(kept)  # at once: nobody tells more of an interruption than that it came


def _ops(opened: Materialized, path: Path) -> Path | None:
    """Write what was changed as a patch, which can be applied to what others have made of the definition meanwhile.

    None when what was written is not sound: whoever interrupts need not have finished.
    """
    try:
        changes = _changes(opened, path)
    except (InvalidDefinition, InvalidInput):
        return None
    ops = _new_folder() / "patch.json"
    ops.write_bytes(orjson.dumps(changes))
    return ops


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise InvalidInput("file", f"cannot read {path}: {problem.strerror or problem}") from None
