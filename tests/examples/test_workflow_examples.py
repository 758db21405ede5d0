"""The programs in ``examples/workflows`` do what their headers say, each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
FOLDER = EXAMPLES / "workflows"


@pytest.fixture
def env(url: str, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "POSTGRES_", "PG"))}
    return {**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home), "PYTHONWARNINGS": "error"}


def run(env: dict[str, str], *arguments: object, folder: Path = FOLDER, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=env, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def test_every_example_says_what_it_shows_and_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*FOLDER.rglob("*.py"), *FOLDER.rglob("*.yaml")]:
        place = path.relative_to(EXAMPLES)
        assert str(place) in index or f"]({place.parent}" in index, f"{place} is not in examples/README.md"
        text = path.read_text(encoding="utf-8")
        assert "Shows: " in text or path.name == "handlers.py", place


def test_the_pipeline_of_the_readme_prints_its_total(env: dict[str, str]) -> None:
    assert run(env, "pipeline.py") == "42\n"


def test_a_raster_goes_the_way_of_its_size(env: dict[str, str]) -> None:
    def process(blob: str, code: int = 0) -> str:
        named = ["-i", "container_name=scans", "-i", f"blob_name={blob}"]
        return run(
            env, "-m", "weft", "run", "raster.yaml", "--app", "handlers", *named, folder=FOLDER / "rasters", code=code
        )

    assert json.loads(process("alps.tif")) == "https://scans.example.com/alps.tif as EPSG:3857, at once"
    assert json.loads(process("andes.tif")).endswith("in a container")


def test_words_are_counted_in_real_files(env: dict[str, str], tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"warp and weft {'weft ' * number}\n", encoding="utf-8")
    found = json.loads(run(env, FOLDER / "words" / "count_words.py", tmp_path))
    assert found == {"weft": 55, "warp": 10}
    assert json.loads((tmp_path / "words.json").read_text(encoding="utf-8")) == found


def test_a_person_is_asked_before_much_is_paid(env: dict[str, str]) -> None:
    assert run(env, "approval.py") == "paid 30\nreview asks for reason\npaid 420\n"


def test_a_long_import_goes_on_where_it_was(env: dict[str, str], tmp_path: Path) -> None:
    rows = tmp_path / "rows.txt"
    rows.write_text("".join(f"{number}\n" for number in range(1050)), encoding="utf-8")
    assert run(env, "long_import.py", rows) == "{'rows': 1050, 'attempts': 2, 'started_at': 300}\n"
    assert rows.with_suffix(".imported").read_text(encoding="utf-8") == rows.read_text(encoding="utf-8")


def test_a_night_s_orders_are_loaded_once_however_often_it_is_run(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "berlin-2026-11-16.csv").write_text("a,3\nb,x\nc,2.5\n", encoding="utf-8")
    (tmp_path / "wien-2026-11-16.csv").write_text("d,4\n", encoding="utf-8")
    for _ in range(2):
        assert run(env, FOLDER / "nightly" / "etl.py", "2026-11-16", tmp_path) == (
            "{'orders': 3, 'sums': {'berlin': 5.5, 'wien': 4.0}, 'warning': None}\n"
        )
    (tmp_path / "wien-2026-11-17.csv").write_text("e,1\n", encoding="utf-8")
    (tmp_path / "berlin-2026-11-17.csv").write_text("", encoding="utf-8")
    assert "only 1 orders on 2026-11-17" in run(env, FOLDER / "nightly" / "etl.py", "2026-11-17", tmp_path)
