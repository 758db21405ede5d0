"""The worker protocol: what a task of a live job asks of it, and what it is told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft.contract.bounds import Text
from weft.contract.protocol import LARGEST, Held
from weft.live.staging import LONGEST_KEY, MOST_UNITS

_Key = Field(min_length=1, max_length=LONGEST_KEY)


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


class StageLive(Held):
    """What is to change of the live job when the task completes, over what was said before.

    ``rest`` is how many seconds the next slice of a source waits; ``is_caught_up`` says that all is there by now.
    """

    states: list[StagedState] = Field(default_factory=list, max_length=1000)
    units: list[EmittedUnit] = Field(default_factory=list, max_length=MOST_UNITS)
    rest: float | None = Field(None, ge=0, le=10**9)
    is_caught_up: bool | None = None


class LiveJobTold(BaseModel):
    """A live job: its DAG, its name and what that says of it, which never changes; what it reads and writes.

    An input without a version comes from outside of the DAG: the one that is current is read.
    """

    dag: str
    name: str
    document: dict[str, Any]
    inputs: list[dict[str, Any]]
    outputs: list[str]


class StateRemembered(BaseModel):
    """What is remembered, null before the first time, and how often it has changed."""

    version: int
    state: Any
