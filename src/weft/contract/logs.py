"""What attempts of one worker have printed, told at once: how it travels, and what is answered."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from weft.contract.bounds import MOST
from weft.contract.protocol import Log


class Logs(BaseModel):
    """What several attempts of one worker have printed; one that prints no more says so by itself."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tasks: list[Log] = Field(min_length=1, max_length=MOST)


class LogsTold(BaseModel):
    """How long the logs are now, by task, in bytes; and the tasks that are not, and were not, the worker's own."""

    sizes: dict[str, int]
    refused: list[str]
