"""Identity is meaning: how a definition is written does not change its hash, what jobs do does."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.definitions import EVERYTHING, SPEC_5_MENDED, TILE_RASTER
from weft.flow.document import Document, read_document
from weft.flow.graph import Graph
from weft.flow.identity import canonical_json, digest_of, meaning, node_hashes, version_hash
from weft.flow.model import WorkflowDefinition
from weft.flow.reading import read_definition
from weft.flow.validation import check_document

Data = dict[str, Any]
names = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
scalars = (
    st.none() | st.booleans() | st.integers(-100, 100) | st.floats(-1e6, 1e6) | st.text("abc {}:#'\"-é\n", max_size=6)
)
params = st.dictionaries(
    names, scalars | st.lists(scalars, max_size=3) | st.dictionaries(names, scalars, max_size=2), max_size=3
)
executions = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["a", "b"]),
        "priority": st.integers(-5, 5),
        "timeout_seconds": st.integers(1, 9999),
        "retry": st.fixed_dictionaries({"max_attempts": st.integers(1, 9)}, optional={"backoff": st.just("linear")}),
        "allow_failure": st.booleans(),
    },
)


@st.composite
def definitions(draw: st.DrawFn) -> Data:
    """A sound definition: a start, a few nodes of any type, each led to by some before it, and an end."""
    count = draw(st.integers(1, 6))
    nodes: Data = {"START": {"type": "start", "next": []}}
    for place in range(count):
        name = f"n{place}"
        kind = draw(st.sampled_from(["task", "task", "fan_out", "fan_in", "conditional", "workflow"]))
        sources = draw(st.lists(st.sampled_from(list(nodes)), min_size=1, max_size=2, unique=True))
        for source in sources:
            _ways_on(nodes[source], draw).append(name)
        task = {"handler": draw(st.sampled_from(["h1", "h2"])), "params": _safe(draw(params)), **draw(executions)}
        nodes[name] = {
            "task": lambda task=task: {**task, "next": []},
            "fan_out": lambda task=task: {"type": "fan_out", "items": [1, 2], "task": task, "next": []},
            "fan_in": lambda: {"type": "fan_in", "next": []},
            "conditional": lambda: {
                "type": "conditional",
                "condition_field": "{{ inputs.n }}",
                "branches": [{"condition": "> 1", "next": []}, {"default": True, "next": []}],
            },
            "workflow": lambda: {"type": "workflow", "workflow": "other", "next": []},
        }[kind]()
    for node in nodes.values():
        for holder in [node, *node.get("branches", [])]:
            if "next" in holder and not holder["next"]:
                holder["next"].append("END")
    nodes["END"] = {"type": "end", "output": _safe(draw(params))}
    return {
        "workflow_id": "w",
        "inputs": {"n": {"type": "integer", "default": draw(st.integers(0, 9))}},
        "defaults": draw(executions),
        "nodes": nodes,
    }


def _ways_on(node: Data, draw: st.DrawFn) -> list[str]:
    if "branches" in node:
        return draw(st.sampled_from(node["branches"]))["next"]  # type: ignore[no-any-return]
    return node["next"]  # type: ignore[no-any-return]


def _safe(value: Any) -> Any:
    """The value without what would be read as an expression."""
    if isinstance(value, dict):
        return {key: _safe(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_safe(item) for item in value]
    return value.replace("{", "(") if isinstance(value, str) else value


def _shuffled(value: Any, chance: random.Random) -> Any:
    """The same mappings with their keys in another order."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: _shuffled(value[key], chance) for key in keys}
    return [_shuffled(item, chance) for item in value] if isinstance(value, list) else value


