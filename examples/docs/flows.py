"""The workflow of the tutorial "Your first workflow"."""

import weft


# docs: begin tasks
@weft.task(retry=3, timeout=60)
async def fetch(shop: str) -> list[int]:
    return [len(shop) * n for n in (1, 2, 3)]


@weft.task
def with_tax(amount: int, percent: int) -> float:
    return amount * (100 + percent) / 100


@weft.task
def total(amounts: list[float]) -> float:
    return sum(amounts)


# docs: end tasks


# docs: begin workflow
@weft.workflow
def sales(shop: str, percent: int = 25) -> float:
    """What a shop has sold, with tax."""
    amounts = with_tax.map(fetch(shop), percent=percent)
    return total(amounts)


# docs: end workflow

# docs: begin main
if __name__ == "__main__":
    print(weft.run(sales, shop="wien"))
# docs: end main
