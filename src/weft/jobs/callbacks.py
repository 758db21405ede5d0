"""Tells the receiver that a job names when it has ended: signed, and again until it is taken."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import InvalidInput
from weft.jobs.posting import Poster
from weft.version import __version__

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.queue.outbox import Effect

logger = logging.getLogger("weft.service")
FIELD = "callback_url"


def sign(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message, as Standard Webhooks has it.

    Receivers make it anew from the headers and the body, compare the two, and refuse a timestamp that is long ago.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class Callbacks:
    """Carries out the effects of kind ``callback``."""

    def __init__(self, settings: Settings) -> None:
        self._secrets = settings.callback_secret
        self._public_url = settings.public_url
        self._poster = Poster(settings.callback_allowed, settings.callback_timeout.total_seconds())
        self._has_warned = False

    async def send(self, effect: Effect) -> None:
        """Post what an effect says to its receiver; a repeat has the same id, by which the receiver knows it."""
        payload: Any = effect.payload
        if not isinstance(payload, dict) or not isinstance(payload.get("url"), str):
            raise InvalidInput("payload", "must be a mapping with the url of the receiver")
        # One secret signs for all orgs: whose job it is must be part of what is signed.
        told = {"org": effect.org} | {name: value for name, value in payload.items() if name not in ("url", "org")}
        if "job_id" in told:
            told["result_url"] = self.result_url(told["job_id"])
        body = orjson.dumps(told)
        await self._poster.post(payload["url"], body, self._headers(effect.id, body), FIELD)

    def result_url(self, job_id: object) -> str | None:
        """Return where a job's result can be fetched; None without ``WEFT_PUBLIC_URL``."""
        return None if self._public_url is None else f"{self._public_url}/jobs/{job_id}/result"

    def _headers(self, effect_id: int, body: bytes) -> dict[str, str]:
        message_id, timestamp = f"msg_{effect_id}", int(time.time())
        headers = {"User-Agent": f"weft/{__version__}", "webhook-id": message_id, "webhook-timestamp": str(timestamp)}
        if self._secrets:
            # With several each receiver finds the one that it knows: so a secret is changed without a gap.
            headers["webhook-signature"] = " ".join(sign(key, message_id, timestamp, body) for key in self._secrets)
        elif not self._has_warned:
            self._has_warned = True
            logger.warning("callbacks are sent without a signature: set WEFT_CALLBACK_SECRET")
        return headers
