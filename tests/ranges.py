"""Runs a selection of the tests with the lowest and the newest versions that pyproject.toml allows.

``make ranges``. Each set of versions gets an environment of its own under ``.bench/ranges``; an argument picks one of
``lowest-direct`` and ``highest``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = str(Path(sys.executable).parent / "uv")
# What each dependency is for: arguments (Pydantic), your transactions (SQLAlchemy), migrations (Alembic), the command
# line (Typer, Rich), the life of an embedded server (its wheel; `test_cli_db.py`), workers as processes (uvloop), the
# server and its clients (FastAPI, Uvicorn, httptools, HTTPX), schedules (cronsim, tzdata), and the queue itself
# (asyncpg, orjson).
SELECTION = [
    "tests/unit",
    "tests/engine/test_queue_basics.py",
    "tests/engine/test_arguments.py",
    "tests/engine/test_own_transactions.py",
    "tests/engine/test_schedules.py",
    "tests/migration",
    "tests/acceptance/test_cli_db.py",
    "tests/acceptance/test_cli_tasks.py",
    "tests/acceptance/test_cli_worker.py",
    "tests/server/test_calls.py",
    "tests/server/test_document.py",
    "tests/server/test_streams.py",
    "tests/server/test_remote_worker.py",
]


def run(*command: str) -> None:
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True, cwd=ROOT)


def main() -> None:
    for resolution in sys.argv[1:] or ("lowest-direct", "highest"):
        folder = ROOT / ".bench" / "ranges" / resolution
        python = str(folder / "bin" / "python")
        run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        run(UV, "pip", "install", "--quiet", "--python", python, "--resolution", resolution, "-e", ".[oidc,otel,s3]")
        # The tools of the tests are not what is tested here: they come at their newest.
        run(UV, "pip", "install", "--quiet", "--python", python, "pytest", "pytest-asyncio", "pytest-timeout",
            "pytest-xdist", "hypothesis", "psycopg[binary]", "jsonschema", "openapi-spec-validator")  # fmt: skip
        run(UV, "pip", "list", "--python", python)
        run(python, "-m", "pytest", "-q", "-n", "2", *SELECTION)


if __name__ == "__main__":
    main()
