"""Queries over datasets: what they are given, what they answer, and how they end."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest
import pytest_asyncio

from weft.core.errors import InvalidInput, InvalidSetting
from weft.core.query_errors import InvalidQuery, QueryCancelled, QueryCrashed, QueryLimitReached, WallsMissing
from weft.data import walls
from weft.data.query_model import FORMATS, Attached, QueryLimits
from weft.data.query_process import QueryProcess, stand

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMITS = QueryLimits(seconds=60)
ENDLESS = QueryLimits(rows=10**15, bytes=10**15)
LONG = "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) from t"
TYPES = """
    select 1::tinyint as small, 2::bigint as large, 170141183460469231731687303715884105727::hugeint as huge,
      1.10::decimal(10, 2) as exact, 1.5::double as real, true as yes, 'ü"x' as words, 'ab'::blob as raw,
      date '2026-11-14' as day, time '10:11:12' as hour, timestamp '2026-11-14 10:11:12' as moment,
      timestamptz '2026-11-14 10:11:12+02' as instant, timestamp_ns '2026-11-14 10:11:12.123456789' as fine,
      interval '3 days' as span, [1, 2] as list, {'x': 1, 'y': [2]} as record, map {'k': 1} as pairs,
      null as nothing, uuid '01234567-89ab-cdef-0123-456789abcdef' as id, 'nan'::double as odd
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def queries() -> AsyncIterator[QueryProcess]:
    async with QueryProcess(LIMITS) as process:
        yield process


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _alone(queries: QueryProcess) -> None:
    """Begin when the queries that were ended by tests before are gone: a process takes a moment to end."""
    await ended(*children_of(queries))


@pytest.fixture
def orders(tmp_path: Path) -> Attached:
    """Three rows in one file."""
    return Attached(
        "orders", (written(tmp_path / "orders.parquet", "select range as a, 'x' || range as b from range(3)"),)
    )


def written(path: Path, select: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"copy ({select}) to '{path}' (format parquet)")
    return str(path)


async def rows(queries: QueryProcess, sql: str, *attached: Attached) -> list[dict[str, object]]:
    async with queries.query(sql, attached) as answer:
        return [json.loads(line) for line in (await answer.read()).splitlines()]


async def problem_of(queries: QueryProcess, sql: str, *attached: Attached) -> InvalidQuery:
    with pytest.raises(InvalidQuery) as caught:
        await rows(queries, sql, *attached)
    return caught.value


# What it answers.


async def test_an_answer_is_the_same_in_all_formats(queries: QueryProcess, orders: Attached) -> None:
    tables = {}
    for format in FORMATS:
        async with queries.query("select * from orders order by a", [orders], format) as answer:  # type: ignore[arg-type]
            assert [(each.name, each.type) for each in answer.columns] == [("a", "BIGINT"), ("b", "VARCHAR")]
            tables[format] = await answer.read()
            assert answer.rows == 3
            assert answer.bytes == len(tables[format])
    expected = {"a": [0, 1, 2], "b": ["x0", "x1", "x2"]}
    assert pa.ipc.open_stream(tables["arrow"]).read_all().to_pydict() == expected
    assert pyarrow.parquet.read_table(io.BytesIO(tables["parquet"])).to_pydict() == expected
    assert pyarrow.csv.read_csv(io.BytesIO(tables["csv"])).to_pydict() == expected
    assert pa.Table.from_pylist([json.loads(line) for line in tables["json"].splitlines()]).to_pydict() == expected


async def test_values_of_all_types_are_told_in_json(queries: QueryProcess) -> None:
    async with queries.query(TYPES) as answer:
        line = (await answer.read()).decode()
    assert '"huge":170141183460469231731687303715884105727' in line
    assert '"exact":1.10' in line
    found = json.loads(line)
    assert found | {"huge": 0, "exact": 0} == {
        "small": 1, "large": 2, "huge": 0, "exact": 0, "real": 1.5, "yes": True, "words": 'ü"x', "raw": "YWI=",
        "day": "2026-11-14", "hour": "10:11:12", "moment": "2026-11-14T10:11:12",
        "instant": "2026-11-14T08:11:12+00:00", "fine": "2026-11-14T10:11:12.123456", "span": "P0M3DT0S",
        "list": [1, 2], "record": {"x": 1, "y": [2]}, "pairs": [["k", 1]], "nothing": None,
        "id": "01234567-89ab-cdef-0123-456789abcdef", "odd": None,
    }  # fmt: skip


