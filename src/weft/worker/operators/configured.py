"""What a DAG says to an operator that comes with Weft, checked by the operator's own model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from weft.core.errors import InvalidInput
from weft.flow.durations import seconds_of

if TYPE_CHECKING:
    from weft.worker.live import LiveContext

M = TypeVar("M", bound=BaseModel)


def configured(live: LiveContext, model: type[M]) -> M:
    """Return the config of a live job; raises `InvalidInput` that names the first field that is wrong."""
    try:
        return model.model_validate(dict(live.config))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(["config", *(str(each) for each in first["loc"])])
        raise InvalidInput(place, str(first["msg"])) from None


def seconds_allowed(live: LiveContext) -> int:
    """Return how long a query of a unit may take: as long as the unit itself, or else as any query."""
    said = live.document.get("timeout_seconds")
    general = live.workshop.settings.query_timeout.total_seconds()
    return math.ceil(general if said is None else seconds_of(said))
