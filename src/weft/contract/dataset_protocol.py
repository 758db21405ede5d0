"""The worker protocol: what a running task asks of datasets, and what it is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft.catalog.column_origins import MOST
from weft.catalog.dataset_rows import LONGEST_NAME, MOST_COLUMNS, MOST_FILES, MOST_ROWS
from weft.catalog.dataset_writing import LONGEST_KEY
from weft.contract.bounds import Name, Text
from weft.contract.protocol import LARGEST, Held
from weft.contract.wire import Id

_Count = Field(ge=0, le=LARGEST)
_Key = Field(max_length=LONGEST_KEY)
_Origin = Annotated[list[Text | list[Text]], Field(min_length=2, max_length=2)]


class ReadDataset(Held):
    """A dataset by its name; ``orders@3`` is its version 3, ``orders@3.12`` what that was after its write 12."""

    dataset: Name


class ListFiles(Held):
    """A state of a dataset, or some partitions of it, after the file that was told last."""

    version_id: Id
    write: int = _Count
    partitions: list[Text] | None = Field(None, max_length=100_000)
    after_partition: Text = Field("", max_length=LONGEST_KEY)
    after_id: Id | None = None
    since: int = Field(-1, ge=-1, le=LARGEST, description="Only files that came after this write.")
    pinned: Literal["version", "write"] | None = Field(None, description="As it was told with the state.")
    seen: int | None = Field(None, ge=0, le=LARGEST, description="As it was told with the state.")
    for_write: bool = Field(
        False, description="Whether they are read only to leave out rows that are there already, and are no input."
    )


class ListPartitions(Held):
    """A version of a dataset; ``after`` is the key of the last partition told, null for the first page."""

    version_id: Id
    after: Text | None = Field(None, max_length=LONGEST_KEY)


class BeginWrite(Held):
    """A write into a dataset; ``breaking`` begins a version, whose columns may be any."""

    dataset: Name
    mode: Literal["append", "replace"] = "replace"
    unique_key: list[Name] = Field(default_factory=list, max_length=100)
    breaking: bool = False


class StagedFile(BaseModel):
    """A Parquet file that was written under the location of the version: ``ID-NUMBER.parquet``, with the write's id.

    In a table of the database it is called ``ID-NUMBER.rows``.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    partition: Text = _Key
    path: Text = Field(max_length=200)
    rows: int = _Count
    bytes: int = _Count


class StagedColumn(BaseModel):
    """A column; its type is that of Arrow."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Text = Field(min_length=1, max_length=500)
    type: Text = Field(min_length=1, max_length=10_000)
    nullable: bool = True


class StagedSchema(BaseModel):
    """The columns of the dataset with this write, and the same as Arrow serializes a schema, in base64."""

    model_config = ConfigDict(extra="forbid", strict=True)

    columns: list[StagedColumn] = Field(min_length=1, max_length=100_000)
    arrow: str = Field(min_length=1, max_length=10_000_000, pattern="^[A-Za-z0-9+/=]+$")


class StageWrite(Held):
    """What a write has brought: visible when the task completes, and never if it does not.

    ``seen`` is the write that it goes by, where another one meanwhile would make it wrong, as when rows were left out
    because they are there already.
    """

    id: Id
    partitions: list[Text] = Field(max_length=100_000)
    is_whole: bool = Field(False, description="Whether everything is replaced, and not these partitions alone.")
    files: list[StagedFile] = Field(max_length=100_000)
    seen: int | None = Field(None, ge=0, le=LARGEST)
    seen_schema: Text | None = Field(None, max_length=64)
    schema_: StagedSchema = Field(alias="schema")
    columns_from: list[_Origin] = Field(
        default_factory=list,
        max_length=MOST,
        description='What columns are made of: each with one of the others, `orders.price` or `["orders", "price"]`.',
    )


class RowColumn(BaseModel):
    """A column of a table of the database; its type is that of PostgreSQL."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Text = Field(min_length=1, max_length=LONGEST_NAME)
    type: Text = Field(min_length=1, max_length=100)


class AddRows(Held):
    """Rows of a file of a write into a table of the database: ``ID-NUMBER.rows``, with the write's id.

    Each value is its text, or null. ``before`` is how many rows were added to the write before these: with it a request
    whose answer was lost may be sent again.
    """

    id: Id
    number: int = Field(ge=1, le=999_999_999)
    columns: list[RowColumn] = Field(min_length=1, max_length=MOST_COLUMNS)
    rows: list[list[str | None]] = Field(max_length=MOST_ROWS)
    before: int | None = Field(default=None, ge=0)


class ListRows(Held):
    """Columns of files of rows, after the row that was told last."""

    version_id: Id
    paths: list[Text] = Field(min_length=1, max_length=MOST_FILES)
    columns: list[Text] = Field(min_length=1, max_length=MOST_COLUMNS)
    after: int = _Count
    most: int = Field(1000, ge=1, le=MOST_ROWS)


class RowsTold(BaseModel):
    """Rows of files: the number of each, and the texts of its values; there are more after a full page."""

    rows: list[tuple[int, list[str | None]]]


class StateTold(BaseModel):
    """One state of a dataset, which never changes; its files are under ``root`` and ``location``.

    ``pinned`` says what of it was named, ``seen`` of which write the columns are: told again with the files, they tell
    later whether it would be read in the same way again.
    """

    dataset_id: str
    version_id: str
    name: str
    version: int
    write: int
    location: str
    is_outside: bool
    storage: str = Field(description="How its rows are kept: `parquet` or `postgres`.")
    schema_: str | None = Field(alias="schema")
    root: str
    pinned: str | None
    seen: int


class FilesTold(BaseModel):
    """Files of a state: partition, id, name, rows, bytes and write of each; there are more after a full page."""

    files: list[tuple[str, str, str, int, int, int]]


class PartitionsTold(BaseModel):
    """Partitions of a version."""

    partitions: list[dict[str, Any]]


class WriteBegun(BaseModel):
    """A write that has begun: where its files belong, and the state that it goes by."""

    id: str
    version_id: str
    location: str
    write: int
    schema_: str | None = Field(alias="schema")
    schema_hash: str | None
    storage: str
    root: str
