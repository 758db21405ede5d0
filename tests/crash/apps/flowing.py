"""The operators of drawn live DAGs, as workers of crash tests have them: one attempt in ten fails."""

from __future__ import annotations

import random

from live_oracle import add_operators
from weft.worker.registry import REGISTRY


def _stumble() -> None:
    if random.random() < 0.05:
        raise ValueError("as drawn")


add_operators(REGISTRY, _stumble)
