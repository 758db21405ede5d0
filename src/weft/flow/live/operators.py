"""The operators that come with Weft, each with what it may be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from weft.flow.model import HandlerName

PYTHON = "python"


class AnyConfig(BaseModel):
    """What an operator is told of which nothing more is known here."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class PythonConfig(AnyConfig):
    """A function of one's own, by its name; whatever else is said is for it."""

    handler: HandlerName = Field(description="The name of the function that the job runs.")


# By name; what is not here is an operator of one's own.
OPERATORS: dict[str, type[BaseModel]] = {
    "alert_evaluate": AnyConfig,
    "block_follower": AnyConfig,
    "http_fetch": AnyConfig,
    PYTHON: PythonConfig,
    "range_aggregator": AnyConfig,
    "sql_transform": AnyConfig,
}
# Before the names of handlers of operators that come with Weft.
OWN = "live."


def handler_of(operator: str, config: dict[str, object]) -> str:
    """Return the name of the handler that tasks of a job run."""
    if operator == PYTHON:
        return str(config["handler"])
    return f"{OWN}{operator}" if operator in OPERATORS else operator
