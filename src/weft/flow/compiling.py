"""Makes what evaluates an expression of its text, by way of Jinja's parser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError

from weft.core.json import text_problem
from weft.core.suggestions import did_you_mean
from weft.flow.budget import Budget, ExpressionError
from weft.flow.expressions import MAX_FIELDS, MAX_TEXT, Evaluate, Reference, Values, named
from weft.flow.filters import LENIENT, find_filter, find_test
from weft.flow.operators import BINARY, COMPARISONS, joined, ranged
from weft.flow.syntax import STATEMENTS, syntax_problem
from weft.flow.values import Json, field_of, holds, listed, number, present, weigh, written

_ENVIRONMENT = Environment(keep_trailing_newline=True, autoescape=False)


def parse(text: str, *, is_bare: bool = False) -> list[nodes.Expr]:
    """Return the parts of a text; raises `ExpressionError` for what is none."""
    if len(text) > MAX_TEXT:
        raise ExpressionError(
            f"the text has {len(text):,} characters, and with an expression in it may have {MAX_TEXT:,}"
        )
    try:
        template = _ENVIRONMENT.parse(text)
    except TemplateSyntaxError as problem:
        raise ExpressionError(syntax_problem(text, str(problem.message), is_bare=is_bare)) from None
    except ValueError:
        raise ExpressionError("a number beyond 64 bits") from None  # so many digits that Python does not read it
    except RecursionError:
        raise ExpressionError("the expression is nested too deep") from None
    found: list[nodes.Expr] = []
    for statement in template.body:
        if not isinstance(statement, nodes.Output):
            raise ExpressionError(STATEMENTS)
        found += statement.nodes
    return found


def bounded(node: nodes.Expr, evaluate: Evaluate) -> Evaluate:
    """Return what evaluates to no more than may come out of an expression."""
    while isinstance(node, (nodes.Getattr, nodes.Getitem)):
        node = node.node
    if isinstance(node, nodes.Name):
        return evaluate  # was there before, however large

    def weighed(values: Values, budget: Budget) -> Json:
        value = evaluate(values, budget)
        if type(value) in (list, dict):
            budget.fill(weigh(value))
        return value

    return weighed


class Compiler:
    """Makes closures of a syntax tree, and notes what they refer to."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.references: list[Reference] = []
        self._names = names

    def compile(self, node: nodes.Node) -> Evaluate:
        """Return what evaluates a part; raises `ExpressionError` for what is not for expressions here."""
        try:
            made = getattr(self, f"_{type(node).__name__.lower()}", None)
            if made is not None:
                return made(node)  # type: ignore[no-any-return]
            if type(node) in BINARY:
                return self._binary(node)
        except RecursionError:
            raise ExpressionError("the expression is nested too deep") from None
        raise ExpressionError("something in it is not for expressions here")

    def _templatedata(self, node: nodes.TemplateData) -> Evaluate:
        return lambda values, budget: node.data

    def _const(self, node: nodes.Const) -> Evaluate:
        value = number(node.value) if type(node.value) in (int, float) else node.value
        if type(value) is str and (flaw := text_problem(value)) is not None:
            raise ExpressionError(f"a text {flaw}")
        return lambda values, budget: value

    def _name(self, node: nodes.Name) -> Evaluate:
        return self._access(node)

    def _getattr(self, node: nodes.Getattr) -> Evaluate:
        return self._access(node)

    def _getitem(self, node: nodes.Getitem) -> Evaluate:
        if isinstance(node.arg, nodes.Slice):
            return self._sliced(node.node, node.arg)
        return self._access(node)

    def _access(self, node: nodes.Expr) -> Evaluate:
        """A name, and the fields that are taken of it one after the other."""
        keys: list[nodes.Expr | str] = []
        while isinstance(node, (nodes.Getattr, nodes.Getitem)) and not (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            keys.append(node.attr if isinstance(node, nodes.Getattr) else node.arg)
            node = node.node
        keys.reverse()
        if len(keys) > MAX_FIELDS:
            raise ExpressionError(f"more than {MAX_FIELDS} fields are taken one of the other")
        if not isinstance(node, nodes.Name):
            return self._take(self.compile(node), "the value", keys)
        if node.name not in self._names:
            self._refuse_name(node.name)
        self.references.append(Reference(node.name, tuple(_constants(keys))))
        name = node.name
        return self._take(lambda values, budget: named(values, name), name, keys)

    def _take(self, of: Evaluate, name: str, keys: list[nodes.Expr | str]) -> Evaluate:
        for key in keys:
            if isinstance(key, str) or (isinstance(key, nodes.Const) and type(key.value) in (str, int)):
                if isinstance(key, nodes.Const):
                    self._const(key)  # refuses what is no value
                constant = key if isinstance(key, str) else key.value
                name = f"{name}.{constant}" if type(constant) is str else f"{name}[{constant}]"
                of = _entry(of, constant, name)
            elif isinstance(key, nodes.Tuple):
                raise ExpressionError("in `[ ]` stands one name in quotes, or one number")
            else:
                name = f"{name}[…]"
                of = _computed_entry(of, self.compile(key), name)
        return of

    def _refuse_name(self, name: str) -> NoReturn:
        hint = did_you_mean(name[:60], self._names) or f" There are {', '.join(self._names)}."
        raise ExpressionError(f"there is no name {name[:60]!r} here.{hint}")

    def _sliced(self, of: nodes.Expr, part: nodes.Slice) -> Evaluate:
        whole = self.compile(of)
        bounds = [None if each is None else self.compile(each) for each in (part.start, part.stop, part.step)]

        def evaluate(values: Values, budget: Budget) -> Json:
            start, stop, step = (None if each is None else int(number(each(values, budget))) for each in bounds)
            if step == 0:
                raise ExpressionError("a step of a slice must not be 0")
            value = present(whole(values, budget))
            if type(value) is str:
                budget.fill(len(value))
                return value[start:stop:step]
            return listed(value, budget)[start:stop:step]

        return evaluate

    def _filter(self, node: nodes.Filter) -> Evaluate:
        if node.node is None:
            raise ExpressionError("a filter needs a value")
        return self._applied(find_filter(node.name), node)

    def _test(self, node: nodes.Test) -> Evaluate:
        return self._applied(find_test(node.name), node)

    def _applied(self, apply: Callable[..., Json], node: nodes.Filter | nodes.Test) -> Evaluate:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise ExpressionError("`*` and `**` are not for expressions here")
        assert node.node is not None
        value = self.compile(node.node)
        args = [self.compile(each) for each in node.args]
        named = {str(each.key): self.compile(each.value) for each in node.kwargs}
        # What takes the place of a value that is not there need not be there itself while nobody needs it.
        given = _as_it_is if apply in LENIENT else present

        def evaluate(values: Values, budget: Budget) -> Json:
            try:
                return apply(
                    budget,
                    value(values, budget),
                    *[given(each(values, budget)) for each in args],
                    **{key: given(each(values, budget)) for key, each in named.items()},
                )
            except TypeError:
                raise ExpressionError(f"{node.name} does not take such arguments") from None

        return evaluate

    def _call(self, node: nodes.Call) -> Evaluate:
        if (
            isinstance(node.node, nodes.Name)
            and node.node.name == "range"
            and not (node.kwargs or node.dyn_args or node.dyn_kwargs)
        ):
            args = [self.compile(each) for each in node.args]
            return lambda values, budget: ranged([each(values, budget) for each in args], budget)
        raise ExpressionError("calls are not for expressions here: use a filter, as in `value | split(',')`")

    def _compare(self, node: nodes.Compare) -> Evaluate:
        first = self.compile(node.expr)
        rest = [(COMPARISONS[each.op], self.compile(each.expr)) for each in node.ops]

        def evaluate(values: Values, budget: Budget) -> bool:
            left = first(values, budget)
            for compare, operand in rest:
                right = operand(values, budget)
                if not compare(left, right, budget):
                    return False
                left = right
            return True

        return evaluate

    def _and(self, node: nodes.And) -> Evaluate:
        left, right = self.compile(node.left), self.compile(node.right)

        def evaluate(values: Values, budget: Budget) -> Json:
            value = left(values, budget)
            return right(values, budget) if holds(value) else value

        return evaluate

    def _or(self, node: nodes.Or) -> Evaluate:
        left, right = self.compile(node.left), self.compile(node.right)

        def evaluate(values: Values, budget: Budget) -> Json:
            value = left(values, budget)
            return value if holds(value) else right(values, budget)

        return evaluate

    def _not(self, node: nodes.Not) -> Evaluate:
        value = self.compile(node.node)
        return lambda values, budget: not holds(value(values, budget))

    def _condexpr(self, node: nodes.CondExpr) -> Evaluate:
        test, yes = self.compile(node.test), self.compile(node.expr1)
        no = self.compile(node.expr2) if node.expr2 is not None else lambda values, budget: ""
        return lambda values, budget: yes(values, budget) if holds(test(values, budget)) else no(values, budget)

    def _binary(self, node: Any) -> Evaluate:
        left, right, operate = self.compile(node.left), self.compile(node.right), BINARY[type(node)]
        return lambda values, budget: operate(present(left(values, budget)), present(right(values, budget)), budget)

    def _neg(self, node: nodes.Neg) -> Evaluate:
        value = self.compile(node.node)
        return lambda values, budget: number(-number(value(values, budget)))

    def _pos(self, node: nodes.Pos) -> Evaluate:
        value = self.compile(node.node)
        return lambda values, budget: number(value(values, budget))

    def _concat(self, node: nodes.Concat) -> Evaluate:
        parts = [self.compile(each) for each in node.nodes]
        return lambda values, budget: joined([part(values, budget) for part in parts], budget)

    def _list(self, node: nodes.List | nodes.Tuple) -> Evaluate:
        items = [self.compile(each) for each in node.items]
        return lambda values, budget: [present(each(values, budget)) for each in items]

    _tuple = _list

    def _dict(self, node: nodes.Dict) -> Evaluate:
        pairs = [(self.compile(pair.key), self.compile(pair.value)) for pair in node.items]

        def evaluate(values: Values, budget: Budget) -> dict[str, Json]:
            return {written(key(values, budget), budget): present(value(values, budget)) for key, value in pairs}

        return evaluate


def _as_it_is(value: Json) -> Json:
    return value


def _entry(of: Evaluate, key: str | int, name: str) -> Evaluate:
    return lambda values, budget: field_of(of(values, budget), key, name)


def _computed_entry(of: Evaluate, key: Evaluate, name: str) -> Evaluate:
    return lambda values, budget: field_of(of(values, budget), present(key(values, budget)), name)


def _constants(keys: list[nodes.Expr | str]) -> Iterator[str | int | None]:
    """The fields as far as they are known without evaluating; None for one that is computed."""
    for key in keys:
        if isinstance(key, str):
            yield key
        elif isinstance(key, nodes.Const) and type(key.value) in (str, int):
            yield key.value
        else:
            yield None
