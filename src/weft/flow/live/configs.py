"""What the operators that come with Weft may be told, each by a model of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from weft.flow.model import Part

Sql = Annotated[str, Field(min_length=1, max_length=200_000)]
Column = Annotated[str, Field(min_length=1, max_length=500)]


class SqlTransform(Part):
    """A query of DuckDB over what a unit is about, and over the inputs of its job."""

    sql: Sql = Field(description="One `select`; the table `changes` is what the unit is about, inputs go by their names.")
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
