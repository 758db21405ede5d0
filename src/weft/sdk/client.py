"""The client: everything a program may do with the queue."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from weft.sdk.enqueuing import Enqueuing
from weft.sdk.measuring import Measuring
from weft.sdk.operating import Operating

if TYPE_CHECKING:
    from weft.sdk.jobs import Jobs
    from weft.sdk.workflows import Workflows


class Client(Enqueuing, Operating, Measuring):
    """A connection to Weft: on the embedded PostgreSQL without a URL, else on the database that it names.

    Example::

        async with weft.Client() as client:
            task = await client.enqueue("email:send", {"to": "ada@example.com"})
            print(await client.wait(task.id, timeout=10))
    """

    @cached_property
    def workflows(self) -> Workflows:
        """What is done with workflow definitions.

        Example::

            await client.workflows.push(Path("flow.yaml"))
        """
        from weft.sdk.workflows import Workflows

        return Workflows(self)

    @cached_property
    def jobs(self) -> Jobs:
        """What is done with jobs.

        Example::

            job = await client.jobs.submit("etl", {"day": "2026-11-14"})
        """
        from weft.sdk.jobs import Jobs

        return Jobs(self)
