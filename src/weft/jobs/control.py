"""What the engine itself does in a job: it chooses branches, gathers results, ends it."""

from __future__ import annotations

from typing import Any

from weft.core.json import Json
from weft.flow.conditions import read_condition
from weft.flow.templates import read_value


def choose_branch(spec: dict[str, Any], values: dict[str, Json]) -> dict[str, int | None]:
    """Return the first branch whose condition holds; one without a condition is the default."""
    compared = {**values, "value": read_value(spec["value"]).render(values)}
    for place, condition in enumerate(spec["branches"]):
        if condition is None or read_condition(condition).evaluate(compared):
            return {"branch": place}
    return {"branch": None}


def output_of(spec: dict[str, Any], values: dict[str, Json]) -> Json:
    """Return what an end says is the result."""
    return read_value(spec.get("output")).render(values)


def result_of(spec: dict[str, Any], values: dict[str, Any]) -> Json:
    """Return the result of a job: what its end says, or the ends that were reached, when there are several."""
    if "ends" not in spec:
        return output_of(spec, values)
    reached = {name: values["nodes"][name]["output"] for name in spec["ends"]}
    told = {name: output for name, output in reached.items() if output is not None}
    return next(iter(told.values())) if len(told) == 1 else told or None
