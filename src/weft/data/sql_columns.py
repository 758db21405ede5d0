"""Reads the text of a query for what its columns are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.data.sql_tables import Outer, Relation, Sources, Untellable, named_apart

_MOST_TOKENS = 20_000
_DEEPEST = 50
# So many columns are looked at, each of them as often as another is made of it.
_MOST_STEPS = 500_000
_OPENING, _CLOSING = "([{", ")]}"
# Tables that functions make of their arguments.
_MADE = frozenset({"generate_series", "generateseries", "range", "repeat", "unnest", "json_each", "json_tree"})


def told(sql: str, schemas: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[str, str]]]:
    """Return for each column of a query the columns of datasets that it is made of; raises `Untellable`.

    Texts can be made by which this takes any time: see `weft.data.sql_lineage`, which bounds it.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    try:
        outputs = _Reader(schemas).query(_parsed(sql), Outer({}))
    except RecursionError:
        raise Untellable("the query is nested too deeply") from None
    for name, sources in outputs:
        if name is not None:
            found[name] = sorted({*found.get(name, ()), *sources})
    return found


def _parsed(sql: str) -> Any:
    """Return the tree of the one query that a text is."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
        depth = deepest = 0
        for token in tokens:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            deepest = max(deepest, depth)
        if len(tokens) > _MOST_TOKENS or deepest > _DEEPEST:
            raise Untellable("the query is nested too deeply, or has too many words")
        statements = [each for each in sqlglot.parse(sql, read="duckdb") if each is not None]
    except SqlglotError as problem:
        raise Untellable(f"the query is not understood: {str(problem).partition(chr(10))[0][:200]}") from None
    if len(statements) != 1:
        raise Untellable(f"a query is one statement, and this is {len(statements) or 'none'}")
    return statements[0]


@dataclass(slots=True)
class _Scope(Outer):
    """What the expressions of one select may name: its tables by name, its own columns so far, and what is outside."""

    relations: list[tuple[str, Relation]] = field(default_factory=list)
    # Columns that several tables share by USING, which stand for one.
    shared: dict[str, Sources] = field(default_factory=dict)
    aliases: dict[str, Sources] = field(default_factory=dict)

    def find(self, parts: Sequence[str]) -> Sources | None:
        """Return what a name means: a column, a column of a table, a field in it, or a whole table."""
        first = parts[0]
        if len(parts) > 1:
            for name, relation in self.relations:
                if name == first and (found := relation.get(parts[1])) is not None:
                    return found
        if first in self.shared:
            return self.shared[first]
        having = [relation.columns[first][1] for _, relation in self.relations if first in relation.columns]
        if having:
            return frozenset[tuple[str, str]]().union(*having)
        if first in self.aliases:
            return self.aliases[first]
        for name, relation in self.relations:
            if name == first:
                return relation.all()
        loose = [relation.rest for _, relation in self.relations if relation.rest is not None]
        return frozenset[tuple[str, str]]().union(*loose) if loose else None


class _Reader:
    """Reads the tree of one query, each part of it once."""

    def __init__(self, schemas: Mapping[str, Sequence[str]]) -> None:
        self._known = {name.lower(): (name, columns) for name, columns in schemas.items()}
        self._steps = 0

    def query(self, node: Any, outer: Outer) -> list[tuple[str | None, Sources]]:
        """Return the columns that a query has, by place."""
        from sqlglot import exp

        outer = self._with(node, outer)
        match node:
            case exp.Subquery() if not (node.args.get("joins") or node.args.get("pivots")):
                return self.query(node.this, outer)
            case exp.Select():
                return self._select(node, outer)
            case exp.SetOperation():
                return self._joined_rows(node, outer)
            case exp.Values():
                return [(None, sources) for _, sources in self._values(node, _Scope(outer.made, outer.above))]
            case exp.Table():
                return [(name, sources) for name, sources in self._table(node, _Scope(outer.made)).columns.values()]
            case _:
                raise Untellable(f"of {_kind(node)} it cannot be told what its columns are made of")

    def _with(self, node: Any, outer: Outer) -> Outer:
        """Return what is outside of a query together with the tables that it makes itself before."""
        from sqlglot import exp

        found = node.args.get("with_") or node.args.get("with")
        if found is None:
            return outer
        made = dict(outer.made)
        for each in found.expressions:
            name, renamed = each.alias.lower(), each.args["alias"].args.get("columns") or ()
            if found.args.get("recursive") and isinstance(each.this, exp.SetOperation):
                made[name] = self._recursive(each.this, name, renamed, Outer(made, outer.above))
            else:
                made[name] = self._made(self.query(each.this, Outer(made, outer.above)), renamed)
        return Outer(made, outer.above)

    def _recursive(self, node: Any, name: str, renamed: Sequence[Any], outer: Outer) -> Relation:
        """Return a table that is made of itself: first of what it begins with, until nothing is added any more."""
        found = self._made(self.query(node.this, outer), renamed)
        while True:
            again = self._made(self.query(node, Outer({**outer.made, name: found}, outer.above)), renamed)
            if again == found:
                return found
            found = again

    def _made(self, outputs: Sequence[tuple[str | None, Sources]], renamed: Iterable[Any]) -> Relation:
        return Relation(named_apart(outputs, [each.name for each in renamed]))

    def _joined_rows(self, node: Any, outer: Outer) -> list[tuple[str | None, Sources]]:
        """Return the columns of a union or the like, whose rows come from both sides."""
        from sqlglot import exp

        left, right = self.query(node.this, outer), self.query(node.expression, outer)
        if isinstance(node, exp.Except):
            return left
        if node.args.get("by_name"):
            more = {name.lower(): sources for name, sources in right if name is not None}
            both = [(name, sources | more.pop((name or "").lower(), frozenset())) for name, sources in left]
            return both + [(name, sources) for name, sources in right if name is not None and name.lower() in more]
        if len(left) != len(right):
            raise Untellable("the sides of a union have not as many columns")
        return [(name, sources | other) for (name, sources), (_, other) in zip(left, right, strict=True)]

    def _select(self, node: Any, outer: Outer) -> list[tuple[str | None, Sources]]:
        scope = _Scope(outer.made, outer.above)
        if (begin := node.args.get("from_") or node.args.get("from")) is not None:
            self._add(begin.this, scope)
        self._join(node, scope)
        found: list[tuple[str | None, Sources]] = []
        for each in node.expressions:
            for name, sources in self._outputs(each, scope):
                self._step(1 + len(sources))
                found.append((name, sources))
                if name is not None:
                    scope.aliases.setdefault(name.lower(), sources)
        return found

    def _add(self, node: Any, scope: _Scope) -> Relation:
        relation = self._relation(node, scope)
        scope.relations.append((node.alias_or_name.lower(), relation))
        self._join(node, scope)
        return relation

    def _join(self, node: Any, scope: _Scope) -> None:
        """Add the tables that a select, or a table, is joined with."""
        from sqlglot import exp

        for join in (*(node.args.get("joins") or ()), *(node.args.get("laterals") or ())):
            if not isinstance(join, exp.Join):
                self._add(join, scope)
                continue
            if join.args.get("kind") in ("SEMI", "ANTI"):
                continue
            before = {name for _, relation in scope.relations for name in relation.columns}
            added = self._add(join.this, scope)
            names = [each.name.lower() for each in join.args.get("using") or ()]
            if join.args.get("method") == "NATURAL":
                names = [name for name in added.columns if name in before]
            for name in names:
                sides = [relation.columns[name][1] for _, relation in scope.relations if name in relation.columns]
                scope.shared[name] = frozenset[tuple[str, str]]().union(*sides)

    def _relation(self, node: Any, scope: _Scope) -> Relation:
        from sqlglot import exp

        if node.args.get("pivots"):
            raise Untellable("of a pivot it cannot be told what its columns are made of")
        alias = node.args.get("alias")
        renamed = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                found = self._table(node, scope)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                return self._add(node.this, scope)
            case exp.Subquery() | exp.Lateral() if isinstance(node.this, exp.Subquery | exp.Query):
                found = self._made(self.query(node.this, Outer(scope.made, scope)), ())
            case exp.Values():
                found = Relation(named_apart(self._values(node, scope), renamed))
            case exp.Unnest():
                found = Relation({}, self._sources(node.expressions, scope))
            case exp.Table() | exp.Lateral() if _kind(node.this) in _MADE:
                found = Relation({}, self._sources([node.this], scope))
            case _:
                raise Untellable(f"the query reads {_kind(node.this)}, which is no dataset")
        if found.rest is not None:
            return Relation({name.lower(): (name, found.rest) for name in renamed}, found.rest)
        return Relation(named_apart(list(found.columns.values()), renamed)) if renamed else found

    def _table(self, node: Any, scope: Outer) -> Relation:
        name = node.name
        if node.args.get("db") is not None:
            raise Untellable(f'quote a name that has dots: "{node.text("db")}.{name}"')
        if name.lower() in scope.made:
            return scope.made[name.lower()]
        if name.lower() not in self._known:
            raise Untellable(f"the columns of {name} are not known")
        dataset, columns = self._known[name.lower()]
        self._step(len(columns))
        return Relation({column.lower(): (column, frozenset({(dataset, column)})) for column in columns})

    def _values(self, node: Any, scope: _Scope) -> list[tuple[str | None, Sources]]:
        rows = [[*each.expressions] if _kind(each) == "tuple" else [each] for each in node.expressions]
        columns = zip(*rows, strict=False)
        return [(f"col{place}", self._sources(column, scope)) for place, column in enumerate(columns)]

    def _outputs(self, node: Any, scope: _Scope) -> Iterator[tuple[str | None, Sources]]:
        """Yield the columns that one expression of a select stands for: one, or all that a star means."""
        from sqlglot import exp

        inner = node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Star):
            yield from self._star(inner, None, scope)
        elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            yield from self._star(inner.this, inner.parts[0].name.lower(), scope)
        elif isinstance(inner, exp.Alias):
            yield inner.alias, self._sources([inner.this], scope)
        else:
            name = inner.name if isinstance(inner, exp.Column | exp.Dot) else None
            yield name or None, self._sources([inner], scope)

    def _star(self, star: Any, of: str | None, scope: _Scope) -> Iterator[tuple[str | None, Sources]]:
        left_out = {each.name.lower() for each in star.args.get("except_") or star.args.get("except") or ()}
        changed = {each.alias.lower(): each.this for each in star.args.get("replace") or ()}
        called = {each.this.name.lower(): each.alias for each in star.args.get("rename") or ()}
        told: set[str] = set()
        relations = [relation for name, relation in scope.relations if of is None or name == of]
        if not relations:
            raise Untellable(f"there is no table {of}" if of else "there is no table")
        for relation in relations:
            if relation.rest is not None and not relation.columns:
                raise Untellable("a star stands for columns whose names cannot be told")
            for name, (shown, sources) in relation.columns.items():
                if name in left_out or (name in told and name in scope.shared):
                    continue
                told.add(name)
                if name in changed:
                    yield called.get(name, shown), self._sources([changed[name]], scope)
                else:
                    yield called.get(name, shown), scope.shared.get(name, sources) if of is None else sources

    def _sources(self, nodes: Iterable[Any], scope: _Scope) -> Sources:
        """Return all columns that expressions are made of."""
        from sqlglot import exp

        found: set[tuple[str, str]] = set()
        open_: list[tuple[Any, frozenset[str]]] = [(node, frozenset()) for node in nodes]
        while open_:
            node, own = open_.pop()
            self._step()
            match node:
                case exp.Column() if isinstance(node.this, exp.Star):
                    raise Untellable("a star inside of an expression stands for columns that cannot be told")
                case exp.Column():
                    parts = [part.name.lower() for part in node.parts]
                    if parts[0] not in own:
                        found |= self._named(parts, scope)
                        self._step(len(found))
                    continue
                case exp.Count() if isinstance(node.this, exp.Star):
                    continue
                case exp.Columns() | exp.Star():
                    raise Untellable("a star inside of an expression stands for columns that cannot be told")
                case exp.Subquery() | exp.Query():
                    for _, sources in self.query(node, Outer(scope.made, scope)):
                        found |= sources
                    continue
                case exp.Lambda():
                    own = own | {each.name.lower() for each in node.expressions}
                case exp.Comprehension():
                    own = own | {node.expression.name.lower()}
            open_ += [(each, own) for each in node.iter_expressions()]
        return frozenset(found)

    def _named(self, parts: Sequence[str], scope: _Scope) -> Sources:
        inside: Outer | None = scope
        while isinstance(inside, _Scope):
            if (found := inside.find(parts)) is not None:
                return found
            inside = inside.above
        raise Untellable(f"there is no column {'.'.join(parts)}")

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > _MOST_STEPS:
            raise Untellable("the query has too many columns")


def _kind(node: Any) -> str:
    """Return what a part of a query is, in the words of SQL: the name of a function, or the kind of a statement."""
    from sqlglot import exp

    return (node.name if isinstance(node, exp.Anonymous) else str(getattr(node, "key", node))).lower()
