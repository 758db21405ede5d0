"""How a sender without a token signs what it sends to a source of events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from weft.core.settings import HOOK_SECRETS
from weft.flow.model import Part, Seconds

# Only what is named so is looked up in the environment of a server: a document cannot ask for anything else there.
SECRET_ENV = rf"^{HOOK_SECRETS}[A-Z0-9_]{{1,100}}$"
HeaderName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9-]+$")]


class Hmac(Part):
    """How a request to the hook of a source is signed: as GitHub, Stripe or Standard Webhooks do."""

    form: Literal["github", "stripe", "standard"] = Field(
        default="github",
        description="`github` signs the body, `stripe` a time with it, `standard` (Standard Webhooks) an id and a time"
        " with it.",
    )
    secret_env: Annotated[str, Field(pattern=SECRET_ENV)] = Field(
        description="The variable in the server's environment that holds the secret: WEFT_HOOK_ and more. It may hold "
        "two, with a space between them, while one takes the place of the other."
    )
    header: HeaderName | None = Field(
        default=None,
        description="The header of the signature; X-Hub-Signature-256, Stripe-Signature or Webhook-Signature unless "
        "said.",
    )
    prefix: Annotated[str, Field(max_length=50)] | None = Field(
        default=None, description="Of `github`: what stands before the signature; `sha256=` unless said."
    )
    encoding: Literal["hex", "base64"] = Field(default="hex", description="Of `github`: how the signature is written.")
    delivery_header: HeaderName | None = Field(
        default=None,
        description="Of `github`: the header that tells deliveries apart; without it, what has the same body is the "
        "same. X-GitHub-Delivery where the header of the signature is not said.",
    )
    tolerance: Seconds = Field(
        default=300, description="Of `stripe` and `standard`: how far the time that was signed may be from now."
    )

    @model_validator(mode="after")
    def _names_go_together(self) -> Hmac:
        if self.form == "standard" and self.header and not self.header.lower().endswith("-signature"):
            what = "the header of `standard` ends in -Signature, and beside it are -Id and -Timestamp"
            raise PydanticCustomError("bad_here", "{what}", {"what": what})
        return self
