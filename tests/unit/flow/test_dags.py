"""Live DAGs as documents: everything wrong is told at once, by line, and a job's hash is that of what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import weft
from weft.flow.document import Document
from weft.flow.live.identity import config_hashes
from weft.flow.live.published import dag_schema
from weft.flow.live.validation import CheckedDag, check_dag, check_dag_text

MARKET = """\
dag: market
description: Prices, by the minute.
defaults: {max_attempts: 5, queue: default, scaling: {max_backlog: 500}}
jobs:
  ticks:
    activation: source
    operator: block_follower
    source: {kind: continuous, poll: 1s}
    config: {feed: {kind: http, url: "https://example.com/ticks?from={from}", hash: hash}, columns: {price: double}}
    outputs: [ticks]
    update_strategy: append
    unique_key: [number]
    bootstrap: {reset_outputs: false}
    timeout_seconds: 60
    heartbeat_timeout_seconds: 20
    max_attempts: 3
  candles:
    activation: reactive
    runtime: worker
    operator: range_aggregator
    execution_strategy: PerPartition
    config: {column: number, size: 60, aggregates: {high: max(price)}}
    idle_timeout: 5m
    inputs: [ticks]
    outputs: [candles, gaps]
    scaling: {max_concurrency: 4}
    on_failure: hold
  alerts:
    activation: reactive
    operator: python
    config: {handler: "market:alert", above: 100}
    execution_strategy: PerUpdate
    idle_timeout: never
    inputs: [candles, rates]
"""
BAD = """\
dag: market
jobs:
  a: {activation: source, operator: pythn, source: {kind: crn}, outputs: [x]}
  b: {activation: reactive, operator: python, execution_strategy: Bulk, inputs: [y], outputs: [x], config: {}}
  c: {activation: reactive, operator: o, execution_strategy: PerUpdate, inputs: [z], outputs: [y, y], runtime: lambda}
  d: {activation: source, operator: o, source: {kind: cron, schedule: "* * *", timezone: Europ/Berlin}, inputs: [x]}
  e: {activation: source, operator: o, source: {kind: interval, every: 5ms}, sorce: 3}
  f: {activation: reactive, operator: o, update_strategy: append, outputs: [z], inputs: [w]}
  g: {activation: reactive, operator: o, execution_strategy: PerUpdate, inputs: [y], outputs: [w, "v@3"]}
  h: {activation: sourc, operator: o, runtime: inline, max_attempts: 0, queue: "@own", idle_timeout: soon}
  i-j: {activation: source, operator: o}
  k l: 3
