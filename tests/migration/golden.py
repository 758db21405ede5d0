"""The schema as SQL text, normalised so that two dumps of the same schema are the same.

``python -m tests.migration.golden`` writes ``schema.sql`` beside this file anew: run it after each change of a
migration, and look at the difference before committing it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from weft.core.settings import Settings
from weft.db import embedded, migrate
from weft.db.embedded_programs import pg_bin

FILE = Path(__file__).with_name("schema.sql")
# Partitions are named by the day on which the schema was made.
_PARTITIONS = "weft.*_20[0-9][0-9][0-9][0-9][0-9][0-9]"


def dump(url: str) -> str:
    """Return the schema of a database without what differs from one day or server to the next."""
    command = [
        str(pg_bin() / "pg_dump"), "--schema-only", "--no-owner", "--no-privileges", "--schema=weft",
        "--schema=weft_data", f"--exclude-table={_PARTITIONS}", f"--dbname={url}",
    ]  # fmt: skip
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [
        line.rstrip()
        for line in text.splitlines()
        if not re.match(r"(--|SET |SELECT pg_catalog\.set_config|\\(un)?restrict )", line)
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() + "\n"


async def _made_anew() -> str:
    """Return the schema that the migrations make on a server of their own."""
    home = Path(tempfile.mkdtemp(prefix="weft-golden-", dir="/tmp"))
    home.chmod(0o755)
    settings = Settings(home=home)
    try:
        server = await embedded.ensure_running(settings)
        await migrate.upgrade(server.url)
        return await asyncio.to_thread(dump, server.url)
    finally:
        await embedded.stop(settings, mode="immediate")
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    FILE.write_text(asyncio.run(_made_anew()), encoding="utf-8")
    print(f"wrote {FILE}")
