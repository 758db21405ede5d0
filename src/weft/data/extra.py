"""What is said where data are worked with and the extra that they need is not installed."""

from __future__ import annotations

import importlib
from typing import Any

from weft.core.errors import InvalidSetting


def needs(module: str) -> Any:
    """Return a module of the extra ``data``; raises `InvalidSetting` where it is not installed."""
    package, _, _ = module.partition(".")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.partition(".")[0] != package:
            raise
        raise InvalidSetting("dataset", f"datasets need {package}: pip install 'weft[data]'") from None
