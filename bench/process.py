"""Figures of processes: idle load, memory, cold start, the time of ``weft --help``."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncpg

from bench import raw
from bench.place import ROOT, child_process, fresh_database, worker_process
from bench.report import Figure

_FIRST_TASK = """
import asyncio, sys
import weft

@weft.task(name="first")
async def first() -> str:
    return "done"

async def main():
    async with weft.Client() as client:
        task = await client.enqueue("first")
        async with weft.Worker(client=client):
            assert await client.wait(task.id, timeout=30) == "done"
            print("done", flush=True)

asyncio.run(main())
"""


# The least that a program can do with a server that is up: ask it once.
_FIRST_ANSWER = """
import asyncio, sys
import asyncpg

async def main():
    conn = await asyncpg.connect(sys.argv[1])
    await conn.fetchval("select 1")
    await conn.close()

asyncio.run(main())
"""


def memory_mb(pid: int) -> float:
    """Return the proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no Pss line")


def resident_mb(pid: int) -> float:
    """Return the resident set size of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def bare_memory_mb(url: str) -> float:
    """Return the memory of a process that does nothing but listen on one connection."""
    conn = await asyncpg.connect(url)
    await conn.execute(raw.TABLE)
    await conn.close()
    async with child_process("bench.raw", url) as process:
        return memory_mb(process.pid)


async def _transactions(conn: asyncpg.Connection[asyncpg.Record], seconds: float) -> float:
    """How many transactions a second there are in this database."""
    query = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    before, began = await conn.fetchval(query), time.monotonic()
    await asyncio.sleep(seconds)
    return float(await conn.fetchval(query) - before) / (time.monotonic() - began)


async def measure_idle(server: str, seconds: float) -> list[Figure]:
    """Statements, processor time and memory of one worker, then of one orchestrator, with nothing to do."""
    async with fresh_database(server) as url:
        worker = await _idle("worker", url, worker_process(url, 100), seconds)
    async with fresh_database(server) as url:
        return worker + await _idle("orchestrator", url, child_process("bench.orchestrator", url), seconds)


async def _idle(
    name: str, url: str, starting: AbstractAsyncContextManager[asyncio.subprocess.Process], seconds: float
) -> list[Figure]:
    conn = await asyncpg.connect(url)
    alone = await _transactions(conn, seconds)
    async with starting as process:
        await asyncio.sleep(5)
        cpu, began = cpu_seconds(process.pid), time.monotonic()
        rate = await _transactions(conn, seconds) - alone
        share = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - began)
        memory, bare = memory_mb(process.pid), await bare_memory_mb(url)
    await conn.close()
    return [
        Figure(f"idle {name}: transactions", rate, "/s", "<= 2 statements/s", rate <= 2,
               f"the server by itself {alone:.2f}/s, taken off"),
        Figure(f"idle {name}: processor", share * 100, "% of a core", "< 1 %", share < 0.01),
        Figure(f"idle {name}: memory (PSS)", memory, "MB", "<= 60 MB", memory <= 60,
               f"a bare listener {bare:.0f} MB"),
    ]  # fmt: skip


def _run(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    whole = {**os.environ, **environment}
    subprocess.run(command, check=True, env=whole, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=60)
    return time.perf_counter() - began


def measure_start(repeat: int) -> list[Figure]:
    """From nothing to the first task done, then with the server up; and ``weft --help``."""
    weft = str(Path(sys.executable).parent / "weft")
    cold, warm, help_times, servers, interpreters, answers = [], [], [], [], [], []
    for _ in range(repeat):
        home = tempfile.mkdtemp(prefix="weft-bench-", dir="/tmp")
        os.chmod(home, 0o755)
        environment = {"WEFT_HOME": home}
        try:
            cold.append(_run([sys.executable, "-c", _FIRST_TASK], environment))
            warm.append(_run([sys.executable, "-c", _FIRST_TASK], environment))
            url = subprocess.run(
                [weft, "db", "url"], check=True, env={**os.environ, **environment}, capture_output=True, text=True
            ).stdout.strip()
            answers.append(_run([sys.executable, "-c", _FIRST_ANSWER, url], environment))
            help_times.append(_run([weft, "--help"], environment))
            interpreters.append(_run([sys.executable, "-c", "pass"], environment))
            _run([weft, "db", "reset", "--yes"], environment)
            servers.append(_run([weft, "db", "start"], environment))
        finally:
            subprocess.run(
                [weft, "db", "stop"], env={**os.environ, **environment}, check=False, stdout=subprocess.DEVNULL
            )
            shutil.rmtree(home, ignore_errors=True)
    return [
        Figure("cold start: no data folder, no server, to the first task done", statistics.median(cold), "s", "<= 2 s",
               statistics.median(cold) <= 2, f"`weft db start` alone {statistics.median(servers):.2f} s", cold),
        Figure("start with the server up, to the first task done", statistics.median(warm), "s", "<= 0.5 s",
               statistics.median(warm) <= 0.5, f"asyncpg's first answer {statistics.median(answers):.2f} s", warm),
        Figure("weft --help", statistics.median(help_times), "s", "<= 0.2 s", statistics.median(help_times) <= 0.2,
               f"`python -c pass` {statistics.median(interpreters):.2f} s", help_times),
    ]  # fmt: skip
