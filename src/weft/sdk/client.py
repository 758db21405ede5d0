"""The client: everything a program may do with the queue."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from weft.sdk.enqueuing import Enqueuing
from weft.sdk.measuring import Measuring
from weft.sdk.operating import Operating

if TYPE_CHECKING:
    from weft.sdk.datasets import Datasets
    from weft.sdk.jobs import Jobs
    from weft.sdk.live import Live
    from weft.sdk.orgs import Orgs
    from weft.sdk.roles import Roles
    from weft.sdk.schedules import Schedules
    from weft.sdk.tokens import Tokens
    from weft.sdk.users import Users
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

    @cached_property
    def schedules(self) -> Schedules:
        """What is done with workflows that begin by themselves.

        Example::

            await client.schedules.add("etl/main", cron="0 3 * * *", timezone="Europe/Berlin")
        """
        from weft.sdk.schedules import Schedules

        return Schedules(self)

    @cached_property
    def datasets(self) -> Datasets:
        """What is done with named tables of data.

        Example::

            print((await client.datasets.show("orders")).rows)
        """
        from weft.sdk.datasets import Datasets

        return Datasets(self)

    @cached_property
    def live(self) -> Live:
        """What is done with live DAGs.

        Example::

            await client.live.deploy(Path("market.yaml"))
        """
        from weft.sdk.live import Live

        return Live(self)

    @cached_property
    def orgs(self) -> Orgs:
        """What an installation's operator does with orgs.

        Example::

            await client.orgs.create("acme")
        """
        from weft.sdk.orgs import Orgs

        return Orgs(self)

    @cached_property
    def users(self) -> Users:
        """What is done with the users of the org.

        Example::

            await client.users.add("ada@example.com", role="writer")
        """
        from weft.sdk.users import Users

        return Users(self)

    @cached_property
    def roles(self) -> Roles:
        """What is done with the roles that the org defines.

        Example::

            await client.roles.grant("finance", "ada@example.com")
        """
        from weft.sdk.roles import Roles

        return Roles(self)

    @cached_property
    def tokens(self) -> Tokens:
        """What is done with the tokens of the org.

        Example::

            made = await client.tokens.create("nightly", role="writer")
        """
        from weft.sdk.tokens import Tokens

        return Tokens(self)