async def test_rows_are_read_one_by_one(queries: QueryProcess) -> None:
    async with queries.query("select range as a, 'ü' || repeat('x', 1000) as b, 1.10 as c from range(20000)") as answer:
        found = [row async for row in answer.records()]
    assert [row["a"] for row in found] == list(range(20_000))
    assert {row["b"] for row in found} == {"ü" + "x" * 1000}
    assert {str(row["c"]) for row in found} == {"1.10"}


async def test_values_of_all_types_are_told_in_csv(queries: QueryProcess) -> None:
    async with queries.query(TYPES, format="csv") as answer:
        header, line = (await answer.read()).decode().splitlines()
    assert header.replace('"', "").split(",")[:4] == ["small", "large", "huge", "exact"]
    assert line.startswith("1,2,170141183460469231731687303715884105727,1.10,1.5,true,")
    assert '"ü""x"' in line
    assert '"{""x"":1,""y"":[2]}"' in line


async def test_an_answer_without_rows_has_its_columns(queries: QueryProcess, orders: Attached) -> None:
    async with queries.query("select a from orders where a > 9", [orders], "csv") as answer:
        assert (await answer.read(), answer.rows) == (b'"a"\n', 0)
    assert await rows(queries, "select a from orders where a > 9", orders) == []


async def test_columns_of_the_same_name_get_numbers(queries: QueryProcess, orders: Attached) -> None:
    [row] = await rows(queries, "select a, a, 1 as a_1, a from orders where a = 2", orders)
    assert row == {"a": 2, "a_2": 2, "a_1": 1, "a_3": 2}


async def test_a_dataset_is_described_summarized_and_explained(queries: QueryProcess, orders: Attached) -> None:
    described = await rows(queries, "describe orders", orders)
    assert [each["column_name"] for each in described] == ["a", "b"]
    summarized = await rows(queries, "summarize orders", orders)
    assert [each["max"] for each in summarized] == ["2", "x2"]
    [explained] = await rows(queries, "explain analyze select * from orders", orders)
    assert "READ_PARQUET" in str(explained)


async def test_no_two_queries_draw_the_same_random_numbers(queries: QueryProcess) -> None:
    drawn = [await rows(queries, "select uuid() as u, random() as r") for _ in range(3)]
    assert len({str(each) for each in drawn}) == 3


async def test_an_unknown_format_is_refused(queries: QueryProcess) -> None:
    with pytest.raises(InvalidInput, match="must be one of arrow, csv, json, parquet"):
        async with queries.query("select 1", format="xml"):  # type: ignore[arg-type]
            pass


# What it is given.


