"""Definitions through the command line: checked, compared, drawn, and described for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from apps.cli_scene import APPS, Cli

from warm import run_weft

SOUND = """\
workflow_id: thumbnails
inputs: {blob: {type: string, required: true}, size: {type: integer, default: 256, minimum: 16}}
nodes:
  START: {type: start, next: add}
  add: {handler: "cli:add", params: {a: "{{ inputs.size }}"}, next: tiles}
  tiles:
    type: fan_out
    items: "{{ nodes.add.output.tiles }}"
    task: {handler: "cli:speak", params: {text: "{{ item }}"}, retry: {max_attempts: 5}}
    max_parallel: 8
    next: route
  route:
    type: conditional
    condition_field: "{{ nodes.tiles.output.results | length }}"
    branches:
      - {condition: "> 100", next: ask}
      - {default: true, next: END}
  ask: {type: wait, for: approval, timeout_seconds: 1d, next: END}
  END: {type: end, output: {count: "{{ nodes.tiles.output.results | length }}"}}
"""
BROKEN = SOUND.replace("next: tiles", "next: tlies").replace("inputs.size", "inputs.sise")


class Definitions:
    """`weft` in a folder with definitions, without a database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cli = Cli("postgresql://nobody@127.0.0.1:1/none", folder / "home")

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def __call__(self, *arguments: str, code: int = 0, text: str | None = None) -> str:
        """Run a command to its end; return what it printed."""
        done = run_weft(arguments, environment=self.cli.environment, folder=APPS, text=text, timeout=60)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        assert done.stderr == ""
        return done.stdout


@pytest.fixture
def weft(tmp_path: Path) -> Definitions:
    return Definitions(tmp_path)


# weft validate


def test_a_sound_file_is_told_in_one_line(weft: Definitions) -> None:
    assert weft("validate", weft.write("flow.yaml", SOUND)) == "1 file without a problem\n"


def test_problems_are_shown_like_those_of_a_compiler_with_the_line_and_the_place_on_it(weft: Definitions) -> None:
    path = weft.write("flow.yaml", BROKEN)
    lines = weft("validate", path, code=2).splitlines()
    assert lines[:3] == [
        f"{path}:5:41: error: nodes.add.params.a: there is no input 'sise'. Did you mean 'size'? [unknown_input]",
        '  5 |   add: {handler: "cli:add", params: {a: "{{ inputs.sise }}"}, next: tlies}',
        "    | " + " " * 40 + "^",
    ]
    codes = [re.sub(r".*\[(\w+)\]$", r"\1", line) for line in lines if ": error: " in line]
    assert codes[:2] == ["unknown_input", "unknown_node"]
    assert codes.count("unreachable") == 4
    assert lines[-1] == f"{len(codes)} errors in 1 file"


def test_json_has_every_problem_with_its_place(weft: Definitions) -> None:
    path = weft.write("flow.yaml", SOUND.replace("next: tiles", "next: [tiles, tlies]"))
    found = weft.cli.json("validate", path, code=2)
    assert found == {
        "files": 1,
        "errors": 1,
        "problems": [
            {
                "code": "unknown_node",
                "severity": "error",
                "path": "nodes.add.next[1]",
                "file": path,
                "line": 5,
                "column": 77,
                "message": "there is no node 'tlies'. Did you mean 'tiles'?",
                "hint": "Did you mean 'tiles'?",
            }
        ],
    }


def test_a_folder_is_searched_and_all_its_files_are_checked(weft: Definitions) -> None:
    weft.write("a.yaml", SOUND)
    weft.write("b.yml", SOUND)
    weft.write("more/c.json", json.dumps(yaml.safe_load(SOUND)))
    weft.write("more/notes.txt", "no definition")
    assert weft("validate", str(weft.folder)) == "3 files without a problem\n"
    weft.write("more/d.yaml", "a: [\n")
    found = weft.cli.json("validate", str(weft.folder), code=2)
    assert (found["files"], found["errors"]) == (4, 1)
    assert found["problems"][0]["file"].endswith("more/d.yaml")


