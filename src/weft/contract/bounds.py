"""The bounds of what requests of workers have in them: those of the calls that they stand for."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from weft.core.checks import LONGEST_SPAN, MAX_KEY, MAX_NAME, MAX_PRIORITY, MAX_RUNNING
from weft.core.json import text_problem
from weft.queue.retry import LONGEST_DELAY, MAX_ATTEMPTS

# How many one request may be about; whoever has more sends several.
MOST = 1000
LONGEST_WAIT = 60.0
_LONGEST = LONGEST_SPAN.total_seconds()


def _storable(value: str) -> str:
    if (problem := text_problem(value)) is not None:
        raise ValueError(problem)
    return value


Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="How many seconds to wait for something to tell.")]
Seconds = Annotated[float, Field(ge=0, le=_LONGEST)]
# A limit of time: none at all is no limit.
Limit = Annotated[float, Field(gt=0, le=_LONGEST)]
Delay = Annotated[float, Field(ge=0, le=LONGEST_DELAY)]
Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[Text, Field(min_length=1, max_length=MAX_NAME)]
Key = Annotated[Text, Field(min_length=1, max_length=MAX_KEY)]
# What a call of an attempt is known by: a sign of how it is named, before a key or a number.
CallName = Annotated[Text, Field(min_length=1, max_length=1 + MAX_KEY)]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Attempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)]
Running = Annotated[int, Field(ge=1, le=MAX_RUNNING)]
