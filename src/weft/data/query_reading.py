"""Which datasets a query reads, as DuckDB's own parser has it, and whether it is a query at all.

The parser's tree is all there is to a query: nothing that it does not show can run, because what would run SQL that
stands in a text (`query`, `json_execute_serialized_sql`) is refused. Runs in the process of the query only.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

# All other functions that are tables read files, other tables, settings, or addresses in memory.
_TABLES_MADE = frozenset({
    "generate_series", "json_each", "json_tree", "range", "regexp_split_to_table", "repeat", "repeat_row",
    "test_all_types", "unnest",
})  # fmt: skip
# The settings have paths of the machine; a plan is bound, so that files in it are opened; a log is written.
_SCALARS_REFUSED = frozenset({"current_setting", "json_serialize_plan", "write_log"})
_EXPLAIN = re.compile(r"\s*explain\s+(?:analyze\s+)?", re.IGNORECASE)
_SHOWN = frozenset({"DESCRIBE", "SUMMARY"})


class Refused(Exception):
    """The SQL is none that a query may be; the message says what to do instead."""


def select_in(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return the one query that SQL is, without an EXPLAIN before it; raises `Refused` for anything else."""
    text = sql
    for _ in range(2):
        statements = connection.extract_statements(text)
        if len(statements) != 1:
            raise Refused(f"a query is one statement, and this is {len(statements) or 'none'}")
        kind = statements[0].type.name
        if kind == "SELECT":
            return text
        if kind == "MULTI":
            raise Refused("name the values of the pivot: `pivot … on COLUMN in (…)`")
        begin = _EXPLAIN.match(text)
        if kind != "EXPLAIN" or begin is None or text is not sql:
            raise Refused(f"only queries are run here, and this is {kind.replace('_', ' ')}")
        text = text[begin.end() :]
    raise Refused("only a query can be explained here")


def tables_of(connection: duckdb.DuckDBPyConnection, select: str) -> tuple[str, ...]:
    """Return the names of all tables that a query reads and does not make itself, in the order it has them.

    Raises `Refused` if it asks for what a query may not do.
    """
    asked = "values (json_serialize_sql(?::varchar, skip_null := true, skip_empty := true))"
    [(answer,)] = connection.execute(asked, [select]).fetchall()
    try:
        tree = json.loads(answer)
        if tree["error"]:
            raise Refused(str(tree.get("error_message")))
        found: dict[str, None] = {}
        for statement in tree["statements"]:
            _walk(statement, frozenset(), found)
    except RecursionError:
        raise Refused("the query is nested too deeply") from None
    return tuple(found)


def _walk(part: Any, made: frozenset[str], found: dict[str, None]) -> None:
    """Note the tables below a part of the tree, other than those ``made`` by `WITH` around it."""
    if isinstance(part, list):
        for each in part:
            _walk(each, made, found)
    elif isinstance(part, dict):
        _check(part)
        if part.get("type") == "BASE_TABLE":
            _note(part, made, found)
        made = _made_by(part, made, found)
        for name, each in part.items():
            if name != "cte_map":
                _walk(each, made, found)


def _made_by(part: dict[str, Any], made: frozenset[str], found: dict[str, None]) -> frozenset[str]:
    """Note the tables that a `WITH` reads, and return what is made with it; each part sees those before it."""
    ctes = part.get("cte_map")
    for each in ctes.get("map", ()) if isinstance(ctes, dict) else ():
        name = str(each["key"]).lower()
        query = each["value"].get("query_node") or each["value"].get("query")
        inside = query.get("node", query) if isinstance(query, dict) else {}
        is_recursive = inside.get("type") == "RECURSIVE_CTE_NODE"
        _walk(each["value"], made | {name} if is_recursive else made, found)
        made = made | {name}
    return made


def _note(table: dict[str, Any], made: frozenset[str], found: dict[str, None]) -> None:
    name, schema = str(table.get("table_name", "")), table.get("schema_name")
    if schema:
        raise Refused(f'quote a name that has dots: "{schema}.{name}"')
    if name.lower() not in made:
        found.setdefault(name)


def _check(part: dict[str, Any]) -> None:
    if part.get("type") == "TABLE_FUNCTION":
        name = str(part.get("function", {}).get("function_name", "")).lower()
        if name not in _TABLES_MADE:
            raise Refused(f"the table function {name} is not for queries: name datasets")
    elif part.get("type") == "SHOW_REF" and part.get("show_type") not in _SHOWN:
        raise Refused("`weft datasets list` says which datasets there are; to see the columns of one, `describe` it")
    elif "function_name" in part and str(part["function_name"]).lower() in _SCALARS_REFUSED:
        raise Refused(f"the function {str(part['function_name']).lower()} is not for queries")
