"""A password is in nothing that a command or a worker prints, whether all goes well or something goes wrong."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from apps.cli_scene import APPS, Cli, until

from warm import run_weft

ROLE = "keeper"
# No character of it is written in another way in an address, so that it would be found wherever it stood.
PASSWORD = "hush-4711"
# These print what the settings say, or refuse, and reach no database.
OFFLINE = {
    "config": ["config"],
    "config as JSON": ["config", "--json"],
    "db url": ["db", "url"],
    "db stop": ["db", "stop"],
}
ONLINE = {
    "db status": ["db", "status"],
    "db psql": ["db", "psql", "-c", "select 1"],
    "migrate": ["migrate"],
    "migrate current": ["migrate", "current"],
    "tasks list": ["tasks", "list"],
    "tasks enqueue": ["tasks", "enqueue", "h"],
}
WORKERS = {
    "worker": ["worker", "--app", "cli_app", "--log-level", "debug"],
    "workers": ["worker", "--app", "cli_app", "--processes", "2", "--log-level", "debug"],
}
UNREACHABLE = {
    "nobody listens": f"postgresql://{ROLE}:{PASSWORD}@127.0.0.1:1/weft",
    "in the query": f"postgresql://127.0.0.1:1/weft?user={ROLE}&password={PASSWORD}",
    "no such option": f"postgresql://{ROLE}:{PASSWORD}@127.0.0.1:1/weft?sslmode=odd",
}
UNSOUND = {
    "no port": f"postgresql://{ROLE}:{PASSWORD}@127.0.0.1:port/weft",
    "a port of letters and the password": f"postgresql://{ROLE}:1/{PASSWORD}@127.0.0.1/weft",
    "an @ too many": f"postgresql://{ROLE}:an@{PASSWORD}@127.0.0.1:1/weft",
    "a # too many": f"postgresql://{ROLE}:a#{PASSWORD}@127.0.0.1:1/weft",
    "no scheme": f"{ROLE}:{PASSWORD}@127.0.0.1:1/weft",
}


def printed(cli: Cli, command: Sequence[str]) -> str:
    """Run a command to its end and return all that it printed, be it well or not."""
    done = run_weft(command, environment=cli.environment, folder=APPS, text=None, timeout=60)
    text = done.stdout + done.stderr
    assert text
    assert "Traceback" not in text
    return text


def execute(url: str, statement: str) -> None:
    async def run() -> None:
        conn = await asyncpg.connect(url)
        await conn.execute(statement)
        await conn.close()

    asyncio.run(run())


def with_login(url: str, password: str) -> str:
    return urlsplit(url)._replace(netloc=f"{ROLE}:{password}@").geturl()


def is_refused(url: str) -> bool:
    try:
        execute(url, "select 1")
    except asyncpg.InvalidPasswordError:
        return True
    return False


@pytest.fixture
def guarded_url(url: str, server_home: Path) -> Iterator[str]:
    """The address of the test's database for a role of which the server asks a password."""
    rules = server_home / "pgdata" / "pg_hba.conf"
    before = rules.read_text(encoding="utf-8")
    execute(url, f"create role {ROLE} superuser login password '{PASSWORD}'")
    try:
        rules.write_text(f"local all {ROLE} scram-sha-256\n{before}", encoding="utf-8")
        execute(url, "select pg_reload_conf()")
        until(lambda: is_refused(with_login(url, "wrong")))
        yield with_login(url, PASSWORD)
    finally:
        rules.write_text(before, encoding="utf-8")
        execute(url, f"select pg_reload_conf(); drop role {ROLE}")


def test_commands_that_succeed_do_not_print_the_password(guarded_url: str, home: Path) -> None:
    cli = Cli(guarded_url, home, WEFT_LISTEN_URL=guarded_url)
    for command in (OFFLINE | ONLINE).values():
        assert PASSWORD not in printed(cli, command), command
    assert cli("db", "url", "--show-password").strip() == guarded_url


def test_commands_with_a_wrong_password_say_so_and_do_not_print_it(guarded_url: str, home: Path) -> None:
    wrong = guarded_url.replace(PASSWORD, "hush-0815")
    cli = Cli(wrong, home, WEFT_LISTEN_URL=wrong)
    for command in (ONLINE | WORKERS).values():
        text = printed(cli, command)
        assert "password authentication failed" in text, command
        assert "hush" not in text, command


@pytest.mark.parametrize("url", UNREACHABLE.values(), ids=UNREACHABLE)
def test_an_address_that_leads_nowhere_is_told_without_its_password(url: str, home: Path) -> None:
    cli = Cli(url, home)
    for command in (OFFLINE["db url"], ONLINE["migrate"], ONLINE["tasks list"], WORKERS["worker"]):
        assert PASSWORD not in printed(cli, command), command


@pytest.mark.parametrize("url", UNSOUND.values(), ids=UNSOUND)
def test_of_an_address_that_cannot_be_read_nothing_is_printed_that_could_be_the_password(url: str, home: Path) -> None:
    cli = Cli(url, home)
    for command in (OFFLINE["config"], OFFLINE["db url"], ONLINE["db psql"], ONLINE["tasks list"]):
        assert PASSWORD not in printed(cli, command), command


def test_the_password_of_the_postgres_variables_is_not_printed(home: Path) -> None:
    cli = Cli(None, home, POSTGRES_HOST="127.0.0.1", POSTGRES_PORT="1", POSTGRES_PASSWORD=PASSWORD)
    for command in (OFFLINE["config"], OFFLINE["db url"], ONLINE["migrate"], ONLINE["tasks list"]):
        assert PASSWORD not in printed(cli, command), command


def test_a_worker_that_loses_its_database_logs_no_password(guarded_url: str, url: str, home: Path) -> None:
    cli = Cli(guarded_url, home)
    with cli.worker("--log-level", "debug") as worker:
        execute(url, f"alter role {ROLE} nologin")
        execute(url, f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{ROLE}'")
        assert ROLE in worker.line("heartbeat failed: DatabaseUnavailable: cannot reach PostgreSQL at ")
        execute(url, f"alter role {ROLE} login")
        task_id = cli.enqueue("cli:fail", message="come back")
        until(lambda: cli.task(task_id).state == "dead")
        worker.signal(signal.SIGTERM)
        assert worker.code() == 0
        assert PASSWORD not in "\n".join(worker.lines)
