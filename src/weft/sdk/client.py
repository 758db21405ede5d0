"""The client: everything a program may do with the queue."""

from __future__ import annotations

from weft.sdk.enqueuing import Enqueuing
from weft.sdk.operating import Operating


class Client(Enqueuing, Operating):
    """A connection to Weft: on the embedded PostgreSQL without a URL, else on the database that it names.

    Example::

        async with weft.Client() as client:
            task = await client.enqueue("email:send", {"to": "ada@example.com"})
            print(await client.wait(task.id, timeout=10))
    """
