"""The live DAGs in ``examples/live`` do what their headers say, each in processes of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
FOLDER = EXAMPLES / "live"


@pytest.fixture
def env(url: str, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "POSTGRES_", "PG"))}
    return {**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home), "PYTHONWARNINGS": "error"}


def weft(env: dict[str, str], *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "weft", *map(str, arguments)], cwd=FOLDER, env=env, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def query(env: dict[str, str], sql: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in weft(env, "query", sql, "--format", "json").splitlines()]


@contextmanager
def running(env: dict[str, str], *programs: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Let programs run meanwhile."""
    started = [
        subprocess.Popen([sys.executable, *program], cwd=FOLDER, env=env, stdout=subprocess.PIPE, text=True)
        for program in programs
    ]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.communicate(timeout=60)


def until(look: Any, seconds: float = 90) -> None:
    """Look again and again until something is so."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def asked_in_header(path: Path) -> list[str]:
    """Return the queries that the header of an example shows."""
    lines = [shlex.split(line[1:]) for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#   ")]
    return [words[2] for words in lines if words[:2] == ["weft", "query"]]


def written(env: dict[str, str], dataset: str) -> bool:
    return bool(json.loads(weft(env, "datasets", "show", dataset, "--json"))["rows"])


def test_every_example_says_what_it_shows_and_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*FOLDER.glob("*.py"), *FOLDER.glob("*.yaml")]:
        assert f"live/{path.name}" in index, f"{path.name} is not in examples/README.md"
        assert "Shows: " in path.read_text(encoding="utf-8"), path


def test_a_feed_is_followed_aggregated_and_alerted_about(env: dict[str, str], tmp_path: Path) -> None:
    env["WEFT_FETCH_ALLOWED"] = "127.0.0.1"
    with running(env, [str(FOLDER / "feed.py"), "0", "400"]) as [feed]:
        assert feed.stdout is not None
        port = feed.stdout.readline().strip()
        dag = tmp_path / "market.yaml"
        dag.write_text((FOLDER / "market.yaml").read_text(encoding="utf-8").replace("8765", port), encoding="utf-8")
        weft(env, "deploy", dag)

        def ticks() -> list[dict[str, Any]]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ticks?from=0&limit=100000") as answer:
                return list(json.load(answer)["ticks"])

        with running(env, ["-m", "weft", "orchestrator"], ["-m", "weft", "worker", "--operators"]):
            until(lambda: len(ticks()) == 400)
            expected = ticks()
            until(lambda: written(env, "ticks"))

            def is_followed() -> bool:
                found = query(env, "select number, hash, price from ticks order by number")
                return found == [{name: tick[name] for name in ("number", "hash", "price")} for tick in expected]

            until(is_followed)
            prices = [[tick["price"] for tick in expected[begin : begin + 60]] for begin in range(0, 360, 60)]
            candles = [
                {"range_start": 60 * place, "open": each[0], "high": max(each), "low": min(each), "close": each[-1]}
                for place, each in enumerate(prices)
            ]
            columns = "range_start, open, high, low, close"
            until(lambda: query(env, f"select {columns} from candles order by range_start") == candles)
            wide = [max(each) - min(each) > 12 for each in prices]
            begins = sum(1 for was, now in zip([False, *wide], wide, strict=False) if now and not was)
            assert begins > 0
            until(lambda: written(env, "alerts"))
            until(lambda: query(env, "select count(*) as n from alerts where state = 'firing'") == [{"n": begins}])
            assert all([query(env, sql) for sql in asked_in_header(FOLDER / "market.yaml")])
            drawn = weft(env, "lineage", "candles.high", "--up")
            assert [line.split()[1] for line in drawn.splitlines()] == ["ticks.price", "candles.high"]


def test_files_of_a_folder_are_a_dataset_by_day_with_a_report(env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    env["WEFT_FILES_ROOTS"] = str(folder)
    dag = tmp_path / "csv_folder.yaml"
    text = (FOLDER / "csv_folder.yaml").read_text(encoding="utf-8")
    dag.write_text(text.replace("/tmp/orders", str(folder)).replace("1s", "100ms"), encoding="utf-8")
    (folder / "1.csv").write_text("id,day,price\n1,2026-11-17,5\n2,2026-11-18,7.5\n", encoding="utf-8")
    weft(env, "deploy", dag)

    def report() -> list[tuple[str, int, float]]:
        rows = query(env, "select day, orders, revenue from daily_report order by day")
        return [(row["day"], row["orders"], row["revenue"]) for row in rows]

    with running(env, ["-m", "weft", "orchestrator"], ["-m", "weft", "worker", "--app", "csv_folder"]):
        until(lambda: written(env, "daily_report"))
        until(lambda: report() == [("2026-11-17", 1, 5.0), ("2026-11-18", 1, 7.5)])
        # One order comes twice, in two files.
        (folder / "2.csv").write_text("id,day,price\n2,2026-11-18,7.5\n3,2026-11-18,2\n", encoding="utf-8")
        until(lambda: report() == [("2026-11-17", 1, 5.0), ("2026-11-18", 2, 9.5)])
    parts = json.loads(weft(env, "datasets", "partitions", "orders", "--json"))["partitions"]
    assert [each["key"] for each in parts] == ["2026-11-17", "2026-11-18"]