@pytest.mark.parametrize(
    "name",
    ["orders@3", "orders@3.12", "sales/orders", "a.b.c", "with space", 'with"quote', "Größe", "select", "../up", "*"],
)
async def test_a_dataset_has_the_name_that_the_sql_has_for_it(queries: QueryProcess, tmp_path: Path, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    file = written(tmp_path / "a.parquet", "select 1 as a")
    assert await queries.mentioned(f"select * from {quoted}") == (name,)
    assert await rows(queries, f"select * from {quoted}", Attached(name, (file,))) == [{"a": 1}]


async def test_two_versions_of_a_dataset_are_read_at_once(queries: QueryProcess, tmp_path: Path) -> None:
    old = Attached("orders@1", (written(tmp_path / "1.parquet", "select 1 as a"),))
    new = Attached("orders@2", (written(tmp_path / "2.parquet", "select 2 as a"),))
    assert await rows(queries, 'select x.a, y.a as b from "orders@1" x, "orders@2" y', old, new) == [{"a": 1, "b": 2}]


async def test_names_that_differ_in_signs_that_no_folder_has_are_told_apart(
    queries: QueryProcess, tmp_path: Path
) -> None:
    one = Attached("a/b", (written(tmp_path / "1.parquet", "select 1 as a"),))
    two = Attached("a.b", (written(tmp_path / "2.parquet", "select 2 as a"),))
    assert await rows(queries, 'select x.a, y.a as b from "a/b" x, "a.b" y', one, two) == [{"a": 1, "b": 2}]


async def test_names_that_differ_in_case_only_are_refused(queries: QueryProcess, orders: Attached) -> None:
    problem = await problem_of(queries, "select 1 from orders", orders, Attached("ORDERS", orders.files))
    assert "where case does not matter" in str(problem)


async def test_a_dataset_without_files_has_its_columns(queries: QueryProcess) -> None:
    empty = Attached("orders", (), (("a", "INTEGER"), ("b c", "STRUCT(x VARCHAR[], y DECIMAL(10,2))")))
    async with queries.query("select * from orders", [empty]) as answer:
        found = [(each.name, each.type) for each in answer.columns]
        assert await answer.read() == b""
    assert found == [("a", "INTEGER"), ("b c", "STRUCT(x VARCHAR[], y DECIMAL(10,2))")]


@pytest.mark.parametrize("kind", ["INTEGER as a where true; drop view x; --", "(select 1)", "INTEGER)", "nonsense", ""])
async def test_what_is_no_type_runs_nothing(queries: QueryProcess, kind: str) -> None:
    await problem_of(queries, "select * from orders", Attached("orders", (), (("a", kind),)))


async def test_partitions_are_columns(queries: QueryProcess, tmp_path: Path) -> None:
    files = tuple(
        written(tmp_path / f"day=2026-11-{day}/kind={kind}/1.parquet", f"select {day} as a")
        for day, kind in ((14, "x"), (15, "a%2Fb*[y]"))
    )
    attached = Attached("orders", files, (("a", "INTEGER"), ("day", "DATE")), ("day", "kind"))
    async with queries.query("select * from orders order by a", [attached]) as answer:
        assert [(each.name, each.type) for each in answer.columns][1:] == [("day", "DATE"), ("kind", "VARCHAR")]
        found = [json.loads(line) for line in (await answer.read()).splitlines()]
    assert found == [{"a": 14, "day": "2026-11-14", "kind": "x"}, {"a": 15, "day": "2026-11-15", "kind": "a/b*[y]"}]


async def test_a_file_that_does_not_say_its_partition_is_told(queries: QueryProcess, orders: Attached) -> None:
    problem = await problem_of(queries, "from orders", Attached("orders", orders.files, (), ("day",)))
    assert (problem.kind, str(problem)) == ("unreadable", "a file of dataset orders does not say its partition (day)")


async def test_files_with_other_columns_are_one_dataset(queries: QueryProcess, tmp_path: Path) -> None:
    """A column that came later is null before, and is there even if no file has it yet."""
    files = (
        written(tmp_path / "1.parquet", "select 1 as a"),
        written(tmp_path / "2.parquet", "select 'x' as b, 2 as a"),
    )
    columns = (("a", "BIGINT"), ("b", "VARCHAR"), ("c", "DATE"))
    found = await rows(queries, "select * from orders order by a", Attached("orders", files, columns, mixed=True))
    assert found == [{"a": 1, "b": None, "c": None}, {"a": 2, "b": "x", "c": None}]


async def test_many_files_are_one_dataset(queries: QueryProcess, tmp_path: Path) -> None:
    file = written(tmp_path / "1.parquet", "select 1 as a")
    for number in range(2, 601):
        os.link(file, tmp_path / f"{number}.parquet")
    files = tuple(str(path) for path in tmp_path.glob("*.parquet"))
    assert await rows(queries, "select sum(a) as n from orders", Attached("orders", files)) == [{"n": 600}]


async def test_a_file_behind_a_link_is_read(queries: QueryProcess, tmp_path: Path, orders: Attached) -> None:
    """Whoever names the files decides which they are: a folder of data may be a link."""
    (tmp_path / "linked").symlink_to(Path(orders.files[0]).parent)
    linked = Attached("orders", (str(tmp_path / "linked" / "orders.parquet"),))
    assert await rows(queries, "select count(*) as n from orders", linked) == [{"n": 3}]


# Which datasets SQL mentions.


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select 1", ()),
        ("select * from orders", ("orders",)),
        ("from orders", ("orders",)),
        ("FROM Orders SELECT 1", ("Orders",)),
        ("select * from a, b join c using (x) where y in (select y from d)", ("a", "b", "c", "d")),
        ("select * from a union select * from a except select * from b", ("a", "b")),
        ("select (select max(x) from a) from b order by (select 1 from c)", ("a", "b", "c")),
        ('select * from "orders@3.12" o, unnest(o.items)', ("orders@3.12",)),
        ("select * from a, lateral (select * from b where b.x = a.x)", ("a", "b")),
        ("with orders as (select * from orders) select * from orders", ("orders",)),
        ("with a as (select * from b) select * from a", ("b",)),
        ("with a as (select * from b), b as (select * from a) select * from a, b", ("b",)),
        ("with A as (select 1) select * from a", ()),
        ("with a as (select 1) select * from (with b as (select * from a) select * from b), b", ("b",)),
        ("with a as materialized (select * from c) select * from d where exists (select 1 from a)", ("c", "d")),
        ("with recursive t as (select 1 as n union all select n + 1 from t, e) select * from t", ("e",)),
        ("select * from (select 1) orders, other", ("other",)),
        ("select * from orders as other", ("orders",)),
        ("describe orders", ("orders",)),
        ("summarize orders", ("orders",)),
        ("explain select * from orders", ("orders",)),
        ("explain analyze select * from orders", ("orders",)),
        ("pivot orders on a in (1, 2) using sum(b)", ("orders",)),
        ("unpivot orders on columns(*) into name n value v", ("orders",)),
        ("select list_transform([1], x -> (select max(a) from orders))", ("orders",)),
        ("select sum(x) over (order by (select 1 from b)) from a qualify row_number() over () = 1", ("b", "a")),
        ("select * from range(3), orders", ("orders",)),
        ("values ((select 1 from a))", ("a",)),
        ("select * from orders /* from other */ -- from third", ("orders",)),
        ("select 'from other' from orders", ("orders",)),
        ("table orders", ("orders",)),
        ("select * from orders limit (select 1 from b)", ("orders", "b")),
        ("select * from a where b = 'x';", ("a",)),
    ],
)
async def test_the_datasets_that_a_query_reads_are_known(
    queries: QueryProcess, sql: str, names: tuple[str, ...]
) -> None:
    assert sorted(await queries.mentioned(sql)) == sorted(names)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("selec 1", "syntax error"),
        ("", "a query is one statement, and this is none"),
        ("select 1; select 2", "a query is one statement, and this is 2"),
        ("insert into a values (1)", "only queries are run here, and this is INSERT"),
        ("explain explain select 1", "syntax error|only"),
        ("explain copy a to 'x'", "only queries are run here, and this is COPY"),
        ("select * from sales.orders", 'quote a name that has dots: "sales.orders"'),
        ("select * from read_csv('x')", "the table function read_csv is not for queries: name datasets"),
        ("pivot a on b", "name the values of the pivot"),
        ("show tables", "`weft datasets list` says which datasets there are"),
    ],
)
async def test_what_is_no_query_is_refused(queries: QueryProcess, sql: str, told: str) -> None:
    with pytest.raises(InvalidQuery, match=told):
        await queries.mentioned(sql)


