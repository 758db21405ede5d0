"""The page of the filters and tests of expressions."""

from __future__ import annotations

from docs.pages.markdown import code, table
from weft.flow.budget import MAX_SIZE, MAX_STEPS
from weft.flow.expressions import read_template
from weft.flow.filters import FILTERS, TESTS

_HEAD = f"""\
# Expressions

Filters and tests that expressions of [definitions](../how-to/define-workflows.md#expressions) may use, each with an
example that was evaluated to write this page. An expression goes through at most {MAX_STEPS:,} values and makes at most
{MAX_SIZE:,} characters. `range(n)` gives a list of numbers.

"""

_VALUES = {
    "inputs": {
        "name": "ada",
        "path": "/data/in/a.tif",
        "sizes": [3, 1, 2, 3],
        "rows": [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}, {"id": 3, "kind": "a"}],
        "limits": {"low": 1, "high": 9},
        "text": "[1, 2]",
    }
}

EXAMPLES = {
    "abs": "-3 | abs", "basename": "inputs.path | basename", "batch": "inputs.sizes | batch(2)",
    "capitalize": "inputs.name | capitalize", "count": "inputs.sizes | count", "d": "inputs.nothing | d('none')",
    "default": "inputs.nothing | default('none')", "dirname": "inputs.path | dirname", "first": "inputs.sizes | first",
    "flatten": "[[1, 2], [3]] | flatten", "float": "'2.5' | float", "fromjson": "inputs.text | fromjson",
    "groupby": "inputs.rows | groupby('kind')", "int": "'42' | int", "items": "inputs.limits | items",
    "join": "inputs.sizes | join(', ')", "keys": "inputs.limits | keys", "last": "inputs.sizes | last",
    "length": "inputs.sizes | length", "list": "'abc' | list", "lower": "'ADA' | lower",
    "map": "inputs.rows | map(attribute='id')", "max": "inputs.sizes | max", "min": "inputs.sizes | min",
    "reject": "inputs.sizes | reject('odd')", "rejectattr": "inputs.rows | rejectattr('kind', 'eq', 'a')",
    "replace": "inputs.path | replace('/in/', '/out/')", "reverse": "inputs.sizes | reverse",
    "round": "2.567 | round(1)", "select": "inputs.sizes | select('gt', 1)",
    "selectattr": "inputs.rows | selectattr('kind', 'eq', 'a')", "sort": "inputs.sizes | sort",
    "split": "inputs.path | split('/')", "string": "42 | string", "sum": "inputs.rows | sum(attribute='id')",
    "title": "'ada lovelace' | title", "tojson": "inputs.limits | tojson", "trim": "'  a  ' | trim",
    "truncate": "inputs.path | truncate(8)", "unique": "inputs.sizes | unique", "upper": "inputs.name | upper",
    "urlencode": "'a b/c' | urlencode", "values": "inputs.limits | values",
}  # fmt: skip

TEST_EXAMPLES = {
    "boolean": "true is boolean", "containing": "inputs.sizes is containing 2", "defined": "inputs.name is defined",
    "divisibleby": "9 is divisibleby 3", "endingwith": "inputs.path is endingwith '.tif'", "eq": "1 is eq 1",
    "even": "2 is even", "false": "false is false", "float": "1.5 is float", "ge": "2 is ge 1", "gt": "2 is gt 1",
    "in": "1 is in inputs.sizes", "integer": "1 is integer", "le": "1 is le 2", "lt": "1 is lt 2",
    "mapping": "inputs.limits is mapping", "ne": "1 is ne 2", "none": "none is none", "number": "1.5 is number",
    "odd": "1 is odd", "sequence": "inputs.sizes is sequence", "startingwith": "inputs.path is startingwith '/data'",
    "string": "inputs.name is string", "true": "true is true", "undefined": "inputs.nothing is undefined",
}  # fmt: skip


def page() -> str:
    """Return the page; a filter without an example is an error."""
    filters = [(code(name), code(EXAMPLES[name]), code(_result(EXAMPLES[name]))) for name in sorted(FILTERS)]
    others: dict[str, list[str]] = {name: [] for name in TEST_EXAMPLES}
    for name, test in TESTS.items():
        if name not in TEST_EXAMPLES:
            others[next(known for known in TEST_EXAMPLES if TESTS[known] is test)].append(name)
    tests = [
        (code(name), ", ".join(code(other) for other in others[name]), code(TEST_EXAMPLES[name]))
        for name in sorted(TEST_EXAMPLES)
    ]
    return (
        _HEAD
        + "## Filters\n\n"
        + table(("filter", "example", "gives"), filters)
        + "\n## Tests\n\n"
        + table(("test", "also", "an example that holds"), tests)
    )


def _result(text: str) -> str:
    return read_template(f"= {{{{ {text} }}}}").evaluate(_VALUES)[2:]  # type: ignore[no-any-return]


def holds(text: str) -> bool:
    """Whether the example of a test holds."""
    return read_template(f"{{{{ {text} }}}}").evaluate(_VALUES) is True
