"""Keeps Python from looking for circles of references while much is made that has none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects in the body without a look at all that are there after each few hundred of them.

    A large document costs half as much so. Whoever had the collector off finds it off.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