def test_a_text_that_cannot_be_read_is_a_problem_like_any_other(weft: Definitions) -> None:
    path = weft.write("flow.yaml", "name: x\nnodes: a: b\n")
    lines = weft("validate", path, code=2).splitlines()
    assert lines[0].startswith(f"{path}:2:9: error: ")
    assert lines[1:] == ["  2 | nodes: a: b", "    |         ^", "1 error in 1 file"]
    weft.folder.joinpath("bytes.yaml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in weft("validate", str(weft.folder / "bytes.yaml"), code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["validate", "{empty}"], "weft: file: there is no .yaml, .yml or .json file in {empty}"),
        (["validate"], "weft: Missing argument 'FILE|MODULE:NAME...'. See `weft validate --help`."),
        (["diff", "nowhere.yaml", "{sound}"], "weft: file: there is no file nowhere.yaml"),
        (["diff", "{sound}", "{list}"], "weft: file: {list} is no definition: it has no mapping with nodes"),
        (["graph", "nowhere.yaml"], "weft: file: there is no file nowhere.yaml"),
        (["graph", "{sound}", "--svg", "--mermaid"], "weft: --svg: give one of --svg, --mermaid and --json"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(weft: Definitions, arguments: list[str], words: str) -> None:
    (weft.folder / "empty").mkdir()
    names = {
        "empty": str(weft.folder / "empty"),
        "sound": weft.write("sound.yaml", SOUND),
        "list": weft.write("list.yaml", "[1]\n"),
    }
    filled = [argument.format(**names) for argument in arguments]
    assert weft.cli(*filled, code=2) == words.format(**names)


def test_a_file_that_cannot_be_read_is_named_by_diff_and_graph(weft: Definitions) -> None:
    path = weft.write("flow.yaml", "nodes: [a\n")
    for arguments in (["graph", path], ["diff", path, path]):
        assert weft.cli(*arguments, code=2).startswith(f"weft: {path}:2:1: error: ")


def test_handlers_are_known_by_the_app_and_one_that_is_not_is_warned_about(weft: Definitions) -> None:
    path = weft.write("flow.yaml", SOUND.replace("cli:speak", "cli:speek"))
    assert weft("validate", path) == "1 file without a problem\n"
    warned = weft("validate", path, "--app", "cli_app")
    assert "warning: nodes.tiles.task.handler: there is no handler 'cli:speek'. Did you mean 'cli:speak'?" in warned
    assert warned.splitlines()[-1] == "1 warning in 1 file"
    strict = weft("validate", path, "--app", "cli_app", "--strict", code=2)
    assert strict.splitlines()[-1] == "1 error in 1 file"
    assert (
        weft("validate", weft.write("sound.yaml", SOUND), "--app", "cli_app", "--strict")
        == "1 file without a problem\n"
    )


def test_strict_takes_every_warning_for_an_error(weft: Definitions) -> None:
    path = weft.write("flow.yaml", SOUND + "groups: {empty: {}}\n")
    assert weft("validate", path).splitlines()[-1] == "1 warning in 1 file"
    assert weft.cli.json("validate", path)["errors"] == 0
    assert weft.cli.json("validate", path, "--app", "cli_app", "--strict", code=2)["errors"] == 1


def test_a_strict_check_without_an_app_says_that_no_handler_was_checked(weft: Definitions) -> None:
    path = weft.write("flow.yaml", SOUND)
    assert weft("validate", path, "--strict", code=2).splitlines() == [
        f"{path}: error: no handler was checked (cli:add, cli:speak): "
        "name the modules that have them, each by --app MODULE [unchecked_handlers]",
        "1 error in 1 file",
    ]
    assert weft.cli.json("validate", path, "--strict", code=2)["problems"][0]["code"] == "unchecked_handlers"
    bare = weft.write("bare.yaml", "workflow_id: w\nnodes: {s: {type: start, next: e}, e: {type: end}}\n")
    assert weft("validate", bare, "--strict") == "1 file without a problem\n"


def test_an_app_that_cannot_be_imported_is_told(weft: Definitions) -> None:
    assert "cli_broken" in weft.cli("validate", weft.write("a.yaml", SOUND), "--app", "cli_broken", code=3)


# weft diff


def test_files_that_mean_the_same_data_have_no_difference(weft: Definitions) -> None:
    old, new = weft.write("a.yaml", SOUND), weft.write("b.json", json.dumps(yaml.safe_load(SOUND)))
    assert weft("diff", old, new) == "no difference\n"
    assert weft.cli.json("diff", old, new)["patch"] == []
    assert json.loads(weft("diff", old, new, "--patch")) == []


def test_a_difference_is_shown_by_node_and_ends_with_one(weft: Definitions) -> None:
    old = weft.write("a.yaml", SOUND)
    changed = SOUND.replace("max_parallel: 8", "max_parallel: 9").replace("blob: {type: string, required: true}, ", "")
    new = weft.write("b.yaml", changed.replace("  ask:", "  approve:").replace("next: ask", "next: approve"))
    lines = weft("diff", old, new, code=1).splitlines()
    assert 'inputs.blob: {"type":"string","required":true} (gone)' in lines
    assert '- ask  {"type":"wait","for":"approval","timeout_seconds":"1d","next":"END"}' in lines
    assert '+ approve  {"type":"wait","for":"approval","timeout_seconds":"1d","next":"END"}' in lines
    assert lines[lines.index("~ tiles") + 1] == "    max_parallel: 8 → 9"
    assert "~ route" in lines


def test_the_standard_input_is_a_file_like_any_other(weft: Definitions) -> None:
    assert weft("validate", "-", text=SOUND) == "1 file without a problem\n"
    assert weft("validate", "-", code=2, text=BROKEN).startswith("-:5:41: error: nodes.add.params.a")
    assert weft("graph", "-", text=SOUND).startswith("● START")
    assert weft("diff", weft.write("flow.yaml", SOUND), "-", text=SOUND) == "no difference\n"


def test_a_patch_between_two_is_one_for_programs_too(weft: Definitions) -> None:
    old, new = (
        weft.write("old.yaml", SOUND),
        weft.write("new.yaml", SOUND.replace("max_parallel: 8", "max_parallel: 9")),
    )
    ops = [{"op": "replace", "path": "/nodes/tiles/max_parallel", "value": 9}]
    assert json.loads(weft("diff", old, new, "--patch", "--json", code=1)) == ops


def test_a_difference_for_programs_has_nodes_and_a_patch_that_can_be_applied(weft: Definitions) -> None:
    old, new = weft.write("a.yaml", SOUND), weft.write("b.yaml", SOUND.replace("max_parallel: 8", "max_parallel: 9"))
    patch = [{"op": "replace", "path": "/nodes/tiles/max_parallel", "value": 9}]
    assert weft.cli.json("diff", old, new, code=1) == {
        "nodes": {"added": {}, "removed": {}, "changed": {"tiles": [{"path": "max_parallel", "old": 8, "new": 9}]}},
        "outside": [],
        "patch": patch,
    }
    assert json.loads(weft("diff", old, new, "--patch", code=1)) == patch


def test_files_that_are_not_sound_are_compared_as_well(weft: Definitions) -> None:
    old, new = weft.write("a.yaml", "nodes: [1]\n"), weft.write("b.yaml", "nodes: {a: 5}\n")
    assert json.loads(weft("diff", old, new, "--patch", code=1)) == [
        {"op": "replace", "path": "/nodes", "value": {"a": 5}}
    ]


# weft graph


def test_a_definition_is_drawn_as_a_tree(weft: Definitions) -> None:
    assert weft("graph", weft.write("a.yaml", SOUND)).splitlines() == [
        "● START",
        "○ add  cli:add",
        "⇉ tiles  cli:speak for each, at most 8",
        "◇ route  nodes.tiles.output.results | length",
        "├─ > 100 → ⏸ ask  for approval",
        "│  ↴ END",
        "└─ otherwise → ■ END",
    ]


def test_a_definition_is_drawn_as_svg(weft: Definitions) -> None:
    root = ElementTree.fromstring(weft("graph", weft.write("a.yaml", SOUND), "--svg"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    boxes = [part for part in root.iter("{http://www.w3.org/2000/svg}g") if part.get("class", "").startswith("box")]
    assert len(boxes) == 6


def test_a_definition_is_drawn_as_mermaid(weft: Definitions) -> None:
    lines = weft("graph", weft.write("a.yaml", SOUND), "--mermaid").splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("-->" in line for line in lines) == 6


def test_a_definition_with_a_circle_is_drawn_as_far_as_it_goes(weft: Definitions) -> None:
    path = weft.write("a.yaml", "nodes: {a: {handler: h, next: b}, b: {handler: h, next: a}}\n")
    assert "○ a  h" in weft("graph", path)
    assert weft("graph", path, "--svg").startswith("<svg")


# weft schema


def test_the_schema_is_one_that_editors_can_use_and_sound_definitions_fit_it(weft: Definitions) -> None:
    schema = json.loads(weft("schema"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["workflow_id", "nodes"]
    refs = set(re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(schema)))
    assert refs == schema["$defs"].keys()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(SOUND))
