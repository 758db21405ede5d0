"""Tests of workflows and handlers: a database for each test, and a runner whose clock the test moves."""

from weft.testing.database import ScratchDatabase, ScratchServer
from weft.testing.runner import Runner

__all__ = ["Runner", "ScratchDatabase", "ScratchServer"]
