"""Tries every escape against one wall alone, each in a process of its own, and prints what it got, one line each.

Run by `test_sql_escapes`: with ``duckdb``, DuckDB's own settings are the only wall; with ``kernel``, only what the
kernel holds back, while DuckDB would do everything. Weft itself reads no SQL here.
"""

from __future__ import annotations

import json
import os
import sys

import duckdb

from weft.data import query_child, walls

LIMITS = {"memory": 200_000_000, "spill": 10_000_000, "threads": 1}
BOUNDS = walls.Bounds(memory=LIMITS["memory"], spill=LIMITS["spill"], cpu_seconds=5, seconds=1)


def attempt(connection: duckdb.DuckDBPyConnection, wall: str, orders: str, secret: str, sql: str) -> str:
    if wall == "duckdb":
        query_child.lock(connection, LIMITS, [orders])
    else:
        missing = walls.put_up(BOUNDS, [orders], None)
        if missing:
            return f"WALLS MISSING {missing}"
    connection.execute(f"create view orders as from read_parquet('{orders}')")
    # Whatever it did to the settings, what comes after it is as shut out as before.
    first, then = answered(connection, sql), answered(connection, f"from read_text('{secret}')")
    return f"{first}\nthen: {then}"


def answered(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    try:
        return str(connection.execute(sql).fetchall())
    except duckdb.Error as problem:
        return f"{type(problem).__name__}: {problem}"


def main() -> None:
    wall, orders, secret, folder = sys.argv[1:]
    connection = query_child.connect()
    for number, (what, sql) in enumerate(json.load(sys.stdin)):
        heard, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            # Whatever is written to the process's own places is lost.
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.makedirs(f"{folder}/{number}")
            os.chdir(f"{folder}/{number}")
            answer = attempt(connection, wall, orders, secret, sql).encode(errors="replace")[:60_000]
            os.write(said, answer)
            os._exit(0)
        os.close(said)
        answer = b""
        while part := os.read(heard, 65_536):
            answer += part
        os.close(heard)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"what": what, "answer": answer.decode(errors="replace"), "status": status}), flush=True)


main()
