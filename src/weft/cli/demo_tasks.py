"""The handlers of ``weft demo``, whose workflow is ``demo.yaml``: small pieces of real work, some of which fail."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import random
from collections import Counter, defaultdict
from typing import Any

from weft.queue.retry import Retry
from weft.worker.context import Context
from weft.worker.registry import task

QUEUE = "demo"
_SOON = Retry(max_attempts=3, backoff="fixed", initial_delay=0.3)


@task(name="demo:count_primes", queue=QUEUE)
async def count_primes(below: int) -> int:
    """Count the primes below a number with the sieve of Eratosthenes."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve)


@task(name="demo:stretch_key", queue=QUEUE)
def stretch_key(password: str, rounds: int) -> str:
    """Derive a key from a password; in a thread, as it is not async."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), b"weft demo", rounds).hex()


@task(name="demo:sum_orders", queue=QUEUE)
async def sum_orders(seed: int, lines: int) -> dict[str, int]:
    """Write a list of orders as CSV, read it back and add up the amounts per city."""
    dice = random.Random(seed)
    cities = ("Aberdeen", "Bologna", "Cork", "Delft", "Évora")
    text = io.StringIO()
    csv.writer(text).writerows((n, dice.choice(cities), dice.randrange(1, 500)) for n in range(lines))
    totals: defaultdict[str, int] = defaultdict(int)
    for _, city, amount in csv.reader(text.getvalue().splitlines()):
        totals[city] += int(amount)
    return dict(sorted(totals.items()))


@task(name="demo:plan", queue=QUEUE)
async def plan(pieces: int) -> list[int]:
    """Number the pieces of work."""
    print(f"planning {pieces} pieces")
    return list(range(pieces))


@task(name="demo:work", queue=QUEUE, retry=_SOON)
async def work(number: int, ctx: Context) -> dict[str, Any]:
    """Do a piece of work: which one, and whether it fails, is told by its number."""
    match number % 20:
        case 3:
            return {"kind": "import", "rows": _import_rows(1000 + number, ctx.attempt)}
        case 7 if number % 400 == 7:
            print(f"making the report of {2000 + number // 400}-02")
            raise ValueError(f"there are no figures for {2000 + number // 400}-02")
        case 1 | 5 | 11 | 17:
            return {"kind": "key", "key": (await asyncio.to_thread(stretch_key, f"secret {number}", 500))[:8]}
        case 2 | 6 | 12 | 18:
            return {"kind": "orders", "cities": len(await sum_orders(number, 200))}
        case _:
            return {"kind": "primes", "count": await count_primes(10_000 + number)}


def _import_rows(rows: int, attempt: int) -> int:
    """Fail the first time, as the outside world does, and succeed when it is tried again."""
    print(f"attempt {attempt}: importing {rows} rows")
    if attempt == 1:
        raise ConnectionResetError("the other side hung up; it does so once")
    return sum(number * number for number in range(rows))


@task(name="demo:report", queue=QUEUE)
async def report(results: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Count what came out; a piece that failed has nothing."""
    kinds = Counter(result["kind"] for result in results if result is not None)
    return {"pieces": len(results), "completed": sum(kinds.values()), **dict(sorted(kinds.items()))}


@task(name="demo:deliver", queue=QUEUE)
async def deliver(report: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Deliver the report; the first time nobody is at home."""
    print(f"attempt {ctx.attempt}: delivering")
    if ctx.attempt == 1:
        raise ConnectionRefusedError("nobody is at home; there is the second time")
    return report
