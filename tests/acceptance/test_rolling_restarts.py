"""An installation by the command lines and settings of the units to deploy by, restarted part by part under load."""

from __future__ import annotations

import asyncio
import configparser
import contextlib
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from apps.cli_scene import Cli, Command

import weft
from weft.db.embedded_programs import pg_bin

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SYSTEMD = DEPLOY / "systemd"
FLOW = {
    "workflow_id": "rolling",
    "inputs": {"n": {"type": "integer"}},
    "nodes": {
        "START": {"type": "start", "next": "add"},
        "add": {"handler": "cli:add", "params": {"a": "{{ inputs.n }}"}, "next": "END"},
        "END": {"type": "end"},
    },
}


def _told(url: str, state: Path, *files: str) -> dict[str, str]:
    """Return what files tell units, of this database, by the role that they name, and this folder instead of those."""
    told: dict[str, str] = {}
    for name in files:
        text = (SYSTEMD / f"{name}.example").read_text(encoding="utf-8").replace("/var/lib/weft", str(state))
        told |= dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    assert "WEFT_SERVER_DRAIN" in told
    told["WEFT_DATABASE_URL"] = _as_role(url, urlsplit(told["WEFT_DATABASE_URL"]).username or "")
    return told | {"WEFT_SERVER_DRAIN": "3s"}  # still more than the balancer below needs


def _as_role(url: str, role: str) -> str:
    return urlsplit(url)._replace(netloc=f"{role}@", path="/deployed").geturl()


def _service(unit: str) -> configparser.SectionProxy:
    read = configparser.RawConfigParser(strict=False, interpolation=None)
    read.read(SYSTEMD / f"weft-{unit}.service", encoding="utf-8")
    return read["Service"]


def _words(unit: str) -> list[str]:
    """Return the command line of a unit, at a free port and with the handlers of the test."""
    words = _service(unit)["ExecStart"].replace("%i", "cli_app").split()[1:]
    return ["0" if before == "--port" else word for before, word in zip(["", *words], words, strict=False)]


class _Parts:
    """The parts of the installation that run."""

    def __init__(self, cli: Cli, server_cli: Cli, stack: contextlib.ExitStack) -> None:
        self._cli = cli
        self._server_cli = server_cli
        self._stack = stack

    async def start(self, unit: str) -> tuple[Command, str]:
        """Start a part; return it and what it says when it is ready."""
        is_server = unit == "server@"
        part = self._stack.enter_context((self._server_cli if is_server else self._cli).start(*_words(unit)))
        return part, await asyncio.to_thread(part.line, "answers at" if is_server else r"ready\b")

    async def stop(self, part: Command) -> None:
        """Stop a part as systemd does, and check that it has ended well."""
        part.signal(signal.SIGTERM)
        assert await asyncio.to_thread(part.code) == 0, part.lines


class _Balancer:
    """Spreads requests over servers that say they are ready, and tries another when one takes no connection."""

    def __init__(self, token: str) -> None:
        self.servers: dict[str, bool] = {}
        self._http = httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {token}", "connection": "close"})
        self.submitted: list[int] = []
        self._stopping = False

    async def watch(self) -> None:
        while not self._stopping:
            for url in list(self.servers):
                self.servers[url] = await self._is_ready(url)
            await asyncio.sleep(0.1)

    async def _is_ready(self, url: str) -> bool:
        try:
            return (await self._http.get(f"{url}/readyz")).status_code == httpx.codes.OK
        except httpx.TransportError:
            # Also one that went just then: this is a look, and no request of anybody.
            return False

    async def submit(self, first: int, step: int) -> None:
        """Submit jobs until told to stop; each must be answered, and made."""
        number = first
        while not self._stopping:
            url = next(url for url, is_ready in self.servers.items() if is_ready)
            try:
                answer = await self._http.post(
                    f"{url}/api/v1/jobs", json={"workflow": "rolling", "inputs": {"n": number}}
                )
            except httpx.ConnectError:
                self.servers[url] = False  # nothing was sent
                continue
            assert answer.status_code == 201, answer.text
            self.submitted.append(int(answer.json()["id"]))
            number += step
            await asyncio.sleep(0.1)

    async def carry_on(self, load: list[asyncio.Task[None]]) -> None:
        """Return when more has been submitted, after all that was under way before."""
        before = len(self.submitted)
        while len(self.submitted) < before + 2 * len(load):
            done, _ = await asyncio.wait(load, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            assert not done, [task.exception() for task in done]

    def stop(self) -> None:
        self._stopping = True


@pytest.fixture
async def url(server_url: str, home: Path, tmp_path: Path) -> AsyncIterator[str]:
    """The address, as its owner, of a database that was made and migrated by the files to deploy by."""
    # The test's server has another database of that name.
    script = (
        (DEPLOY / "compose" / "roles.sql").read_text(encoding="utf-8").replace("database weft ", "database deployed ")
    )
    made = await asyncio.to_thread(
        subprocess.run,
        [str(pg_bin() / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", server_url],
        input=script, capture_output=True, text=True, check=False,
        env={"OWNER_PASSWORD": "it's", "SERVER_PASSWORD": "another"},
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    told = _told(server_url, tmp_path, "weft.env")
    await asyncio.to_thread(Cli(None, home, **told), *_words("migrate"))
    yield told["WEFT_DATABASE_URL"]
    conn = await asyncpg.connect(server_url)
    for statement in ("drop database deployed with (force)", "drop role weft, weft_server"):
        await conn.execute(statement)
    await conn.close()


@pytest.fixture
def cli(url: str, home: Path, tmp_path: Path) -> Cli:
    return Cli(None, home, **_told(url, tmp_path, "weft.env"))


@pytest.fixture
def server_cli(url: str, home: Path, tmp_path: Path) -> Cli:
    """`weft` as the units of servers are told."""
    return Cli(None, home, **_told(url, tmp_path, "weft.env", "server.env"))


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


async def test_each_part_is_restarted_under_load_and_no_request_fails_and_no_task_is_lost(
    cli: Cli, server_cli: Cli, client: weft.Client, stack: contextlib.ExitStack
) -> None:
    assert "already" in await asyncio.to_thread(cli, *_words("migrate"))
    await client.workflows.push(FLOW)
    parts, balancer = (
        _Parts(cli, server_cli, stack),
        _Balancer((await client.tokens.create("load", role="writer")).secret),
    )
    units = ("server@", "orchestrator", "worker@")
    running = await asyncio.gather(*(parts.start(unit) for unit in units))
    balancer.servers[_address(running[0][1])] = True
    load = [asyncio.create_task(work) for work in (balancer.watch(), *(balancer.submit(n, 3) for n in range(3)))]
    for unit, (old, _) in zip(units, running, strict=True):
        _, said = await parts.start(unit)  # a new one first, as whoever rolls out a release does
        if unit == "server@":
            balancer.servers[_address(said)] = True
        await parts.stop(old)
        assert not any("second wall" in line for line in old.lines)
        await balancer.carry_on(load)
    balancer.stop()
    await asyncio.gather(*load)
    jobs = await asyncio.gather(*(client.jobs.wait(job_id, timeout=60) for job_id in balancer.submitted))
    assert len({job.id for job in jobs}) == len(balancer.submitted)
    assert {str(job.state) for job in jobs} == {"completed"}


def _address(said: str) -> str:
    found = re.search(r"http://\S+", said)
    assert found is not None
    return found.group()
