"""Loads the day's orders of each shop into a database every night, and reports on them.

Shows: another workflow as a node, groups and what comes after them, a branch, a workflow's defaults and time limit.
Run it: `python etl.py DAY FOLDER`, where FOLDER has `<shop>-<day>.csv` files. By cron: `0 3 * * * …`
"""

import csv
import sqlite3
import sys
from pathlib import Path

import weft

Row = list[str]


@weft.task
def extract(folder: str, shop: str, day: str) -> list[Row]:
    with (Path(folder) / f"{shop}-{day}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@weft.task
def clean(rows: list[Row]) -> list[Row]:
    return [row for row in rows if len(row) == 2 and row[1].replace(".", "", 1).isdigit()]


@weft.task
def load(folder: str, shop: str, day: str, rows: list[Row]) -> int:
    with sqlite3.connect(Path(folder) / "orders.db") as db:
        db.execute("create table if not exists orders (shop text, day text, number text, amount real)")
        # A second attempt replaces what the first may have written.
        db.execute("delete from orders where shop = ? and day = ?", (shop, day))
        db.executemany("insert into orders values (?, ?, ?, ?)", [(shop, day, *row) for row in rows])
    return len(rows)


@weft.task
def report(folder: str, day: str) -> dict[str, float]:
    with sqlite3.connect(Path(folder) / "orders.db") as db:
        found = db.execute("select shop, sum(amount) from orders where day = ? group by shop", (day,))
        return dict(found.fetchall())


@weft.task
def warn(day: str, count: int) -> str:
    return f"only {count} orders on {day}"


@weft.task
def add(counts: list[int]) -> int:
    return sum(counts)


@weft.workflow
def load_shop(folder: str, shop: str, day: str) -> int:
    """One shop's orders of one day."""
    return load(folder, shop, day, clean(extract(folder, shop, day)))


@weft.workflow(timeout=3600, defaults={"retry": weft.Retry(max_attempts=4, initial_delay=30), "timeout": 600})
def nightly(folder: str, day: str, fewest: int = 3) -> dict[str, object]:
    """All shops' orders of one day."""
    with weft.group("shops") as shops:
        counts = [load_shop.named(shop)(folder, shop, day) for shop in ("berlin", "wien")]
    total = add(counts)
    sums = report(folder, day)
    shops >> sums
    return {"orders": total, "sums": sums, "warning": weft.when(total < fewest, lambda: warn(day, total))}


if __name__ == "__main__":
    print(weft.run(nightly, day=sys.argv[1], folder=sys.argv[2]))
