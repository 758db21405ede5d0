"""What all crash tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crash.harness import Crew, crew_at
from crash.scene import Scene


@pytest.fixture
async def crew(url: str, tmp_path: Path) -> AsyncIterator[Crew]:
    """The processes of one test on its own database."""
    async with crew_at(url, tmp_path / "crew") as opened:
        yield opened


@pytest.fixture
def scene(url: str, tmp_path: Path) -> Scene:
    """Workers inside the test's own process, on its database."""
    return Scene(url, tmp_path / "home")
