"""What the operators that come with Weft may be told, each by a model of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from weft.flow import durations
from weft.flow.model import Part

Sql = Annotated[str, Field(min_length=1, max_length=200_000)]
Column = Annotated[str, Field(min_length=1, max_length=500)]


class SqlTransform(Part):
    """A query of DuckDB over what a unit is about, and over the inputs of its job."""

    sql: Sql = Field(
        description="One `select`; the table `changes` is what the unit is about, inputs go by their names."
    )
    tables: dict[Column, Column] = Field(
        default_factory=dict, description="Other names for inputs: the name in the query, and the dataset."
    )
    partition: Literal["unit", "none"] = Field(
        default="unit",
        description="Which partition of the output is written: that of the unit, or none, which is all of it.",
    )
    partition_by: Column | None = Field(
        default=None, description="A column of the answer by whose values it becomes partitions."
    )


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        seconds = durations.seconds_of(value)
    except ValueError as problem:
        raise PydanticCustomError("bad_duration", "{problem}", {"problem": str(problem)}) from None
    if seconds != int(seconds):
        raise PydanticCustomError("bad_duration", "must be whole seconds")
    return int(seconds)


_SIZE: dict[str, object] = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
Size = Annotated[int, BeforeValidator(_size), Field(ge=1, le=2**53), WithJsonSchema(_SIZE)]
Lateness = Annotated[int, BeforeValidator(_size), Field(ge=0, le=2**53), WithJsonSchema(_SIZE)]


class RangeAggregator(Part):
    """Ranges of a number or a time, each written when it is complete."""

    column: Column = Field(description="The column by which rows are in order: whole numbers or times.")
    size: Size = Field(description="How many numbers a range has; of times seconds, or a text such as 1m.")
    by: list[Column] = Field(default_factory=list, description="Columns by whose values a range has several rows.")
    aggregates: Annotated[dict[Column, Sql], Field(min_length=1)] = Field(
        description="The columns of the output, each an aggregate of DuckDB such as `sum(price)`; `first` and `last` go "
        "by the column of the order."
    )
    lateness: Lateness = Field(
        default=0, description="How far behind the highest number rows may come before their range is complete."
    )
    late: Literal["amend", "drop", "fail"] = Field(
        default="amend",
        description="What becomes of rows of a range that was written already: it is written anew, they are left out, "
        "or the unit fails.",
    )
