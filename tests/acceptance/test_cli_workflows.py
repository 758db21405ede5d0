"""Workflows kept from the command line: pushed, changed, looked back at, merged, taken back."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import asyncpg
import pytest
from apps.cli_scene import APPS, Cli

from warm import WarmCommand

FLOW = """\
workflow_id: etl
nodes:
  START: {type: start, next: fetch}
  fetch: {handler: fetch, params: {size: 1, url: 'https://example.com'}, next: load}
  load: {handler: load, queue: db, next: END}
  END: {type: end}
"""


@pytest.fixture
def cli(url: str, home: Path) -> Cli:
    return Cli(url, home)


@pytest.fixture
def flow(tmp_path: Path) -> str:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW, encoding="utf-8")
    return str(path)


def test_a_definition_is_pushed_patched_undone_and_shown(cli: Cli, flow: str) -> None:
    pushed = cli.json("workflows", "push", flow, "-m", "first")
    assert (pushed["tag"], pushed["tag_version"], pushed["created"]) == ("etl/main", 1, True)
    assert cli("workflows", "push", flow).startswith("nothing to change: etl/main is at ")
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2", "-m", "larger")
    shown = cli.json("workflows", "show", "etl")
    assert (shown["tag"], shown["data"]["nodes"]["fetch"]["params"]["size"]) == ("etl/main", 2)
    assert "size: 2" in cli("workflows", "show", "etl", "--materialize")
    assert cli.json("workflows", "undo", "etl")["version"] == 3
    assert "    params.size: 1 → 2 " not in cli("diff", flow, "etl")
    cli("workflows", "redo", "etl")
    differs = cli.json("diff", flow, "etl", code=1)
    assert differs["patch"] == [{"op": "replace", "path": "/nodes/fetch/params/size", "value": 2}]
    assert [move["verb"] for move in cli.json("workflows", "moves", "etl")["moves"]] == [
        "redo",
        "undo",
        "patch",
        "push",
    ]
    assert cli("graph", "etl").splitlines()[0] == "● START"
    assert cli("workflows", "redo", "etl", code=5) == "weft: nothing to redo: tag etl/main is at its last move"
    cli("workflows", "undo", "etl", "9")
    assert cli("workflows", "undo", "etl", code=5) == "weft: nothing to undo: tag etl/main is at its first move"
    page = cli.json("workflows", "moves", "etl", "--before", "3", "--limit", "1")["moves"]
    assert [move["version"] for move in page] == [2]


def test_what_would_change_is_shown_and_nothing_is_changed(cli: Cli, flow: str) -> None:
    assert "would be pushed: etl/main would be at" in cli("workflows", "push", flow, "--dry-run")
    assert cli.json("workflows", "list") == {"tags": []}
    cli("workflows", "push", "-", "-m", "first", text=FLOW)
    told = cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2", "--dry-run")
    assert told.splitlines()[1:] == ["~ fetch", "    params.size: 1 → 2"]
    told = cli.json("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2", "--dry-run")
    assert (told["is_dry_run"], told["tag_version"]) == (True, 2)
    assert told["diff"]["patch"] == [{"op": "replace", "path": "/nodes/fetch/params/size", "value": 2}]
    assert "nothing to change" in cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=1")
    assert len(cli.json("workflows", "moves", "etl")["moves"]) == 1
    assert "--edit" in cli("workflows", "patch", "etl", "--edit", "--dry-run", code=2)
    assert "no terminal" in Cli(cli.environment["WEFT_DATABASE_URL"], Path(cli.environment["WEFT_HOME"]), EDITOR="")(
        "workflows", "patch", "etl", "--edit", code=2
    )


def test_a_point_of_the_past_is_named_where_a_version_is(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    for size in (2, 3):
        cli("workflows", "patch", "etl", "--set", f"nodes.fetch.params.size={size}")
    assert cli.json("diff", "etl~1", "etl", code=1)["patch"][0]["value"] == 3
    cli("workflows", "branch", "etl/first", "etl@1")
    assert "size: 1" in cli("workflows", "show", "etl/first", "--materialize")
    assert "size: 3" in cli("workflows", "show", "etl@0s ago", "--materialize")
    assert "there is no move of tag etl/main up to" in cli(
        "workflows", "show", "etl", "--at", "yesterday 10:00", code=4
    )
    assert "would be reverted" in cli("workflows", "revert", "etl", "etl~0", "--dry-run")


def test_every_conflict_of_a_merge_is_told(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "branch", "etl/other", "etl")
    for tag, value in (("etl", 1), ("etl/other", 2)):
        cli(
            "workflows",
            "patch",
            tag,
            *("--set=nodes.load.params={}", *(f"--set=nodes.load.params.p{n}={value}" for n in range(7))),
        )
    told = cli("workflows", "merge", "etl/other", "--into", "etl", code=5).splitlines()
    assert [line.partition(":")[0] for line in told[:-1]] == [f"nodes.load.params.p{n}" for n in range(7)]
    assert "--prefer ours" in told[-1]


def test_two_lines_part_and_come_together(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "branch", "etl/faster", "etl")
    cli("workflows", "patch", "etl/faster", "--set", "nodes.load.queue=fast", "-m", "fast")
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=5", "-m", "larger")
    cli("workflows", "merge", "etl/faster", "--into", "etl")
    data = cli.json("workflows", "show", "etl")["data"]["nodes"]
    assert (data["load"]["queue"], data["fetch"]["params"]["size"]) == ("fast", 5)
    log = cli.json("workflows", "log", "etl")["log"]
    assert [entry["message"] for entry in log] == ["merge etl/faster", "larger", "fast", None]
    drawn = re.sub(r"\d{15,} \w+ \w{12}.*", "", cli("workflows", "log", "etl", "--graph"))
    assert [line.rstrip() for line in drawn.splitlines()] == ["*", "|\\", "* |", "| *", "|/", "*"]
    blamed = {field["path"]: field["message"] for field in cli.json("workflows", "blame", "etl")["fields"]}
    assert (blamed["nodes.load.queue"], blamed["nodes.fetch.params.size"]) == ("fast", "larger")
    assert blamed["nodes.fetch.handler"] is None
    cli("workflows", "revert", "etl", log[1]["id"])
    assert cli.json("workflows", "show", "etl")["data"]["nodes"]["fetch"]["params"]["size"] == 1
    cli("workflows", "patch", "etl/faster", "--set", "nodes.load.queue=faster")
    cli("workflows", "patch", "etl", "--set", "nodes.load.queue=slow")
    complaint = cli("workflows", "merge", "etl/faster", "--into", "etl", code=5)
    assert 'has 1 conflict: nodes.load.queue: ours "slow", theirs "faster"; take one side by' in complaint
    assert cli.json("workflows", "merge", "etl/faster", "--into", "etl", code=5)["error"]["conflicts"] == [
        {
            "path": "nodes.load.queue",
            "node": "load",
            "field": "queue",
            "base": "fast",
            "ours": "slow",
            "theirs": "faster",
        }
    ]
    cli("workflows", "merge", "etl/faster", "--into", "etl", "--prefer", "theirs")
    assert cli.json("workflows", "show", "etl")["data"]["nodes"]["load"]["queue"] == "faster"


def test_tags_are_moved_protected_deleted_and_brought_back(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2")
    cli("workflows", "tag", "etl/prod", "etl", "-m", "release")
    cli("workflows", "protect", "etl/prod")
    assert "is protected" in cli("workflows", "tag", "etl/prod", "etl", code=5)
    cli("workflows", "tag", "etl/prod", "etl", "--force")
    cli("workflows", "protect", "etl/prod", "--off")
    assert "is not where it was expected" in cli("workflows", "tag", "etl/prod", "etl", "--expect", "1", code=5)
    told = cli.json("workflows", "tag", "etl/prod", "etl", "--expect", "1", code=5)["error"]["conflict"]
    prod = cli.json("workflows", "list")["tags"][1]
    assert (told["tag"], told["why"], told["version"], told["verb"]) == ("etl/prod", "moved", 2, "move")
    assert (told["moved_by"], told["target"], told["hash"]) == (
        prod["moved_by"],
        prod["target_id"],
        prod["target_hash"],
    )
    assert told["moved_at"][:19] == prod["moved_at"][:19]
    there = cli("workflows", "branch", "etl/prod", "etl", code=5)
    assert there.startswith("weft: tag 'etl/prod' is there already: ")
    assert there.endswith("; choose another name, or move it by `weft workflows tag`")
    assert cli("workflows", "undelete", "etl/prod", code=5) == "weft: nothing to undelete: tag etl/prod is live"
    assert "Did you mean 'etl/prod'?" in cli("workflows", "undelete", "etl/prd", code=4)
    assert "is not where it was expected" in cli("workflows", "delete", "etl/prod", "--expect", "1", code=5)
    assert "is not where it was expected" in cli("workflows", "delete", "etl/prod", "--expect", "0123456789", code=5)
    told = cli("workflows", "delete", "etl/prod", "--expect", prod["target_hash"][:10])
    assert told.startswith("deleted: etl/prod was at ")
    assert "`weft workflows undelete etl/prod`" in cli("workflows", "show", "etl/prod", code=4)
    assert [tag["name"] for tag in cli.json("workflows", "list")["tags"]] == ["etl/main"]
    assert "there is no tag 'etl/prod'" in cli("workflows", "show", "etl/prod", code=4)
    cli("workflows", "undelete", "etl/prod")
    assert cli("workflows", "compact", "etl").startswith("compacted ")
    kinds = {tag["name"]: tag["target_kind"] for tag in cli.json("workflows", "list")["tags"]}
    assert kinds == {"etl/main": "version", "etl/prod": "patch"}
    first = cli.json("workflows", "log", "etl")["log"][-1]
    assert cli.json("workflows", "show", first["version_hash"][:12])["artifact_id"] == first["id"]


def test_what_is_wrong_with_a_change_is_told_and_nothing_is_changed(cli: Cli, flow: str, tmp_path: Path) -> None:
    cli("workflows", "push", flow)
    ops = tmp_path / "ops.json"
    for text, words in (
        ('[{"op": "remove", "path": "/nodes/nothing"}]', "cannot remove /nodes/nothing"),
        ('[{"op": "replace", "path": "/nodes/load/next", "value": "fetch"}]', "nodes wait for each other"),
        ('{"op": "remove"}', "it must be a list of operations"),
        ("[", "is no JSON"),
    ):
        ops.write_text(text, encoding="utf-8")
        assert words in cli("workflows", "patch", "etl", "--file", str(ops), code=2)
    assert "Did you mean 'fetch'?" in cli("workflows", "patch", "etl", "--set", "nodes.fetsh.queue=x", code=2)
    assert "give one of --file, --set and --edit" in cli("workflows", "patch", "etl", code=2)
    assert "there is no tag 'elt'" in cli("workflows", "undo", "elt", code=4)
    assert "is no name" in cli("workflows", "tag", "a b", "etl", code=2)
    bad = tmp_path / "bad.yaml"
    bad.write_text("workflow_id: etl\nnodes: {}\n", encoding="utf-8")
    assert f"{bad}:2" in cli("workflows", "push", str(bad), code=2)
    bad.write_text(FLOW.replace("next: load", "next: lod"), encoding="utf-8")
    problems = cli.json("workflows", "push", str(bad), code=2)["error"]["problems"]
    assert [(each["code"], each["file"], each["line"], each["hint"]) for each in problems] == [
        ("unknown_node", str(bad), 4, "Did you mean 'load'?"),
        ("unreachable", str(bad), 5, None),
        ("unreachable", str(bad), 6, None),
    ]
    assert cli.json("workflows", "list")["tags"][0]["version"] == 1


def test_a_definition_is_changed_in_an_editor(cli: Cli, flow: str, tmp_path: Path) -> None:
    cli("workflows", "push", flow)
    cli.environment["EDITOR"] = "sed -i 's/size: 1/size: 9/'"
    cli("workflows", "patch", "etl", "--edit", "-m", "by hand")
    assert cli.json("workflows", "show", "etl")["data"]["nodes"]["fetch"]["params"]["size"] == 9
    assert cli("workflows", "patch", "etl", "--edit").startswith("nothing to change: etl/main is at ")
    unchanged = cli.json("workflows", "patch", "etl", "--edit")
    assert (unchanged["tag"], unchanged["tag_version"], unchanged["created"]) == ("etl/main", 2, False)
    queue = "/nodes/load/queue"
    ops = [{"op": "test", "path": queue, "value": "db"}, {"op": "replace", "path": queue, "value": "other"}]
    (tmp_path / "ops.json").write_text(json.dumps(ops), encoding="utf-8")
    cli("workflows", "patch", "etl", "--file", str(tmp_path / "ops.json"))
    assert cli.json("workflows", "show", "etl")["data"]["nodes"]["load"]["queue"] == "other"


def test_what_was_written_in_an_editor_and_is_not_sound_is_kept_until_it_is(
    cli: Cli, flow: str, tmp_path: Path
) -> None:
    cli("workflows", "push", flow)
    cli.environment |= {"TMPDIR": str(tmp_path), "EDITOR": "sed -i 's/size: 1/size: 9/; s/next: load/next: lod/'"}
    *each, last = cli("workflows", "patch", "etl", "--edit", code=2).splitlines()
    (kept,) = tmp_path.glob("weft-*/definition.yaml")
    assert [re.sub(r".*/(.*): error: .*\[(.*)\]", r"\1 \2", line) for line in each] == [
        "definition.yaml:12:11 unknown_node",
        "definition.yaml:13:3 unreachable",
        "definition.yaml:17:3 unreachable",
    ]
    again = f"weft workflows patch etl/main --edit --file {kept}"
    assert last.endswith(f"; what you wrote is kept in {kept}; go on with `{again}`")
    problems = cli.json(*again.split()[1:], code=2)["error"]["problems"]
    assert [(problem["file"], problem["line"]) for problem in problems] == [(str(kept), n) for n in (12, 13, 17)]
    # Somebody else changes the definition meanwhile: what was written becomes a patch on that.
    cli("workflows", "patch", "etl", "--set", "nodes.load.queue=other")
    cli.environment["EDITOR"] = "sed -i 's/next: lod$/next: load/'"
    moved = cli(*again.split()[1:], code=5)
    assert "is not where it was expected" in moved
    cli(*moved.rpartition("go on with `weft ")[2].rstrip("`").split())
    nodes = cli.json("workflows", "show", "etl")["data"]["nodes"]
    assert (nodes["fetch"]["params"]["size"], nodes["load"]["queue"]) == (9, "other")


def test_what_was_written_is_kept_when_somebody_interrupts_before_it_is_sound(
    cli: Cli, flow: str, tmp_path: Path
) -> None:
    cli("workflows", "push", flow)
    script = tmp_path / "editor"
    script.write_text('sed -i "s/next: load/next: lod/" "$1"\nkill -INT $PPID\n', encoding="utf-8")
    cli.environment |= {"TMPDIR": str(tmp_path), "EDITOR": f"sh {script}"}
    told = cli("workflows", "patch", "etl", "--edit", code=130)
    (kept,) = tmp_path.glob("weft-*/definition.yaml")
    again = f"weft workflows patch etl/main --edit --file {kept}"
    assert told == f"weft: what you wrote is kept in {kept}; go on with `{again}`"


def test_a_damaged_snapshot_is_told_of_and_mended(cli: Cli, flow: str, url: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2")
    kept = cli.json("workflows", "snapshot", "etl")
    of_snapshot = f"(select digest from weft.artifact where id = {kept['artifact_id']})"
    _execute(url, f"update weft.blob set content = 'x' where digest = {of_snapshot}")
    shown = cli.json("workflows", "show", "etl")
    assert shown["data"] == kept["data"]
    assert "is damaged in its row" in shown["damage"]
    first, second, last = cli("workflows", "fsck", "--repair").splitlines()
    assert re.fullmatch(
        rf"snapshot {kept['artifact_id']}: its content, blob \w+, is damaged in its row; .* \[lost_blob\]", first
    )
    assert second.startswith("  mended: written anew from its parent; what its row held is kept in ")
    assert last == "1 finding, 1 mended"
    assert cli.json("workflows", "show", "etl")["damage"] is None


def test_a_list_is_set_by_index(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.l=[1,2,[3]]")
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.l[0]=7", "--set", "nodes.fetch.params.l.2[0]=9")
    assert cli.json("workflows", "show", "etl")["data"]["nodes"]["fetch"]["params"]["l"] == [7, 2, [9]]


def test_a_tag_of_another_workflow_is_replaced_only_by_name(cli: Cli, flow: str, tmp_path: Path) -> None:
    cli("workflows", "push", flow)
    other = tmp_path / "other.yaml"
    other.write_text(FLOW.replace("workflow_id: etl", "workflow_id: other"), encoding="utf-8")
    refused = cli("workflows", "push", str(other), "--tag", "etl/main", "--force", code=5)
    assert "belongs to workflow 'etl'" in refused
    cli("workflows", "push", str(other), "--tag", "etl/main", "--replaces", "etl")
    assert cli.json("workflows", "undo", "etl/main")["workflow_id"] == "etl"


def test_what_was_kept_without_saying_of_what_it_was_made_overrules_nobody(cli: Cli, flow: str, tmp_path: Path) -> None:
    cli("workflows", "push", flow)
    kept = tmp_path / "kept.yaml"
    kept.write_text(cli("workflows", "show", "etl", "--materialize"), encoding="utf-8")
    cli("workflows", "patch", "etl", "--set", "nodes.load.queue=fast")
    cli.environment["EDITOR"] = "sed -i 's/size: 1/size: 9/'"
    refused = cli("workflows", "patch", "etl", "--edit", "--file", str(kept), code=2)
    assert "does not say which move of etl/main it was made from" in refused
    assert cli.json("workflows", "show", "etl")["data"]["nodes"]["load"]["queue"] == "fast"
    moved = cli("workflows", "patch", "etl", "--edit", "--file", str(kept), "--expect", "1", code=5)
    assert "is not where it was expected" in moved
    # A remark above what it says does not hide it.
    head = "# mine\n# etl/main at move 2, version " + cli.json("workflows", "show", "etl")["artifact_id"] + ".\n"
    kept.write_text(head + cli("workflows", "show", "etl", "--materialize"), encoding="utf-8")
    cli("workflows", "patch", "etl", "--edit", "--file", str(kept))


def test_all_that_a_patch_would_break_is_told(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    told = cli("workflows", "patch", "etl", "--set", "nodes.fetch.next=lod", "--set", "nodes.load.next=EN", code=2)
    assert "'lod'" in told
    assert "'EN'" in told


def test_an_editor_that_fails_or_changes_nothing_leaves_nothing_behind(cli: Cli, flow: str, tmp_path: Path) -> None:
    cli("workflows", "push", flow)
    for editor, words in (("false", "false ended with 1: nothing was changed"), ("no-such-editor", "cannot start")):
        cli.environment |= {"TMPDIR": str(tmp_path), "EDITOR": editor}
        assert words in cli("workflows", "patch", "etl", "--edit", code=2)
    cli.environment["EDITOR"] = "true"
    cli("workflows", "patch", "etl", "--edit")
    assert list(tmp_path.glob("weft-*")) == []


def test_a_message_of_many_lines_stands_on_one(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow, "-m", "one\n\ttwo\r\n\x1b[31mthree\u2028four\n")
    assert cli("workflows", "log", "etl").endswith("  one two \\x1b[31mthree\\u2028four\n")
    assert len(cli("workflows", "log", "etl").splitlines()) == 1
    assert len(cli("workflows", "moves", "etl").splitlines()) == 2


def test_on_a_terminal_a_page_says_how_the_next_is_asked_for(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2")
    assert "more: --before 2" in _on_terminal(cli, "workflows", "moves", "etl", "--limit", "1")
    assert "more:" not in cli("workflows", "moves", "etl", "--limit", "1")


def _on_terminal(cli: Cli, *command: str) -> str:
    """Return what a command shows on a terminal."""
    ours, theirs = os.openpty()
    with open(os.devnull, "rb") as nothing:
        environment = {**cli.environment, "TERM": "xterm"}
        process = WarmCommand(command, environment, APPS, [nothing.fileno(), theirs, theirs])
    os.close(theirs)
    assert process.wait(60) == 0
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    return shown


def test_a_terminal_shows_how_much_of_the_history_is_looked_through(cli: Cli, flow: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "snapshot", "etl", "--set", "nodes.fetch.params.size=7")
    assert re.search(r"looked at █{30} (\d+)/\1\x1b", _on_terminal(cli, "workflows", "fsck"))


def test_a_document_is_kept_whole_the_history_is_looked_through_and_what_nobody_needs_goes(
    cli: Cli, flow: str, tmp_path: Path
) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2")
    kept = cli.json("workflows", "snapshot", "etl", "--set", "nodes.fetch.params.size=7")
    assert (kept["kind"], kept["data"]["nodes"]["fetch"]["params"]["size"]) == ("snapshot", 7)
    ops = tmp_path / "ops.json"
    ops.write_text('[{"op":"replace","path":"/nodes/fetch/params/size","value":7}]', encoding="utf-8")
    again = cli("workflows", "snapshot", "etl", "--file", str(ops))
    assert again == f"{kept['snapshot_id']} has it whole: {kept['version_hash'][:12]}\n"
    assert cli("workflows", "fsck") == "the history is whole\n"
    assert cli.json("workflows", "fsck", "--quick") == {"findings": []}
    assert cli("workflows", "gc", "--dry-run").startswith("would remove 0 snapshots")
    assert cli.json("workflows", "gc")["blobs"] == 0
    assert "one hour at least" in cli("workflows", "gc", "--grace", "5m", code=2)
    assert cli.json("workflows", "diff", flow, "etl", code=1)["patch"][0]["value"] == 2


def test_damage_ends_with_1_until_it_is_mended(cli: Cli, flow: str, url: str) -> None:
    cli("workflows", "push", flow)
    cli("workflows", "patch", "etl", "--set", "nodes.fetch.params.size=2")
    _execute(url, "update weft.artifact set version_hash = sha256('x') where kind = 'patch'")
    (found,) = cli.json("workflows", "fsck", code=1)["findings"]
    assert (found["code"], found["mended"]) == ("wrong_hash", None)
    (mended,) = cli.json("workflows", "fsck", "--repair")["findings"]
    assert (mended["code"], mended["mended"]) == ("wrong_hash", "written anew from its parents and its document")
    assert cli("workflows", "fsck") == "the history is whole\n"


def _execute(url: str, statement: str) -> None:
    async def execute() -> None:
        conn = await asyncpg.connect(url)
        await conn.execute(statement)
        await conn.close()

    asyncio.run(execute())