class _Dumper(yaml.SafeDumper):
    """Writes text always in quotes, so that what looks like a number or a date elsewhere is not taken for one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'"))


def _written(data: Data, chance: random.Random) -> str:
    """The same data as another text: in blocks or in one line, indented otherwise, with remarks."""
    text = yaml.dump(
        data,
        Dumper=_Dumper,
        default_flow_style=chance.choice([True, False, None]),
        indent=chance.choice([2, 3, 4]),
        sort_keys=False,
        allow_unicode=chance.choice([True, False]),
        width=10_000,
        explicit_start=chance.choice([True, False]),
    )
    return f"# {chance.random()}\n{text}# the end\n"


def _read(data: Data) -> WorkflowDefinition:
    return read_definition(canonical_json(data))


def _hashes(definition: WorkflowDefinition) -> tuple[str, dict[str, str]]:
    return version_hash(definition), node_hashes(definition)


@settings(max_examples=20, deadline=None)
@given(definitions(), st.randoms(use_true_random=False))
def test_a_definition_has_one_hash_however_it_is_written(data: Data, chance: random.Random) -> None:
    text = _written(_shuffled(data, chance), chance)
    assert read_document(text).data == data
    assert _hashes(read_definition(text)) == _hashes(_read(data))


@settings(max_examples=20, deadline=None)
@given(definitions(), st.randoms(use_true_random=False))
def test_what_is_written_for_people_changes_no_hash(data: Data, chance: random.Random) -> None:
    told = copy.deepcopy(data)
    for part in [told, told["inputs"]["n"], *told["nodes"].values()]:
        if chance.random() < 0.7:
            part |= {"name": f"N{chance.random()}", "description": "d" * chance.randrange(9), "labels": {"a": "b"}}
    told["version"] = chance.choice([1, "2.0", 77])
    assert _hashes(_read(told)) == _hashes(_read(data))


@settings(max_examples=20, deadline=None)
@given(definitions())
def test_it_does_not_matter_whether_a_task_says_something_itself_or_by_the_defaults(data: Data) -> None:
    moved = copy.deepcopy(data)
    defaults = moved.pop("defaults")
    for node in moved["nodes"].values():
        task = node.get("task") if node.get("type") == "fan_out" else node if "handler" in node else None
        if task is not None:
            own = {**defaults, **task}
            if "retry" in defaults and "retry" in task:
                own["retry"] = {**defaults["retry"], **task["retry"]}
            task |= own
    assert _hashes(_read(moved)) == _hashes(_read(data))


@settings(max_examples=20, deadline=None)
@given(definitions())
def test_a_single_next_and_a_list_of_one_are_the_same_and_order_does_not_matter(data: Data) -> None:
    other = copy.deepcopy(data)
    for node in other["nodes"].values():
        for holder in [node, *node.get("branches", [])]:
            if "next" in holder:
                ways = holder["next"]
                holder["next"] = ways[0] if len(ways) == 1 else [*reversed(ways), ways[0]]
    assert _hashes(_read(other)) == _hashes(_read(data))


@settings(max_examples=20, deadline=None)
@given(definitions())
def test_what_is_so_anyway_can_be_said_or_left_out(data: Data) -> None:
    other = copy.deepcopy(data)
    other |= {"on_failure": "fail_fast", "groups": {}, "labels": {}}
    other["inputs"]["n"]["required"] = False
    for node in other["nodes"].values():
        node.setdefault("type", "task")
        if node["type"] == "task" and not node["params"]:
            del node["params"]
        if node["type"] == "workflow":
            node |= {"inputs": {}, "allow_failure": False}
        if node["type"] == "task":
            node.setdefault("retry", {})
        if node["type"] == "fan_out":
            node["task"].setdefault("retry", {})
    assert _hashes(_read(other)) == _hashes(_read(data))


@settings(max_examples=20, deadline=None)
@given(definitions())
def test_what_a_definition_means_has_one_hash_in_every_process(data: Data) -> None:
    definition = _read(data)
    means = meaning(definition)
    digests = {name: digest_of(node) for name, node in means["nodes"].items()}
    assert version_hash(definition) == digest_of(means | {"nodes": digests})
    assert check_document(Document(data)).version_hash == version_hash(definition)
    assert set(node_hashes(definition)) == set(data["nodes"])


def test_the_hash_of_a_known_definition_stays_what_it_is() -> None:
    """Hashes are kept in databases: whoever changes this changes the identity of every version that is stored."""
    assert [version_hash(read_definition(text))[:16] for text in (SPEC_5_MENDED, TILE_RASTER, EVERYTHING)] == [
        "5b334a0479ca5cd0",
        "d7c12a3b22c111bb",
        "83790a9526233a19",
    ]


def test_spans_of_time_have_one_meaning_however_they_are_written() -> None:
    hashes = {
        version_hash(read_definition(TILE_RASTER + f"timeout_seconds: {span}\n"))
        for span in "5400 5400.0 90m 1h30m 1.5h".split()
    }
    assert len(hashes) == 1


def _edit(path: str, value: Any) -> Callable[[Data], None]:
    """An edit that sets a field, named by its path."""

    def apply(data: Data) -> None:
        *parts, last = path.split(".")
        holder: Any = data
        for part in parts:
            holder = holder[int(part)] if isinstance(holder, list) else holder.setdefault(part, {})
        if isinstance(holder, list):
            holder[int(last)] = value
        else:
            holder[last] = value

    return apply


def _without(path: str) -> Callable[[Data], None]:
    def apply(data: Data) -> None:
        *parts, last = path.split(".")
        holder: Any = data
        for part in parts:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        del holder[int(last) if isinstance(holder, list) else last]

    return apply


def _swap(path: str) -> Callable[[Data], None]:
    def apply(data: Data) -> None:
        holder: Any = data
        for part in path.split("."):
            holder = holder[part]
        holder[0], holder[1] = holder[1], holder[0]

    return apply


# Edits of `EVERYTHING`: what each does, and the node whose output, and whose followers' output, it makes stale.
EDITS: list[tuple[Callable[[Data], None], str | None]] = [
    (_edit("workflow_id", "etl/other_name"), None),
    (_edit("nodes.fetch.handler", "http.post"), "fetch"),
    (_edit("nodes.fetch.params.url", "{{ inputs.url }}?"), "fetch"),
    (_edit("nodes.fetch.params.more", None), "fetch"),
    (_edit("nodes.fetch.params.more", 1), "fetch"),
    (_edit("nodes.fetch.params.more", 1.0), "fetch"),
    (_edit("nodes.fetch.params.more", True), "fetch"),
    (_edit("nodes.fetch.params.more", "1"), "fetch"),
    (_edit("nodes.fetch.params.more", [1, 2]), "fetch"),
    (_edit("nodes.fetch.params.more", [2, 1]), "fetch"),
    (_edit("nodes.fetch.params.more", {"next": ["b", "a"]}), "fetch"),
    (_edit("nodes.fetch.params.more", {"next": ["a", "b"]}), "fetch"),
    (_edit("nodes.fetch.params.more", {"name": "x"}), "fetch"),
    (_edit("nodes.fetch.params.more", {"name": "y"}), "fetch"),
    (_edit("nodes.fetch.params.more", ""), "fetch"),
    (_edit("nodes.fetch.params.more", []), "fetch"),
    (_edit("nodes.fetch.params.more", {}), "fetch"),
    (_without("nodes.sum.params.all.1"), "sum"),
    (_swap("nodes.sum.params.all"), "sum"),
    (_edit("nodes.fetch.queue", "special"), None),
    (_edit("nodes.fetch.priority", 3), None),
    (_edit("nodes.fetch.timeout_seconds", 33), None),
    (_edit("nodes.fetch.heartbeat_timeout_seconds", 33), None),
    (_edit("nodes.fetch.dispatch_timeout_seconds", 33), None),
    (_edit("nodes.fetch.retry", {"max_attempts": 9}), None),
    (_edit("nodes.fetch.retry", {"backoff": "fixed"}), None),
    (_edit("nodes.fetch.retry", {"jitter": 0}), None),
    (_edit("nodes.fetch.allow_failure", True), None),
    (_edit("nodes.fetch.cache", True), None),
    (_edit("nodes.fetch.cache", False), None),
    (_edit("nodes.fetch.cache", 1), None),
    (_edit("nodes.fetch.concurrency_key", "k"), None),
    (_without("nodes.clean.allow_failure"), None),
    (_edit("defaults.queue", "special"), None),
    (_edit("defaults.timeout_seconds", 33), None),
    (_edit("defaults.retry.max_attempts", 4), None),
    (_edit("defaults.allow_failure", True), None),
    (_edit("inputs.count.default", 4), None),
    (_edit("inputs.tags.default", ["x"]), None),
    (_edit("inputs.count.maximum", 11), None),
    (_edit("inputs.count.type", "number"), None),
    (_edit("inputs.url.required", False), None),
    (_edit("inputs.mode.enum", ["fast", "slow", "off"]), None),
    (_edit("inputs.url.pattern", "^https://"), None),
    (_edit("inputs.more", {}), None),
    (_edit("on_failure", "fail_fast"), None),
    (_edit("timeout_seconds", "3h"), None),
    (_without("timeout_seconds"), None),
    (_edit("nodes.parts.items", "{{ range(inputs.count + 1) }}"), "parts"),
    (_edit("nodes.parts.items", [1, 2]), "parts"),
    (_edit("nodes.parts.task.handler", "other"), "parts"),
    (_edit("nodes.parts.task.params.n", "{{ item }}"), "parts"),
    (_edit("nodes.parts.task.queue", "special"), None),
    (_edit("nodes.parts.task.retry.max_attempts", 6), None),
    (_edit("nodes.parts.max_parallel", 5), None),
    (_without("nodes.parts.max_parallel"), None),
    (_edit("nodes.route.condition_field", "{{ nodes.sum.output }}"), "route"),
    (_edit("nodes.route.branches.0.condition", "> 3"), "route"),
    (_swap("nodes.route.branches"), "route"),
    (_edit("nodes.sub.workflow", "etl/third"), "sub"),
    (_edit("nodes.sub.inputs.n", 5), "sub"),
    (_edit("nodes.sub.timeout_seconds", 5), None),
    (_edit("nodes.sub.allow_failure", True), None),
    (_edit("nodes.file.event", "file.gone"), "file"),
    (_edit("nodes.file.match.path", "x"), "file"),
    (_edit("nodes.file.on_timeout", "fail"), "file"),
    (_edit("nodes.file.timeout_seconds", 5), None),
    (_edit("nodes.ask.form.reason.type", "any"), "ask"),
    (_edit("nodes.END.output.total", 5), "END"),
    (_edit("nodes.END.output", None), "END"),
]


@pytest.mark.parametrize("place", range(len(EDITS)))
def test_an_edit_changes_the_hash_of_the_version_and_of_just_those_nodes_whose_output_it_decides(place: int) -> None:
    apply, edited = EDITS[place]
    data = read_document(EVERYTHING).data
    before = read_definition(EVERYTHING)
    apply(data)
    after = _read(data)
    assert version_hash(after) != version_hash(before)
    old, new = node_hashes(before), node_hashes(after)
    stale = Graph.of(data).reached(edited) if edited else set()
    assert {name for name in old if old[name] != new[name]} == stale


def test_no_two_edits_have_one_hash() -> None:
    hashes = set()
    for apply, _ in EDITS:
        data = read_document(EVERYTHING).data
        apply(data)
        hashes.add(version_hash(_read(data)))
    assert len(hashes) == len(EDITS)


@settings(max_examples=20, deadline=None)
@given(definitions(), st.data())
def test_an_edit_of_any_node_changes_its_own_hash_and_those_of_all_that_follow(data: Data, draw: st.DataObject) -> None:
    tasks = [name for name, node in data["nodes"].items() if "handler" in node or "task" in node]
    if not tasks:
        return
    name = draw.draw(st.sampled_from(tasks))
    edited = copy.deepcopy(data)
    task = edited["nodes"][name].get("task", edited["nodes"][name])
    task["handler"] += "x"
    old, new = node_hashes(_read(data)), node_hashes(_read(edited))
    assert {each for each in old if old[each] != new[each]} == Graph.of(data).reached(name)
    assert version_hash(_read(data)) != version_hash(_read(edited))


def _changed_by(apply: Callable[[Data], None]) -> set[str]:
    data = read_document(EVERYTHING).data
    old = node_hashes(_read(data))
    version = version_hash(_read(data))
    apply(data)
    after = _read(data)
    assert version_hash(after) != version
    new = node_hashes(after)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def test_a_node_that_is_added_changes_those_that_follow_it() -> None:
    def add(data: Data) -> None:
        data["nodes"]["extra"] = {"handler": "x", "next": "sub"}
        data["nodes"]["ask"]["next"] = ["extra", "END"]

    assert _changed_by(add) == {"extra", "sub", "END"}


def test_an_edge_that_is_removed_changes_those_it_led_to() -> None:
    def cut(data: Data) -> None:
        data["nodes"]["START"]["next"] = ["extract", "ask", "END"]

    assert _changed_by(cut) == {"END"}


def test_a_branch_that_leads_elsewhere_changes_both_ends_of_the_way() -> None:
    def redirect(data: Data) -> None:
        data["nodes"]["route"]["branches"][0]["next"] = ["sub", "file"]

    assert _changed_by(redirect) == {"file", "END"}


def test_what_a_group_leads_to_counts() -> None:
    def redirect(data: Data) -> None:
        data["groups"]["extract"]["next"] = ["sum", "END"]

    assert _changed_by(redirect) == {"END"}


def test_the_group_of_a_node_counts_for_the_version() -> None:
    data = read_document(EVERYTHING).data
    data["nodes"]["clean"]["group"] = "extract"
    assert version_hash(_read(data)) != version_hash(read_definition(EVERYTHING))


def test_two_nodes_that_change_places_make_stale_what_takes_the_output_of_one() -> None:
    """Both outputs are there as before, each under the name of the other."""
    text = """
