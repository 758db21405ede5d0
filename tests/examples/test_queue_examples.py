"""The programs in ``examples/queue`` do what the README says of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "queue"
TIMEOUT = 60


def environment(url: str, home: Path, outbox: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "POSTGRES_", "PG"))}
    return {**kept, "WEFT_DATABASE_URL": url, "WEFT_HOME": str(home), "OUTBOX": str(outbox), "PYTHONWARNINGS": "error"}


async def run(env: dict[str, str], *arguments: str) -> str:
    """Run Python with ``arguments`` in the folder of the examples; it must end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=FOLDER, env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert process.returncode == 0, output
    return output.decode()


def test_there_are_no_other_examples() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == {"emails.py", "hello.py"}


async def test_the_shortest_program_prints_its_greeting(url: str, home: Path, tmp_path: Path) -> None:
    assert await run(environment(url, home, tmp_path), "hello.py") == "Hello, Ada!\n"


async def test_the_commands_of_the_readme_work_on_a_new_database(url: str, home: Path, tmp_path: Path) -> None:
    text = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"```sh\n(cd examples/queue\n.*?)```", text, re.DOTALL)
    assert commands is not None
    shutil.copytree(FOLDER, tmp_path / "examples" / "queue", ignore=shutil.ignore_patterns("__pycache__", "outbox"))
    env = environment(url, home, tmp_path / "outbox")
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    process = await asyncio.create_subprocess_exec(
        # Job control, as in a terminal: `kill %1`.
        *("bash", "-emc", f"{commands[1]}\nwait"),
        cwd=tmp_path,
        env=env,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert process.returncode == 0, output
    assert b"Hello, Ada!" in output
    assert b"email:newsletter" in output
    assert len(list((tmp_path / "outbox").iterdir())) == 2


async def test_a_newsletter_becomes_one_letter_for_each_address(url: str, home: Path, tmp_path: Path) -> None:
    env = environment(url, home, tmp_path / "outbox")
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft", "worker", "--app", "emails", cwd=FOLDER, env=env, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    try:
        assert b"ready, queues default, email, 2 handlers" in await asyncio.wait_for(worker.stdout.readline(), TIMEOUT)
        params = json.dumps({"to": ["ada@example.com", "alan@example.com", "nobody"], "subject": "News"})
        command = [
            "-m",
            "weft",
            "tasks",
            "enqueue",
            "email:newsletter",
            "--queue",
            "email",
            "--params",
            params,
            "--wait",
        ]
        assert (await run(env, *command)).splitlines()[-1] == "3"
        listed = json.loads(await run(env, "-m", "weft", "tasks", "list", "--queue", "email", "--json"))["tasks"]
        letters = [task["id"] for task in listed if task["handler"] == "email:send"]
        assert len(letters) == 3
        for letter in letters:
            await run(env, "-m", "weft", "tasks", "logs", "--follow", letter)
        shown = [json.loads(await run(env, "-m", "weft", "tasks", "show", "--json", letter)) for letter in letters]
        assert sorted(task["state"] for task in shown) == ["completed", "completed", "failed"]
        texts = [path.read_text() for path in (tmp_path / "outbox").iterdir()]
        assert sorted(text.partition("\n")[0] for text in texts) == ["To: ada@example.com", "To: alan@example.com"]
    finally:
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), TIMEOUT) == 0
