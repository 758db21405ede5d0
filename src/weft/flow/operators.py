"""The operators of expressions, each bounded."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import nodes

from weft.flow.budget import Budget, ExpressionError
from weft.flow.values import Json, are_equal, before, kind_of, number, present, within, written

Operate = Callable[[Json, Json, Budget], Json]
_MAX_EXPONENT = 1024


def _add(left: Json, right: Json, budget: Budget) -> Json:
    if type(left) is str and type(right) is str:
        budget.fill(len(left) + len(right))
        return left + right
    if type(left) is list and type(right) is list:
        budget.spend(len(left) + len(right))
        return left + right
    return number(number(left) + number(right))


def _multiply(left: Json, right: Json, budget: Budget) -> Json:
    if type(left) is int and type(right) in (str, list):
        left, right = right, left
    if type(left) in (str, list) and type(right) is int:
        size = len(left) * max(0, right)
        if type(left) is str:
            budget.fill(size)
        else:
            budget.spend(size)
        return left * right
    return number(number(left) * number(right))


def _divided(operate: Callable[[int | float, int | float], int | float]) -> Operate:
    def apply(left: Json, right: Json, budget: Budget) -> Json:
        try:
            return number(operate(number(left), number(right)))
        except ZeroDivisionError:
            raise ExpressionError("a division by zero") from None
        except OverflowError:
            raise ExpressionError("a number came out that is too large") from None

    return apply


def _power(left: Json, right: Json, budget: Budget) -> Json:
    base, exponent = number(left), number(right)
    if abs(exponent) > _MAX_EXPONENT:
        raise ExpressionError(f"an exponent beyond {_MAX_EXPONENT}")
    try:
        return number(base**exponent)
    except (ZeroDivisionError, OverflowError):
        raise ExpressionError("a number came out that is too large") from None


BINARY: dict[type[nodes.BinExpr], Operate] = {
    nodes.Add: _add,
    nodes.Sub: lambda left, right, budget: number(number(left) - number(right)),
    nodes.Mul: _multiply,
    nodes.Div: _divided(lambda left, right: left / right),
    nodes.FloorDiv: _divided(lambda left, right: left // right),
    nodes.Mod: _divided(lambda left, right: left % right),
    nodes.Pow: _power,
}

COMPARISONS: dict[str, Callable[[Json, Json, Budget], bool]] = {
    "eq": are_equal,
    "ne": lambda left, right, budget: not are_equal(left, right, budget),
    "lt": before,
    "gt": lambda left, right, budget: before(right, left, budget),
    "lteq": lambda left, right, budget: not before(right, left, budget),
    "gteq": lambda left, right, budget: not before(left, right, budget),
    "in": within,
    "notin": lambda left, right, budget: not within(left, right, budget),
}


def joined(parts: list[Json], budget: Budget) -> str:
    """Return the texts of values, one after the other."""
    return "".join([written(part, budget) for part in parts])


def ranged(bounds: list[Json], budget: Budget) -> list[int]:
    """Return the whole numbers of a range, counted before they are made."""
    numbers = [present(bound) for bound in bounds]
    if not 1 <= len(numbers) <= 3 or any(type(bound) is not int for bound in numbers):
        kinds = ", ".join(kind_of(bound) for bound in numbers)
        raise ExpressionError(f"range needs one to three whole numbers, not {kinds or 'nothing'}")
    if len(numbers) == 3 and numbers[2] == 0:
        raise ExpressionError("a step of a range must not be 0")
    found = range(*numbers)
    # A length beyond a machine word has no len().
    budget.spend(max(0, (found.stop - found.start) // found.step))
    return list(found)
