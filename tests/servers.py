"""Servers of other versions than the embedded one, made from any folder of PostgreSQL's programs."""

from __future__ import annotations

import os
from pathlib import Path

import asyncpg

from weft.core.settings import Settings
from weft.db import embedded
from weft.db.embedded_config import write_config
from weft.db.embedded_layout import layout_of, prepare_home, prepare_socket_dir
from weft.db.embedded_postmaster import launch, serving, until
from weft.db.embedded_programs import Programs, run_program

START_SECONDS = 60.0


async def start(home: Path, programs: Programs) -> embedded.EmbeddedServer:
    """Make a server in ``home`` with settings and socket like the embedded one's, which finds it there and stops it."""
    settings = Settings(home=home)
    layout = layout_of(settings)
    prepare_home(layout)
    layout.data_dir.mkdir(mode=0o700)
    if layout.account:
        os.chown(layout.data_dir, layout.account.uid, layout.account.gid)
    options = ("-U", embedded.SUPERUSER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
    made = await run_program([programs.path("initdb"), "-D", str(layout.data_dir), *options], account=layout.account)
    assert made.code == 0, made.complaint
    prepare_socket_dir(layout)
    write_config(layout, programs.version)
    await launch(layout, programs)
    assert await until(lambda: serving(layout) is not None, START_SECONDS), layout.log_file.read_text()
    server = await embedded.ensure_running(settings)
    conn = await asyncpg.connect(embedded.database_url(server.socket_dir, "postgres"))
    await conn.execute(f"create database {embedded.DATABASE}")
    await conn.close()
    return server


async def programs_in(folder: Path) -> Programs:
    """Return the programs of a folder, with their version."""
    asked = await run_program([str(folder / "postgres"), "--version"])
    assert asked.code == 0, asked.complaint
    return Programs(folder, asked.output.split()[2])
