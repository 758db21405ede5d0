"""What the columns of a query are made of, told by its text, whatever that is."""

from __future__ import annotations

import pytest

from weft.data.sql_columns import told
from weft.data.sql_lineage import Untold, columns_of_query
from weft.data.sql_tables import Untellable

SCHEMAS = {
    "orders": ["id", "day", "price", "quantity", "s", "l"],
    "people": ["id", "name"],
    "orders@3": ["id", "old"],
}
ALL = {name: f"orders.{name}" for name in SCHEMAS["orders"]}
JOINED = {**ALL, "id": "orders.id people.id", "name": "people.name"}
# The columns of each query, and what they are made of.
TOLD: list[tuple[str, dict[str, str]]] = [
    ("select day, sum(price * quantity) as total from orders group by day",
     {"day": "orders.day", "total": "orders.price orders.quantity"}),
    ("from orders", ALL),
    ("select * from orders o join people using (id)", JOINED),
    ("select * from orders natural join people", JOINED),
    ("select * from (orders join people using (id))", JOINED),
    ("select * from orders where id in (select id from people)", ALL),
    ("select o.id, p.* exclude (id) from orders o left join people p on p.id = o.id",
     {"id": "orders.id", "name": "people.name"}),
    ("select * exclude (l, s, id) replace (price + quantity as price) rename (day as d) from orders",
     {"d": "orders.day", "price": "orders.price orders.quantity", "quantity": "orders.quantity"}),
    ("with a as (select id, price as p from orders), b as (select a.*, p * 2 as d from a) select * from b",
     {"id": "orders.id", "p": "orders.price", "d": "orders.price"}),
    ("with recursive t(n, m) as (select id, price from orders union all select n + 1, m + n from t) select * from t",
     {"n": "orders.id", "m": "orders.id orders.price"}),
    ("select price as x from orders union all select id from people", {"x": "orders.price people.id"}),
    ("select id, price from orders union by name select id, name from people",
     {"id": "orders.id people.id", "price": "orders.price", "name": "people.name"}),
    ("select id from orders except select id from people", {"id": "orders.id"}),
    ("select (select max(name) from people p where p.id = o.id) as n, exists (select 1 from people) as e from orders o",
     {"n": "people.name", "e": ""}),
    ("select sum(price) over (partition by day order by id) as w, count(*) as c, 1 as one from orders",
     {"w": "orders.day orders.id orders.price", "c": "", "one": ""}),
    ('select old, o.id from "orders@3" o', {"old": "orders@3.old", "id": "orders@3.id"}),
    ("select price * 2 as double, double + quantity as more from orders",
     {"double": "orders.price", "more": "orders.price orders.quantity"}),
    ("select s.a.b as f, o.s.a as g, list_transform(l, e -> e + price) as t, [z + 1 for z in l] as u from orders o",
     {"f": "orders.s", "g": "orders.s", "t": "orders.l orders.price", "u": "orders.l"}),
    ("select u.v, i from orders, unnest(orders.l) as u(v), range(3) r(i)", {"v": "orders.l", "i": ""}),
    ("select a, b from (values (1, 2)) v(a, b)", {"a": "", "b": ""}),
    ("select x.id, x.id_1 from (select * from orders a, people b) x", {"id": "orders.id", "id_1": "people.id"}),
    ("select p.name from orders o, lateral (select name from people where people.id = o.id) p",
     {"name": "people.name"}),
    ("select a from (select price from orders) t(a)", {"a": "orders.price"}),
    ('select "PRICE" as "Pr ice", sum(id) from ORDERS group by all', {"Pr ice": "orders.price"}),
    ("(select id from orders limit 3)", {"id": "orders.id"}),
    ("select coalesce(a.id, b.id) as id from orders a full join people b on a.id = b.id",
     {"id": "orders.id people.id"}),
    ("select id from orders semi join people using (id)", {"id": "orders.id"}),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "columns"), TOLD)
def test_columns_are_made_of_those_in_their_expressions(sql: str, columns: dict[str, str]) -> None:
    found = {
        name: " ".join(f"{dataset}.{column}" for dataset, column in made) for name, made in told(sql, SCHEMAS).items()
    }
    assert found == columns


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select * from nothing", "the columns of nothing are not known"),
        ("select nothing from orders", "there is no column nothing"),
        ("select * from a.b", "quote a name that has dots"),
        ("select * from read_csv('x')", "which is no dataset"),
        ("select columns('p.*') from orders", "a star inside"),
        ("pivot orders on day using sum(price)", "of pivot"),
        ("select * from orders pivot (sum(price) for day in ('a'))", "of a pivot"),
        ("insert into x select 1", "of insert"),
        ("select 1; select 2", "this is 2"),
        ("", "this is none"),
        ("garbage ((", "is not understood"),
        ("select 'open", "is not understood"),
        ("select 1 union select 1, 2", "not as many columns"),
        ("select " + "(" * 60 + "1" + ")" * 60, "nested too deeply"),
    ],
)
def test_what_cannot_be_told_says_why(sql: str, why: str) -> None:
    with pytest.raises(Untellable, match=why):
        told(sql, SCHEMAS)


def test_a_text_that_no_parser_ends_with_is_given_up() -> None:
    for sql in (
        "select " + "struct(" * 45 + "id" + ")" * 45 + " as x from orders",
        "with a0 as (select * from orders), "
        + ", ".join(f"a{n + 1} as (select * from a{n} x, a{n} y)" for n in range(40))
        + " select * from a40",
        "select " + "case when id then " * 3000 + "id" + " end" * 3000 + " from orders",
        "select " + " + ".join(["1"] * 60_000),
    ):
        assert isinstance(columns_of_query(sql, SCHEMAS, seconds=4), Untold)


def test_the_same_is_told_by_a_process_of_its_own() -> None:
    found = columns_of_query("select day, sum(price) as total from orders group by day", SCHEMAS)
    assert found == {"day": [("orders", "day")], "total": [("orders", "price")]}
    assert columns_of_query("select \ud800", SCHEMAS) == {}
    assert columns_of_query("select nothing from orders", SCHEMAS) == Untold("there is no column nothing")
