"""The handlers of the tutorial "Your first queue"."""

from pathlib import Path

import weft


@weft.task(name="report:total", retry=weft.Retry(max_attempts=2, initial_delay=0.5))
def total(path: str) -> float:
    print("reading", path)
    return sum(float(line) for line in Path(path).read_text().split())


@weft.task(name="report:mail", queue="mail", timeout=30)
async def mail(to: str, ctx: weft.Context) -> str:
    ctx.logger.info("attempt %s", ctx.attempt)
    return f"sent to {to}"
