"""Bad patches from the command line: an exit code, one line that names what is wrong, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from apps.cli_scene import Cli

from history_laws import everything

FLOW = """\
workflow_id: etl
nodes:
  START: {type: start, next: fetch}
  fetch: {handler: fetch, params: {size: 1}, next: load}
  load: {handler: load, next: END}
  END: {type: end}
"""
PARAMS = "/nodes/fetch/params"


@pytest.fixture
def cli(url: str, home: Path, tmp_path: Path) -> Cli:
    """The command line, with one workflow."""
    opened = Cli(url, home)
    (tmp_path / "flow.yaml").write_text(FLOW, encoding="utf-8")
    opened("workflows", "push", str(tmp_path / "flow.yaml"))
    return opened


def rows(url: str) -> list[tuple[str, str]]:
    async def look() -> list[tuple[str, str]]:
        conn = await asyncpg.connect(url)
        try:
            return await everything(conn)
        finally:
            await conn.close()

    return asyncio.run(look())


def patch_of(*ops: dict[str, Any]) -> bytes:
    return json.dumps(ops).encode()


def adds(value: bytes) -> bytes:
    """A patch that adds a value, as it is written."""
    return b'[{"op": "add", "path": "/nodes/fetch/params/x", "value": ' + value + b"}]"


BAD: dict[str, tuple[bytes, str]] = {
    "removes the start": (patch_of({"op": "remove", "path": "/nodes/START"}), "there is no start"),
    "moves a node into its own child": (
        patch_of({"op": "move", "from": "/nodes/fetch", "path": f"{PARAMS}/me"}),
        "ops[0]: cannot move /nodes/fetch",
    ),
    "fails a test later on": (
        patch_of({"op": "test", "path": f"{PARAMS}/size", "value": 1}, {"op": "test", "path": PARAMS, "value": 5}),
        "ops[1]: the test of /nodes/fetch/params fails: it is {'size': 1}",
    ),
    "has ten megabytes": (adds(b'"' + b"x" * 10_000_000 + b'"'), "push a new version"),
    "is nested deep": (adds(b'{"x": ' * 5000 + b"1" + b"}" * 5000), "is no JSON: depth limit exceeded"),
    "is no UTF-8": (adds(b'"\xff"'), "UTF-8"),
    "has half a character": (adds(rb'"\ud800"'), "surrogate"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_patch_is_refused_with_a_line_that_names_it(cli: Cli, url: str, tmp_path: Path, name: str) -> None:
    content, words = BAD[name]
    file = tmp_path / "ops.json"
    file.write_bytes(content)
    before = rows(url)
    complaint = cli("workflows", "patch", "etl", "--file", str(file), "-m", name, code=2)
    assert words in complaint
    assert len(complaint) < 2000
    assert rows(url) == before
