"""The live DAGs in ``examples/live`` do what their headers say, each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
FOLDER = EXAMPLES / "live"


@pytest.fixture
def env(url: str, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "POSTGRES_", "PG"))}
    return {**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home), "PYTHONWARNINGS": "error"}


def weft(env: dict[str, str], folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "weft", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@contextmanager
def process(env: dict[str, str], folder: Path, *arguments: str) -> Iterator[None]:
    """A process of Weft that goes on until the end."""
    with subprocess.Popen([sys.executable, "-m", "weft", *arguments], cwd=folder, env=env) as started:
        try:
            yield
        finally:
            started.terminate()
            started.wait(60)


def test_every_example_says_what_it_shows_and_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.rglob("*.yaml"):
        assert str(path.relative_to(EXAMPLES)) in index
        assert "# Shows: " in path.read_text(encoding="utf-8")


def test_orders_become_a_dataset_and_each_day_of_it_a_sum(env: dict[str, str]) -> None:
    folder = FOLDER / "orders"
    assert "in effect" in weft(env, folder, "deploy", "orders.yaml")
    with process(env, folder, "worker", "--app", "operators"), process(env, folder, "orchestrator"):
        for id, day, price in ((1, "mon", 10), (2, "tue", 5), (3, "mon", 2.5), (3, "mon", 2.5)):
            order = {"id": id, "day": day, "customer": "ada", "price": price}
            weft(env, folder, "events", "send", "order.placed", "--payload", json.dumps(order))
        query = ["query", "select day, orders, total from order_totals order by day", "--format", "json"]
        deadline, found = time.monotonic() + 60, ""
        while time.monotonic() < deadline and '"total":5' not in found.replace(" ", ""):
            shown = json.loads(weft(env, folder, "live", "show", "orders", "--json"))
            if shown["units"] == 0 and shown["writes"] == 0 and shown["jobs"][0]["completed"] > 0:
                found = weft(env, folder, *query)
        rows = [json.loads(line) for line in found.splitlines()]
    assert [(row["day"], row["orders"], row["total"]) for row in rows] == [("mon", 2, 12.5), ("tue", 1, 5.0)]
