"""What the operators that come with Weft may be told, each by a model of its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from weft.flow import durations
from weft.flow.model import Delay, Part, Seconds

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
        description="The columns of the output, each an aggregate of DuckDB such as `sum(price)`; `first` and `last` "
        "go by the column of the order."
    )
    lateness: Lateness = Field(
        default=0, description="How far behind the highest number rows may come before their range is complete."
    )
    late: Literal["amend", "drop", "fail"] = Field(
        default="amend",
        description="What becomes of rows of a range that was written already: it is written anew, they are left out, "
        "or the unit fails.",
    )


Path = Annotated[str, Field(max_length=500)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
_PATH = "a place in it such as `data.items`"


class SecretHeader(Part):
    """A header whose value is in an environment variable of the worker."""

    env: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="The variable; WEFT_DAG_SECRETS must have it."
    )
    prefix: Annotated[str, Field(max_length=200)] = Field(
        default="", description="What stands before it, such as `Bearer `."
    )


Headers = dict[Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", max_length=200)], str | SecretHeader]
_HEADERS = "Headers of each request: texts, or secrets by the name of their variable."


class TypedColumn(Part):
    """A column of the output: where in an item its value is, and of which type."""

    path: Path | None = Field(
        default=None, description=f"Where the value is: {_PATH}; the name of the column unless said."
    )
    type: Literal["bigint", "double", "decimal", "boolean", "text", "json", "timestamp", "date"] = Field(
        description="The type of the column."
    )


def _typed_column(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


_TYPES: dict[str, Any] = {"enum": list(get_args(TypedColumn.model_fields["type"].annotation))}
_TYPED = {
    "type": "object",
    "properties": {"path": {"type": "string", "maxLength": 500}, "type": _TYPES},
    "required": ["type"],
    "additionalProperties": False,
}
TypedColumns = dict[
    Column, Annotated[TypedColumn, BeforeValidator(_typed_column), WithJsonSchema({"anyOf": [_TYPES, _TYPED]})]
]
_COLUMNS = "The columns of the output: a type, or where in an item the value is and its type; all fields unless said."


class HttpFeed(Part):
    """A feed that answers in JSON by HTTP."""

    kind: Literal["http"] = Field(description="How the feed is reached.")
    url: Url = Field(
        description="The address, with places for {from} and {to}, or {after} and {limit}, or {cursor} of a feed that "
        "says where to go on."
    )
    items: Path = Field(
        default="", description=f"Where in the answer the list of items is: {_PATH}; all of it unless said."
    )
    number: Path | None = Field(
        default="number", description="Where in an item its number is; null for a feed without."
    )
    hash: Path | None = Field(default=None, description="Where in an item its hash is.")
    parent_hash: Path | None = Field(default=None, description="Where in an item the hash of the one before is.")
    next: Path | None = Field(default=None, description="Where in the answer the {cursor} of the next request is.")
    latest: Path | None = Field(default=None, description="Where in the answer the highest number is that there is.")
    page_size: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=500, description="How many items an answer has at most."
    )
    headers: Headers = Field(default_factory=dict, description=_HEADERS)

    @model_validator(mode="after")
    def _goes_back(self) -> Self:
        if self.hash is not None and (self.next is not None or self.number is None):
            what = "hash needs items that can be asked for by number: leave out next, and say number"
            raise PydanticCustomError("bad_here", "{what}", {"what": what})
        return self


class RpcCall(Part):
    """A call of JSON-RPC."""

    method: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="The method.")
    params: list[Any] = Field(
        default_factory=list, description="Its params; {number} or {hex} is the number that is asked for."
    )


class JsonRpcFeed(Part):
    """A feed that answers calls of JSON-RPC 2.0."""

    kind: Literal["json_rpc"] = Field(description="How the feed is reached.")
    url: Url = Field(description="The address.")
    latest: RpcCall = Field(default=RpcCall(method="eth_blockNumber"), description="The call for the highest number.")
    block: RpcCall = Field(
        default=RpcCall(method="eth_getBlockByNumber", params=["{hex}", False]),
        description="The call for the item of a number.",
    )
    number: Path = Field(default="number", description="Where in an item its number is.")
    hash: Path | None = Field(default="hash", description="Where in an item its hash is.")
    parent_hash: Path | None = Field(
        default="parentHash", description="Where in an item the hash of the one before is."
    )
    batch: Annotated[int, Field(ge=1, le=1000)] = Field(default=20, description="How many calls a request has.")
    headers: Headers = Field(default_factory=dict, description=_HEADERS)


class SqlFeed(Part):
    """A table or view of a PostgreSQL, read by a query."""

    kind: Literal["sql"] = Field(description="How the feed is reached.")
    dsn_env: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="The environment variable of the worker with the address; WEFT_DAG_SECRETS must have it."
    )
    query: Sql = Field(description="A query for what comes after $1, in order, $2 rows at most.")
    number: Column = Field(default="number", description="The column of the number.")
    hash: Column | None = Field(default=None, description="The column of the hash.")
    parent_hash: Column | None = Field(default=None, description="The column of the hash of the one before.")


class BlockFollower(Part):
    """A follower of an ordered feed, which takes back what the feed takes back."""

    feed: HttpFeed | JsonRpcFeed | SqlFeed = Field(discriminator="kind", description="What is followed.")
    start: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = Field(
        default=None, description="The first number; whatever comes first unless said."
    )
    confirmations: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="How far behind the highest number it stays."
    )
    max_batch: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=500, description="How many items it takes at a time."
    )
    consecutive: bool = Field(
        default=True, description="Whether each number is one above that before; if not, gaps are none."
    )
    keep_hashes: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1000, description="How many numbers back it can tell when others take the place of items."
    )
    settle: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=5, description="How often a feed must have fewer items than before until it counts as taken back."
    )
    partition_size: Annotated[int, Field(ge=1, le=2**53)] = Field(
        default=1000, description="How many numbers a partition of the output has."
    )
    columns: TypedColumns = Field(default_factory=dict, description=_COLUMNS)
    timeout: Seconds = Field(default=30, description="How long an answer may take.")
    give_up_after: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=100, description="How often in succession nothing sound may come until the unit fails."
    )


class AlertEvaluate(Part):
    """A condition over rows, and what is told when it holds."""

    condition: Sql = Field(description="What must hold for a row: an expression of DuckDB, such as `price > 100`.")
    query: Sql | None = Field(
        default=None, description="What the rows are: one `select` over `changes` and inputs; all changes unless said."
    )
    key: list[Column] = Field(
        default_factory=list, description="The columns by whose values there are several alerts, each for itself."
    )
    order_by: Column | None = Field(
        default=None, description="The column of the order of rows; one that is not after the last counts no more."
    )
    for_: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, alias="for", description="For how many rows in succession the condition must hold."
    )
    cooldown: Delay = Field(default=0, description="How long after an alert there is no further one of its key.")
    severity: Literal["info", "warning", "critical"] = Field(default="warning", description="How bad it is.")
    message: Annotated[str, Field(max_length=2000)] = Field(
        default="{dag}/{job} {state}", description="What is told, with columns of the row such as {price}."
    )
    resolved: bool = Field(default=True, description="Whether it is told, too, when the condition holds no more.")
    history: bool = Field(default=False, description="Whether rows count that were there before the job was.")
    callback_url: Url | None = Field(
        default=None, description="Who is told: the address of a receiver, as for callbacks of jobs."
    )


class HttpFetch(Part):
    """An address that is fetched with each unit."""

    url: Url = Field(
        description="The address, with places for {at}, which may have a form such as {at:%Y-%m-%d}, {partition}, and "
        "fields of an event such as {payload.symbol}."
    )
    format: Literal["json", "ndjson", "csv"] = Field(default="json", description="How it answers.")
    items: Path = Field(default="", description=f"Where in the answer the rows are: {_PATH}; all of it unless said.")
    columns: TypedColumns = Field(default_factory=dict, description=_COLUMNS)
    headers: Headers = Field(default_factory=dict, description=_HEADERS)
    partition: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="The partition that is written, with places as the address has them."
    )
    partition_by: Column | None = Field(
        default=None, description="A column by whose values the rows become partitions."
    )
    conditional: bool = Field(
        default=True, description="Whether it is asked only for what has changed since (ETag, Last-Modified)."
    )
    timeout: Seconds = Field(default=30, description="How long an answer may take.")


class Udf(Part):
    """A function of Python over what a unit is about, which runs in a limited process."""

    code: Annotated[str, Field(min_length=1, max_length=200_000)] = Field(
        description="The text of a module; it may import Arrow and parts of the standard library."
    )
    entry: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)] = Field(
        default="transform", description="The function in it: it is given a table of Arrow, and returns one."
    )
    partition: Literal["unit", "none"] = Field(
        default="unit",
        description="Which partition of the output is written: that of the unit, or none, which is all of it.",
    )
    partition_by: Column | None = Field(
        default=None, description="A column by whose values the rows become partitions."
    )
    columns_from: dict[Column, Annotated[list[Column], Field(min_length=1, max_length=1000)]] = Field(
        default_factory=dict,
        description="What columns of the output are made of: columns of the table that the function is given.",
    )
