"""The handlers of ``weft demo``: small pieces of real work, some of which fail."""

from __future__ import annotations

import csv
import hashlib
import io
import random
from collections import defaultdict

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


@task(name="demo:flaky_import", queue=QUEUE, retry=_SOON)
async def flaky_import(rows: int, ctx: Context) -> int:
    """Fail the first time, as the outside world does, and succeed when it is tried again."""
    print(f"attempt {ctx.attempt}: importing {rows} rows")
    if ctx.attempt == 1:
        raise ConnectionResetError("the other side hung up; it does so once")
    return sum(number * number for number in range(rows))


@task(name="demo:broken_report", queue=QUEUE, retry=_SOON)
async def broken_report(month: str) -> None:
    """Fail every time: it ends in the dead letter."""
    print(f"making the report of {month}")
    raise ValueError(f"there are no figures for {month}")
