"""A dataset that a query may read, and around it what it may not: files of others, an address that listens."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import duckdb

CANARY = "canary-7f3a91"
ESCAPES = Path(__file__).with_name("sql_escapes.sql")


@dataclass(frozen=True)
class World:
    """The folder of the caller's own dataset, the folder of others, and a socket that nobody must come to."""

    own: Path
    outside: Path
    listener: socket.socket

    @property
    def orders(self) -> str:
        """The only file that may be read."""
        return str(self.own / "orders.parquet")

    @property
    def secret(self) -> str:
        """A file of others."""
        return str(self.outside / "secret.txt")

    def escapes(self) -> list[tuple[str, str]]:
        """Return all attempts: what each tries, and its SQL in this world."""
        places = {
            "outside": self.outside,
            "secret_text": self.outside / "secret.txt",
            "secret_csv": self.outside / "secret.csv",
            "secret_json": self.outside / "secret.json",
            "secret_parquet": self.outside / "secret.parquet",
            "link": self.own / "link.parquet",
            "upwards": f"{self.own}/../{self.outside.name}/secret.parquet",
            "port": self.listener.getsockname()[1],
        }
        parts = [part.partition("\n") for part in ESCAPES.read_text(encoding="utf-8").strip().split("\n\n")]
        return [(what.removeprefix("-- "), sql.format(**places)) for what, _, sql in parts]

    def state(self) -> dict[str, str]:
        """Return what every file is, to see that none has changed, none is gone and none has come."""
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            for root in (self.own, self.outside)
            for path in sorted(root.rglob("*"))
        }

    def was_called(self) -> bool:
        """Return whether anybody came to the address that listens."""
        self.listener.setblocking(False)
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def shows(self, answer: str, sql: str) -> list[str]:
        """Return what an answer or an error shows and must not: contents of others, or paths that the SQL has not."""
        hidden = [CANARY, str(self.own), str(self.outside), os.path.expanduser("~"), "site-packages", "weft-query-"]
        return [text for text in hidden if text in answer and text not in sql]


def make(folder: Path) -> World:
    """Make the world in a folder."""
    own, outside = folder / "own", folder / "outside"
    own.mkdir(parents=True)
    outside.mkdir()
    with duckdb.connect() as connection:
        connection.execute(f"copy (select range as a from range(10)) to '{own}/orders.parquet'")
        connection.execute(f"copy (select '{CANARY}' as told) to '{outside}/secret.parquet'")
        connection.execute(f"copy (select '{CANARY}' as told) to '{outside}/secret.csv'")
        connection.execute(f"copy (select '{CANARY}' as told) to '{outside}/secret.json'")
    with duckdb.connect(f"{outside}/other.duckdb") as connection:
        connection.execute(f"create table t as select '{CANARY}' as told")
    (outside / "secret.txt").write_text(CANARY, encoding="utf-8")
    (outside / "schema.sql").write_text("create table evil as select 1;", encoding="utf-8")
    (outside / "load.sql").write_text("", encoding="utf-8")
    (own / "link.parquet").symlink_to(outside / "secret.parquet")
    listener = socket.create_server(("127.0.0.1", 0))
    return World(own, outside, listener)