"""
FOUND = """\
3 warning unknown_operator jobs.a.operator
3 error bad_value jobs.a.source.kind
4 error bad_value jobs.b.execution_strategy
4 error two_producers jobs.b.outputs[0]
4 error missing jobs.b.config.handler
5 error cycle jobs.c
5 error bad_value jobs.c.outputs[1]
5 error bad_value jobs.c.runtime
6 error bad_value jobs.d.source.schedule
6 error bad_value jobs.d.source.timezone
6 error out_of_place jobs.d.inputs
7 error bad_value jobs.e.source.every
7 error unknown_field jobs.e.sorce
8 error missing jobs.f
8 error missing jobs.f
9 error bad_name jobs.g.outputs[1]
10 error bad_value jobs.h.activation
10 error bad_value jobs.h.runtime
10 error bad_value jobs.h.max_attempts
10 error bad_name jobs.h.queue
10 error bad_duration jobs.h.idle_timeout
11 error missing jobs.i-j
12 error bad_name jobs.k l
12 error bad_value jobs.k l
"""


def changed(**fields: Any) -> CheckedDag:
    """Return the market with fields of jobs changed: ``ticks__config={…}``."""
    data = yaml.safe_load(MARKET)
    for name, value in fields.items():
        job, _, field = name.partition("__")
        data["jobs"][job][field] = value
    return check_dag(Document(data))


def test_all_that_is_wrong_is_told_at_once_with_its_line() -> None:
    checked = check_dag_text(BAD)
    assert len(checked.problems) == len(FOUND.splitlines()), "\n".join(map(str, checked.problems))
    for problem, line in zip(checked.problems, FOUND.splitlines(), strict=True):
        number, severity, code, path = line.split(" ", 3)
        shown = str(problem)
        assert (problem.line, problem.severity, problem.code) == (int(number), severity, code), shown
        assert f"{path}: " in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MARKET.replace("PerPartition", "PerPartitio"), "Did you mean 'PerPartition'?"),
        (MARKET.replace("operator: python", "operator: pythom"), "Did you mean 'python'?"),
        (MARKET.replace("kind: continuous", "kind: continous"), "Did you mean 'continuous'?"),
        (MARKET.replace("unique_key", "unique_keys"), "Did you mean 'unique_key'?"),
        (MARKET.replace("runtime: worker", "runtime: ecs_udf"), "is not there yet"),
        (MARKET.replace("execution_strategy: PerPartition", "execution_strategy: Bulk"), "Bulk is not supported"),
        (MARKET.replace("dag: market", "dag: a b"), "is no name"),
        (MARKET.replace("jobs:", "jbos:"), "Did you mean 'jobs'?"),
        ("dag: market\njobs: {}\n", "must not be empty"),
        ("dag: market\n", "`jobs` is missing"),
        ("[]", "a live DAG is a mapping"),
        ("dag: [", "syntax"),
    ],
)
def test_what_is_wrong_says_what_to_do(text: str, said: str) -> None:
    checked = check_dag_text(text)
    assert said in "\n".join(map(str, checked.problems))


def test_a_sound_dag_is_read_with_what_it_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "market.yaml"
    file.write_text(f"# yaml-language-server\nx-own: 1\n{MARKET}", encoding="utf-8")
    definition = weft.read_dag(file)
    assert (definition.dag, sorted(definition.jobs)) == ("market", ["alerts", "candles", "ticks"])
    jobs = check_dag_text(MARKET).jobs
    assert list(jobs) == ["ticks", "candles", "alerts"]
    assert [job.handler for job in jobs.values()] == ["live.block_follower", "live.range_aggregator", "market:alert"]
    assert [job.strategy for job in jobs.values()] == [None, "partition", "update"]
    assert [job.upstream for job in jobs.values()] == [(), ("ticks",), ("candles",)]
    settings = jobs["candles"].settings
    assert (settings["max_attempts"], settings["max_concurrency"], settings["max_backlog"]) == (5, 4, 500)
    assert (settings["idle_timeout"], jobs["alerts"].settings["idle_timeout"]) == (300, None)
    assert jobs["ticks"].settings["max_attempts"] == 3


def test_an_operator_of_ones_own_is_its_handler() -> None:
    jobs = changed(candles__operator="spread", candles__config={"anything": 1}).jobs
    assert jobs["candles"].handler == "spread"


def test_a_hash_is_of_what_a_job_means_and_of_all_before_it() -> None:
    before = changed()
    hashes = config_hashes(before.jobs, {})

    def differing(checked: CheckedDag, **nonces: int) -> set[str]:
        return {name for name, found in config_hashes(checked.jobs, nonces).items() if found != hashes[name]}

    feed = {"kind": "http", "url": "https://example.com/other?from={from}"}
    candles = {"column": "number", "size": 60, "aggregates": {"high": "max(price)"}}
    assert differing(changed(ticks__config={"feed": feed})) == {"ticks", "candles", "alerts"}
    assert differing(changed(candles__config={**candles, "size": 3600})) == {"candles", "alerts"}
    assert differing(changed(alerts__config={"handler": "market:alert", "above": 99})) == {"alerts"}
    assert differing(changed(candles__outputs=["candles"])) == {"candles", "alerts"}
    files = {"kind": "files", "path": "/data/in", "poll": 2}
    assert differing(changed(ticks__source=files)) == {"ticks", "candles", "alerts"}
    assert differing(before, candles=1) == {"candles", "alerts"}
    # How it is executed, what is for people, and how it is written count for nothing.
    for field, value in (
        ("timeout_seconds", "5m"), ("max_attempts", 7), ("priority", 3), ("description", "words"), ("queue", "fast"),
        ("on_failure", "skip"), ("runtime", "dispatcher"), ("scaling", {"max_concurrency": 1}), ("idle_timeout", "0"),
        ("config", {**candles, "size": "1m", "late": "amend", "by": []}), ("update_strategy", "replace"),
    ):  # fmt: skip
        assert differing(changed(**{f"candles__{field}": value})) == set(), field
    assert differing(changed(ticks__source={"poll": "2s", "kind": "continuous"})) == set()
    assert before.version_hash != changed(candles__timeout_seconds=300).version_hash
    assert before.version_hash == changed(candles__description="words").version_hash


def test_hashes_stay_what_they_are() -> None:
    """Jobs that are deployed are known by them: with other ones each would be built anew by an upgrade."""
    found = {name: each[:12] for name, each in config_hashes(changed().jobs, {"ticks": 1}).items()}
    assert found == PINNED


def test_the_schema_and_the_loader_accept_and_refuse_the_same() -> None:
    schema = dag_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert list(validator.iter_errors(yaml.safe_load(MARKET))) == []
    # What the loader finds in single jobs; that several hang together no schema can say.
    for name, entry in yaml.safe_load(BAD)["jobs"].items():
        data = {"dag": "market", "jobs": {name: entry}}
        is_refused = not check_dag(Document(data)).is_sound
        by_schema = any(validator.iter_errors(data))
        if name not in ("c", "d", "e", "b", "g"):
            assert by_schema == is_refused, name
        assert is_refused or not by_schema, name
    for field, value in (
        ("source", {"kind": "cron"}), ("source", {"kind": "cron", "schedule": "@daily", "more": 1}), ("source", None),
        ("inputs", ["x"]), ("execution_strategy", "PerUpdate"), ("outputs", ["a@1"]), ("max_attempts", 1.5),
        ("update_strategy", "merge"), ("unique_key", []), ("operator", ""), ("scaling", {"max_concurrency": 0}),
    ):  # fmt: skip
        data = yaml.safe_load(MARKET)
        data["jobs"]["ticks"][field] = value
        assert not check_dag(Document(data)).is_sound, field
        assert any(validator.iter_errors(data)), field
    for source in (
        {"kind": "cron", "schedule": "@daily", "timezone": "Europe/Berlin", "catch_up": "all"},
        {"kind": "interval", "every": "90s"}, {"kind": "event", "event": "e", "match": {"a": 1}, "lane": "a.b"},
        {"kind": "files", "path": "s3://b/p", "pattern": "*.csv"}, {"kind": "table", "table": "public.orders"},
    ):  # fmt: skip
        data = yaml.safe_load(MARKET)
        data["jobs"]["ticks"]["source"] = source
        assert check_dag(Document(data)).is_sound, source
        assert not any(validator.iter_errors(data)), source


FEED = {"kind": "http", "url": "https://example.com/?from={from}"}
CONFIGS: list[tuple[str, dict[str, Any], bool]] = [
    ("block_follower", {"feed": FEED}, True),
    ("block_follower", {"feed": {"kind": "json_rpc", "url": "https://example.com/"}, "columns": {"a": "text"}}, True),
    ("block_follower", {"feed": {"kind": "sql", "dsn_env": "X", "query": "select 1"}, "start": -5}, True),
    ("block_follower", {"feed": {**FEED, "headers": {"X": {"env": "Y", "prefix": "Bearer "}, "Z": "z"}}}, True),
    ("block_follower", {"feed": FEED, "columns": {"a": {"path": "b.c", "type": "bigint"}}}, True),
    ("block_follower", {"feed": FEED, "columns": {"a": {"path": "b.c"}}}, False),
    ("block_follower", {"feed": FEED, "columns": {"a": "int"}}, False),
    ("block_follower", {"feed": {**FEED, "kind": "ftp"}}, False),
    ("block_follower", {"feed": {**FEED, "headers": {"X": {"value": "Y"}}}}, False),
    ("block_follower", {"feed": FEED, "max_batch": 0}, False),
    ("block_follower", {}, False),
    ("range_aggregator", {"column": "n", "size": "1m", "aggregates": {"x": "sum(a)"}, "lateness": "5s"}, True),
    ("range_aggregator", {"column": "n", "size": 10, "aggregates": {}}, False),
    ("range_aggregator", {"column": "n", "size": 10, "aggregates": {"x": "sum(a)"}, "late": "never"}, False),
    ("sql_transform", {"sql": "select 1", "tables": {"a": "b"}, "partition": "none"}, True),
    ("sql_transform", {"sql": ""}, False),
    ("alert_evaluate", {"condition": "a > 1", "for": 3, "cooldown": "5m", "callback_url": "https://x/"}, True),
    ("alert_evaluate", {"condition": "a > 1", "cooldown": 0}, True),
    ("alert_evaluate", {"condition": "a > 1", "for": 0}, False),
    ("alert_evaluate", {"condition": "a > 1", "severity": "dire"}, False),
    ("http_fetch", {"url": "https://example.com/{at:%Y}", "format": "csv", "columns": {"a": "date"}}, True),
    ("http_fetch", {"url": "https://example.com/", "format": "xml"}, False),
    ("udf", {"code": "def transform(table): return table"}, True),
    ("udf", {"code": "x", "entry": "a.b"}, False),
    ("python", {"handler": "mine", "more": 1}, True),
    ("python", {"more": 1}, False),
]


@pytest.mark.parametrize(("operator", "config", "is_sound"), CONFIGS)
def test_what_an_operator_is_told_is_checked_by_its_own_model_and_by_the_schema(
    operator: str, config: dict[str, Any], is_sound: bool
) -> None:
    job = {
        "activation": "reactive", "operator": operator, "execution_strategy": "PerUpdate", "inputs": ["x"],
        "outputs": ["y"], "config": config,
    }  # fmt: skip
    data = {"dag": "market", "jobs": {"job": job}}
    checked = check_dag(Document(data))
    assert checked.is_sound == is_sound, checked.problems
    assert any(jsonschema.Draft202012Validator(dag_schema()).iter_errors(data)) != is_sound


def test_a_hash_that_nobody_could_follow_is_refused() -> None:
    config = {"feed": {**FEED, "hash": "h", "next": "n"}}
    job = {"activation": "source", "operator": "block_follower", "source": {"kind": "continuous"}, "config": config}
    problems = check_dag(Document({"dag": "market", "jobs": {"job": job}})).problems
    assert "leave out next, and say number" in str(problems[0])
    assert problems[0].path == ("jobs", "job", "config", "feed")


PINNED = {"ticks": "ddffa2778b05", "candles": "d5cc05b66cd2", "alerts": "5cb1650212b9"}


@pytest.mark.parametrize(
    ("defaults", "own", "attempts", "retry"),
    [
        ({}, {}, None, None),
        ({"max_attempts": 5}, {}, 5, None),
        ({"retry": {"max_attempts": 5, "jitter": 0}}, {"max_attempts": 2}, 2, {"jitter": 0}),
        ({"max_attempts": 5}, {"retry": {"max_attempts": 7}}, 7, None),
        (
            {"retry": {"backoff": "fixed", "initial_delay_seconds": 9}},
            {"retry": {"initial_delay_seconds": 0}},
            None,
            {"backoff": "fixed", "initial_delay": 0},
        ),
    ],
)
def test_how_often_and_how_late_a_unit_is_tried_again_is_said_by_the_job_then_for_all_field_by_field(
    defaults: dict[str, Any], own: dict[str, Any], attempts: int | None, retry: dict[str, Any] | None
) -> None:
    document = yaml.safe_load(MARKET)
    document["defaults"] = defaults
    document["jobs"] = {"alerts": document["jobs"]["alerts"] | own}
    settings = check_dag(Document(document)).jobs["alerts"].settings
    assert (settings["max_attempts"], settings["retry"]) == (attempts, retry)


def test_how_often_a_unit_is_tried_is_said_once() -> None:
    document = yaml.safe_load(MARKET)
    twice = {"max_attempts": 3, "retry": {"max_attempts": 3}}
    document["defaults"] |= twice
    document["jobs"]["ticks"] |= twice
    problems = check_dag(Document(document)).problems
    assert [".".join(map(str, each.path)) for each in problems] == [
        "defaults.retry.max_attempts", "jobs.ticks.retry.max_attempts"
    ]  # fmt: skip
