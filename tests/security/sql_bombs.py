"""SQL that takes all it can get: time, memory, rows, depth, length; and SQL that is hardly text."""

from __future__ import annotations


def bombs() -> dict[str, str]:
    nested = "select 1 as a"
    for _ in range(400):
        nested = f"select a from ({nested})"
    doubled = "with t0 as (select 1 as a)"
    for level in range(1, 40):
        doubled += f", t{level} as (select x.a from t{level - 1} x, t{level - 1} y)"
    return {
        "a recursion without end": "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) from t",
        "a recursion that doubles": "with recursive t(n) as (select 1 union all select n from t, range(2)) select count(*) from t",
        "a recursion of texts": "with recursive t(s) as (select 'x' union all select s || s from t) select max(length(s)) from t",
        "a join of everything": "select count(*) from range(10000000) a, range(10000000) b where a.range * b.range % 7 = 3",
        "a join of everything, sorted": "select * from range(100000) a, range(100000) b order by hash(a.range + b.range)",
        "a list of everything": "select list(range) from range(2000000000)",
        "groups of everything": "select hash(range) as h, count(*) from range(1000000000) group by h",
        "all that is distinct": "select count(distinct hash(range)) from range(1000000000)",
        "a sort of everything": "select * from range(1000000000) order by hash(range)",
        "a window over everything": "select sum(hash(range) % 9) over (order by hash(range)) from range(100000000)",
        "a long text": "select repeat('x', 2000000000)",
        "many long texts": "select repeat('x', 1000000) from range(1000000)",
        "a text that is filled up": "select lpad('x', 2000000000, 'y')",
        "a text of texts": "select string_agg(repeat('x', 1000), ',') from range(100000000)",
        "a text by a format": "select format('{:>2000000000}', 'x')",
        "a thousand million rows": "select * from range(1000000000)",
        "a thousand million rows of nothing": "select null from range(1000000000)",
        "wide rows": "select " + ", ".join(f"repeat('x', 100000) as c{n}" for n in range(500)) + " from range(1000)",
        "many columns": "select " + ", ".join(["1"] * 20_000),
        "a sleep": "select sleep_ms(100000)",
        "a sleep by PostgreSQL's way": "select pg_sleep(100000)",
        "brackets in brackets": "select " + "(" * 20_000 + "1" + ")" * 20_000,
        "lists in lists": "select " + "[" * 5_000 + "1" + "]" * 5_000,
        "calls in calls": "select " + "abs(" * 20_000 + "1" + ")" * 20_000,
        "not not": "select " + "not " * 50_000 + "true",
        "minus minus": "select " + "- " * 50_000 + "1",
        "a long sum": "select " + " + ".join(["1"] * 50_000),
        "a long chain of or": "select * from orders where " + " or ".join(f"a = {n}" for n in range(15_000)),
        "a long chain of unions": " union all ".join(["select 1"] * 15_000),
        "queries in queries": nested,
        "each twice the one before": doubled + " select count(*) from t39",
        "a long list": "select 1 in (" + ",".join(map(str, range(40_000))) + ")",
        "SQL that is too long": "select 1 -- " + "x" * 300_000,
        "a name that is long": f'select * from "{"x" * 200_000}"',
        "a long case": "select case " + "when 1 = 2 then 3 " * 10_000 + "end",
        "an expression of signs": "select regexp_matches(repeat('a', 100000), '(a*)*(a*)*(a*)*b')",
        "a large number": "select 9" + "9" * 100_000,
        "JSON in JSON": "select json('" + "[" * 100_000 + "]" * 100_000 + "')",
        "a cast to what is deep": "select null::" + "struct(a " * 2_000 + "int" + ")" * 2_000,
        "all permutations": "select * from " + ", ".join(f"range(10) r{n}" for n in range(30)) + " order by random() limit 3",
        "a pivot of everything": "pivot (select range as a from range(10000)) on a in (" + ",".join(map(str, range(5000))) + ")",
        "a NUL": "select 'a\0b'",
        "half of a sign": "select '\ud800'",
        "signs without width": "select * from or\u200bders",
        "text that runs backwards": "select 1 -- \u202e ;daer",
        "a mark of the order of bytes": "\ufeffselect 1",
        "nothing": "",
        "only a comment": "-- nothing",
        "only a semicolon": ";",
    }  # fmt: skip