# What is wrong.


async def test_what_is_wrong_is_told_before_there_is_an_answer(queries: QueryProcess, orders: Attached) -> None:
    for sql, kind in (
        ("select nonsense from orders", "binder"),
        ("selec", "parser"),
        ("select * from other", "refused"),
        ("select b::integer from orders", "conversion"),
    ):
        with pytest.raises(InvalidQuery) as caught:
            async with queries.query(sql, [orders]):
                pytest.fail("it began")
        assert caught.value.kind == kind
        assert caught.value.kind == kind


@pytest.mark.parametrize("mixed", [True, False])
async def test_an_error_names_the_dataset_and_no_path(queries: QueryProcess, tmp_path: Path, mixed: bool) -> None:
    damaged = tmp_path / "hidden" / "1.parquet"
    damaged.parent.mkdir()
    damaged.write_bytes(b"PAR1 this is no Parquet file")
    problem = await problem_of(queries, 'from "sales/orders"', Attached("sales/orders", (str(damaged),), mixed=mixed))
    assert problem.kind == "unreadable"
    assert str(problem) == (
        "dataset sales/orders cannot be read: Invalid Input Error: No magic bytes found at end of file 'sales/orders'"
    )


async def test_a_file_that_is_missing_is_told_by_its_dataset(queries: QueryProcess, tmp_path: Path) -> None:
    problem = await problem_of(queries, "from orders", Attached("orders", (str(tmp_path / "gone.parquet"),)))
    assert (problem.kind, str(problem)) == ("unreadable", "a file of dataset orders is missing")


