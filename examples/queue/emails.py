"""A worker app with two handlers: one writes an e-mail to a folder, the other sends one to each of many people.

Run a worker in this folder, and give it work from another terminal when it is ready::

    weft worker --app emails
    weft tasks enqueue email:newsletter --queue email --params '{"to": ["ada@example.com"], "subject": "News"}'
    weft tasks list --queue email
"""

import logging
import os
from email.message import EmailMessage
from pathlib import Path

import weft

OUTBOX = Path(os.environ.get("OUTBOX", "outbox"))
logger = logging.getLogger(__name__)


@weft.task(name="email:send", queue="email", retry=5, timeout=30)
def send(to: str, subject: str, text: str, ctx: weft.Context) -> str:
    """Write one e-mail; sync functions run in threads, and an address without @ is not tried again."""
    if "@" not in to:
        raise weft.NonRetryable(f"{to!r} is not an address")
    message = EmailMessage()
    message["To"], message["Subject"], message["Message-ID"] = to, subject, f"<{ctx.idempotency_key}@example.com>"
    message.set_content(text)
    OUTBOX.mkdir(parents=True, exist_ok=True)
    # The same name in every attempt: a second one writes the same e-mail, not another.
    path = OUTBOX / f"{ctx.idempotency_key}.eml"
    path.write_bytes(bytes(message))
    logger.info("wrote %s", path)
    return path.name


@weft.task(name="email:newsletter", queue="email")
async def newsletter(to: list[str], subject: str, ctx: weft.Context) -> int:
    """Enqueue one e-mail for each address; a repeated attempt creates none twice."""
    async with weft.Client() as client:
        handles = await client.enqueue_many(
            weft.NewTask(
                send,
                {"to": address, "subject": subject, "text": f"Dear {address}, here is the news."},
                idempotency_key=f"{ctx.idempotency_key}-{address}",
            )
            for address in to
        )
    print(f"enqueued {len(handles)} e-mails")
    return len(handles)
