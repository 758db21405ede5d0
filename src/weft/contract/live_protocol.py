"""The worker protocol: what a task of a live job asks of it, and what it is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft.contract.bounds import Text
from weft.contract.protocol import LARGEST, Held
from weft.jobs.posting import MAX_URL
from weft.live.staging import LONGEST_KEY, LONGEST_PATH, MOST_CALLBACKS, MOST_UNITS

_Key = Field(min_length=1, max_length=LONGEST_KEY)
FilePath = Annotated[Text, Field(min_length=1, max_length=LONGEST_PATH)]
FileTag = Annotated[Text, Field(min_length=1, max_length=LONGEST_KEY)]


class ReadLiveJob(Held):
    """The live job of a task that is held."""


class ReadState(Held):
    """What the operator remembers under a key."""

    key: Text = _Key


class StagedState(BaseModel):
    """What is to be remembered; ``seen`` is the version that was read, 0 for none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: Text = _Key
    seen: int = Field(ge=0, le=LARGEST)
    state: Any


class EmittedUnit(BaseModel):
    """A further unit of the same live job; those of one lane run one after the other."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["event", "file", "row"] = "event"
    key: Text = _Key
    lane: Text = Field(max_length=LONGEST_KEY)
    said: dict[str, Any]


class StagedCallback(BaseModel):
    """What a receiver outside is told; those of one key in their order."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Text = Field(min_length=1, max_length=MAX_URL)
    key: Text = _Key
    payload: dict[str, Any]


class StagedFile(BaseModel):
    """A file as it was seen; without a tag it is gone."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: FilePath
    tag: FileTag | None = None
    is_emitted: bool = False


class SeenFile(BaseModel):
    """A file that is there, and what is another when the file is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: FilePath
    tag: FileTag


class CompareFiles(Held):
    """All files that are there from after one path to another, or to the end."""

    after: Text = Field(max_length=LONGEST_PATH)
    until: FilePath | None = None
    files: list[SeenFile] = Field(max_length=MOST_UNITS)
    settle: float = Field(ge=0, le=10**9, description="For how many seconds it must have been as it is.")


class StageLive(Held):
    """What is to change of the live job when the task completes, over what was said before.

    ``rest`` is how many seconds the next slice of a source waits; ``is_caught_up`` says that all is there by now.
    """

    states: list[StagedState] = Field(default_factory=list, max_length=1000)
    units: list[EmittedUnit] = Field(default_factory=list, max_length=MOST_UNITS)
    callbacks: list[StagedCallback] = Field(default_factory=list, max_length=MOST_CALLBACKS)
    rest: float | None = Field(None, ge=0, le=10**9)
    is_caught_up: bool | None = None
    files: list[StagedFile] = Field(default_factory=list, max_length=MOST_UNITS)


class LiveJobTold(BaseModel):
    """A live job: its DAG, its name and what that says of it, which never changes; what it reads and writes.

    An input without a version comes from outside of the DAG: the one that is current is read. Its writes become units:
    those of version ``by_now``, which is another where one has become current since; what it had after write ``stood``
    stood there when the job began. ``is_boot`` is of the unit of the task: whether it is of that, and perhaps of more.
    """

    dag: str
    name: str
    document: dict[str, Any]
    inputs: list[dict[str, Any]]
    outputs: list[str]
    output_versions: list[int]
    is_boot: bool


class StateRemembered(BaseModel):
    """What is remembered, null before the first time, and how often it has changed."""

    version: int
    state: Any


class ChangedFile(BaseModel):
    """One of the files by its place among them: whether it is new or another, and whether it has settled."""

    place: int
    is_new: bool
    is_settled: bool | None


class FilesCompared(BaseModel):
    """The files of which there has been no unit as they are now, and the paths of those that are gone."""

    changed: list[ChangedFile]
    gone: list[str]