workflow_id: w
nodes:
  S: {type: start, next: [a, b]}
  a: {handler: first, next: c}
  b: {handler: second, next: c}
  c: {handler: use, params: {x: "{{ nodes.a.output }}"}, next: E}
  E: {type: end}
"""
    swapped = text.replace("first", "third").replace("second", "first").replace("third", "second")
    old, new = node_hashes(read_definition(text)), node_hashes(read_definition(swapped))
    assert {name for name in old if old[name] != new[name]} == {"a", "b", "c", "E"}


def test_canonical_json_has_sorted_keys_and_keeps_types_apart() -> None:
    assert canonical_json({"b": 1, "a": [1.0, True, None, "é"]}) == '{"a":[1.0,true,null,"é"],"b":1}'.encode()
    assert len({digest_of(value) for value in (1, 1.0, True, "1", None, [], {}, [1])}) == 8


def test_the_hash_of_a_meaning_is_the_same_in_every_release() -> None:
    """It is kept with each version, and people write it down: a release that works it out otherwise breaks both."""
    nodes = {
        "START": {"type": "start", "next": ["a"]},
        "a": {"handler": "h", "params": {"n": "{{ inputs.n }}"}, "retry": {"max_attempts": 3}, "next": "each"},
        "each": {"type": "fan_out", "items": "{{ nodes.a.output }}", "task": {"handler": "h"}, "next": "all"},
        "all": {"type": "fan_in", "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.all.output.results }}"},
    }
    text = yaml.safe_dump({"workflow_id": "w", "inputs": {"n": {"type": "integer"}}, "nodes": nodes})
    assert version_hash(read_definition(text)) == "f2cdb8109d7a204c52630f2a804d5cd9068a28d0cecc5af6dbf36588d0c7d740"
    assert (
        node_hashes(read_definition(text))["END"] == "75bf8865ab8b1a1ffe890e09eeb5c5925a0b88fa88355bcbc7bb706d0a831225"
    )


def test_the_schema_that_an_editor_notes_changes_nothing() -> None:
    data = read_document(TILE_RASTER).data
    plain, noted = check_document(Document(data)), check_document(Document({"$schema": "weft.json", **data}))
    assert noted.problems == []
    assert noted.version_hash == plain.version_hash
