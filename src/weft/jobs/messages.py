"""The names of the messages that ask for jobs."""

from __future__ import annotations

QUEUE = "orchestrator-jobs"
HANDLER = "weft.submit"