async def test_a_file_of_others_that_leads_elsewhere_when_it_is_opened_is_refused(
    queries: QueryProcess, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    pyarrow.parquet.write_table(pa.table({"id": [1]}), tmp_path / "other.parquet")
    (tmp_path / "theirs/1.parquet").symlink_to(tmp_path / "other.parquet")
    files, within = (str(tmp_path / "theirs/1.parquet"),), (os.path.realpath(tmp_path / "theirs"),)
    with pytest.raises(InvalidQuery, match="leads to where files of others are not read"):
        async with queries.query("from theirs", [Attached("theirs", files, within=within)]) as answer:
            await answer.read()


async def test_what_a_format_cannot_hold_is_told(queries: QueryProcess) -> None:
    with pytest.raises(InvalidQuery, match="the answer cannot be written so") as caught:
        async with queries.query("select interval 1 day as a", format="parquet"):
            pass
    assert caught.value.kind == "answer"


# How it ends.


@pytest.mark.parametrize(
    ("limits", "sql", "limit"),
    [
        (QueryLimits(rows=1000), "select * from range(100000000)", "rows"),
        (QueryLimits(bytes=100_000), "select * from range(100000000)", "bytes"),
        (QueryLimits(memory=50_000_000, spill=0), "select list(range) from range(100000000)", "memory"),
        (QueryLimits(memory=50_000_000, spill=1_000_000), "select * from range(9000000) order by hash(range)", "spill"),
        (QueryLimits(seconds=1), LONG, "seconds"),
        (QueryLimits(cpu_seconds=1), LONG, "cpu_seconds"),
        (QueryLimits(), "select " + "x" * 300_000, "sql"),
    ],
    ids=lambda it: it if isinstance(it, str) and it.isidentifier() else "",
)  # fmt: skip
async def test_a_limit_is_told_by_its_name(queries: QueryProcess, limits: QueryLimits, sql: str, limit: str) -> None:
    with pytest.raises(QueryLimitReached) as caught:
        async with queries.query(sql, limits=limits) as answer:
            await answer.read()
    assert caught.value.limit == limit
    assert caught.value.limit == limit
    assert await rows(queries, "select 1 as a") == [{"a": 1}]


async def test_exactly_as_many_rows_as_allowed_are_answered(queries: QueryProcess) -> None:
    async with queries.query("select * from range(1000)", limits=QueryLimits(rows=1000)) as answer:
        await answer.read()
    assert answer.rows == 1000


async def test_what_does_not_fit_into_memory_goes_through_temporary_files(queries: QueryProcess) -> None:
    distinct = "select count(*) as n from (select distinct hash(range) as h, repeat('x', 50) from range(2000000))"
    little = QueryLimits(memory=60_000_000, spill=1_000_000_000)
    async with queries.query(distinct, limits=little) as answer:
        assert json.loads(await answer.read()) == {"n": 2_000_000}
    with pytest.raises(QueryLimitReached, match="60,000,000 bytes of memory"):
        async with queries.query(distinct, limits=dataclasses.replace(little, spill=0)):
            pass


async def test_nothing_is_computed_that_nobody_reads(queries: QueryProcess) -> None:
    """The answer would be endless: it stops where its reader does."""
    async with queries.query("select * from range(1000000000000)", format="arrow", limits=ENDLESS) as answer:
        pieces = aiter(answer)
        first = await anext(pieces)
        assert len(first) > 10_000
        [pid] = children_of(queries)
        await until_it_waits(pid)
        assert memory_of(pid) < 400_000_000


def children_of(queries: QueryProcess) -> list[int]:
    """Return the processes of queries that run now, without the one that waits for the next."""
    mine = {int(pid) for pid in _children(os.getpid())}
    nurseries = [pid for pid in mine if b"query_nursery" in _told(pid, "cmdline")]
    return [int(child) for pid in nurseries for child in _children(pid) if is_walled(child)]


def is_walled(pid: str) -> bool:
    return b"Seccomp:\t2" in _told(pid, "status")


def _told(pid: int | str, what: str) -> bytes:
    """Return what the kernel tells of a process or a thread: nothing of one that has ended since it was seen."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _children(pid: int) -> list[str]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return []
    return [child for each in threads for child in _told(pid, f"task/{each}/children").decode().split()]


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def computed(pid: int) -> int:
    """Return how long a process has computed, in hundredths of a second."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[11:13]))


async def until_it_waits(pid: int) -> None:
    """Return when a process has stopped computing: its reader is to read first."""
    before = -1
    while before != (before := computed(pid)):  # noqa: ASYNC110
        await asyncio.sleep(0.3)


async def ended(*pids: int) -> None:
    """Return when these processes are no more."""
    loop = asyncio.get_running_loop()
    for pid in pids:
        try:
            place = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        gone = asyncio.Event()
        loop.add_reader(place, gone.set)
        await gone.wait()
        loop.remove_reader(place)
        os.close(place)


async def test_a_cancelled_query_ends_at_once(queries: QueryProcess) -> None:
    async with queries.query("select * from range(100000000000)", limits=ENDLESS) as answer:
        [pid] = children_of(queries)
        reading = asyncio.create_task(answer.read())
        answer.cancel()
        with pytest.raises(QueryCancelled):
            await reading
        await ended(pid)
    assert await rows(queries, "select 1 as a") == [{"a": 1}]


async def test_whoever_stops_waiting_for_a_query_ends_it() -> None:
    async with QueryProcess(at_once=1) as queries:
        waiting = asyncio.create_task(rows(queries, LONG))
        while not (pids := children_of(queries)) or computed(pids[0]) < 100:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        waiting.cancel()
        async with asyncio.timeout(20):
            await ended(*pids)
        assert await rows(queries, "select 1 as a") == [{"a": 1}]


async def test_a_query_that_nobody_reads_to_the_end_is_ended(queries: QueryProcess) -> None:
    async with queries.query("select * from range(100000000)", limits=ENDLESS) as answer:
        [pid] = children_of(queries)
        async for _ in answer:
            break
    await ended(pid)


async def test_a_process_that_breaks_down_concerns_its_query_alone(queries: QueryProcess, orders: Attached) -> None:
    async with queries.query("select * from range(100000000)", limits=ENDLESS) as other:
        before = children_of(queries)
        async with queries.query("select a from orders, range(100000000)", [orders]) as answer:
            [pid] = set(children_of(queries)) - set(before)
            os.kill(pid, signal.SIGSEGV)
            with pytest.raises(QueryCrashed, match="SIGSEGV; it read orders, of which a file may be damaged"):
                await answer.read()
        assert len(await anext(aiter(other))) > 0
    assert await rows(queries, "select 1 as a") == [{"a": 1}]


async def test_as_many_queries_as_asked_for_run_at_once() -> None:
    async with QueryProcess(at_once=2) as queries:
        found = await asyncio.gather(*(rows(queries, f"select {number} as a") for number in range(8)))
        assert found == [[{"a": number}] for number in range(8)]
        async with queries.query("select * from range(10000000)") as one, queries.query("select 2 as a") as two:
            third = asyncio.create_task(rows(queries, "select 3 as a"))
            assert await two.read() == b'{"a":2}\n'
            assert len(children_of(queries)) <= 2
            one.cancel()
        assert await third == [{"a": 3}]


async def test_when_the_process_that_begins_queries_dies_another_is_started(tmp_path: Path) -> None:
    async with QueryProcess(folder=str(tmp_path)) as queries:
        assert await rows(queries, "select 1 as a") == [{"a": 1}]
        [nursery] = [int(pid) for pid in _children(os.getpid()) if str(tmp_path).encode() in cmdline(pid)]
        async with queries.query("select * from range(100000000)", limits=ENDLESS) as answer:
            os.kill(nursery, signal.SIGKILL)
            with pytest.raises(QueryCrashed, match="ended by the end of the process that began it"):
                await answer.read()
        assert await rows(queries, "select 2 as a") == [{"a": 2}]
    assert list(tmp_path.iterdir()) == []


def cmdline(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_nothing_is_left_of_queries(tmp_path: Path, orders: Attached) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    async with QueryProcess(folder=str(folder)) as queries:
        await rows(queries, "from orders", orders)
        answer = await queries.query("select * from range(100000000)").__aenter__()
        assert answer.columns
        [pid] = children_of(queries)
    assert list(folder.iterdir()) == []
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("unread", [False, True])
async def test_queries_end_with_whoever_runs_them(tmp_path: Path, unread: bool) -> None:
    """Also when that one is killed: nothing goes on computing for nobody, and no temporary file stays."""
    program = f"""
import asyncio
from weft.data.query_process import QueryProcess
async def main():
    async with QueryProcess(folder={str(tmp_path)!r}) as queries:
        async with queries.query("select * from range(100000000)") as answer:
            print("begun", flush=True)
            await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "begun\n"
        [nursery] = [int(pid) for pid in _children(runner.pid)]
        [query] = [int(pid) for pid in _children(nursery) if is_walled(pid)]
        if unread:
            # What it was told last it has not read when it is killed.
            runner.send_signal(signal.SIGSTOP)
            os.kill(query, signal.SIGKILL)
            await ended(query)
        runner.kill()
    await ended(query, nursery)
    assert list(tmp_path.iterdir()) == []


async def test_a_query_knows_nothing_of_the_environment(queries: QueryProcess) -> None:
    async with queries.query("select * from range(100000000)", limits=ENDLESS):
        [pid] = children_of(queries)
        names = {each.split(b"=")[0] for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if each}
        places = {os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")}
        state = Path(f"/proc/{pid}/status").read_text()
    assert sorted(names) == [
        b"ARROW_DEFAULT_MEMORY_POOL", b"HOME", b"LANG", b"MALLOC_ARENA_MAX", b"OMP_NUM_THREADS", b"PATH", b"TZ",
    ]  # fmt: skip
    assert len(places) == 2
    assert any(place.startswith("socket:") for place in places)
    assert os.devnull in places
    assert "NoNewPrivs:\t1" in state
    assert "Seccomp:\t2" in state
    assert "CapEff:\t0000000000000000" in state
    assert "CapPrm:\t0000000000000000" in state


# Walls.


async def test_which_walls_stand_can_be_asked() -> None:
    found = await stand()
    assert [wall.name for wall in found] == list(walls.ABOUT)
    assert all(wall.stands and wall.why is None for wall in found)


async def test_where_a_wall_cannot_stand_nothing_runs(tmp_path: Path) -> None:
    """A process whose filter of calls refuses Landlock is what an old kernel is."""
    refused = """
import asyncio, ctypes, struct, sys
from weft.core.query_errors import WallsMissing
from weft.data.query_process import QueryProcess
libc = ctypes.CDLL(None, use_errno=True)
code = b"".join(struct.pack("=HBBI", *each) for each in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)))
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(4, code)), 0, 0) == 0
async def main():
    try:
        async with QueryProcess():
            print("RUNS")
    except WallsMissing as problem:
        print(problem.missing)
    async with QueryProcess(without=["files"]) as queries:
        print([wall.name for wall in queries.walls if not wall.stands])
        async with queries.query("select 1 as a") as answer:
            print(await answer.read())
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", refused], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == [
        "{'files': 'this kernel has no Landlock, or it is switched off'}".replace("this", "[Errno 38] this"),
        "['files']",
        "b'{\"a\":1}\\n'",
    ], done.stderr
    assert "docs/explanation/query-walls.md" in str(WallsMissing({"files": "x"}))


# The extra.


async def test_where_the_extra_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'weft\[data\]'"):
        await QueryProcess().start()


async def test_whoever_runs_queries_loads_neither_duckdb_nor_arrow() -> None:
    asked = "import sys, weft.data.query_process; print(sorted({'duckdb', 'pyarrow', 'asyncpg'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "[]\n"
