"""Addresses with several hosts, and with the folder of a socket: what libpq and asyncpg understand, Weft does too."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from apps.cli_scene import Cli

from pooler import Pooler


def test_of_several_hosts_the_first_that_fits_is_used(pooler: Pooler, home: Path) -> None:
    parts = urlsplit(pooler.url)
    several = parts._replace(netloc=f"postgres@127.0.0.1:1,127.0.0.1:{parts.port}")
    url = several._replace(query=f"{parts.query}&target_session_attrs=read-write").geturl()
    cli = Cli(url, home, WEFT_POOLER="transaction", WEFT_WORKER_POLL_INTERVAL="50ms")
    assert "already" in cli("migrate")
    with cli.worker():
        assert cli.json("tasks", "enqueue", "cli:add", "--params", '{"a": 1}', "--wait")["output"] == 2


def test_a_standby_is_not_taken_for_the_primary(url: str, home: Path) -> None:
    cli = Cli(f"{url}&target_session_attrs=standby", home)
    complaint = cli("tasks", "list", code=3)
    assert complaint.startswith("weft: cannot reach PostgreSQL at postgresql://")
    complaint = Cli(f"{url}&target_session_attrs=odd", home)("tasks", "list", code=3)
    assert complaint.startswith("weft: setting WEFT_DATABASE_URL: asyncpg refuses it")


@pytest.mark.parametrize("folders", ["{}", "/nowhere,{}"])
def test_a_host_variable_that_is_a_folder_leads_to_its_socket(url: str, home: Path, folders: str) -> None:
    parts = urlsplit(url)
    variables = {
        "POSTGRES_HOST": folders.format(parse_qs(parts.query)["host"][0]),
        "POSTGRES_PORT": parse_qs(parts.query)["port"][0],
        "POSTGRES_DB": parts.path.removeprefix("/"),
    }
    cli = Cli(None, home, **variables)
    assert cli("tasks", "list").strip() == "no tasks"
    assert cli("db", "psql", "-Atc", "select current_database()").strip() == variables["POSTGRES_DB"]
