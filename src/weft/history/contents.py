"""The bytes of documents and patches: compressed in the database, or in the blob storage when they are large."""

from __future__ import annotations

import asyncio
import bz2
import zlib
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import BlobUnavailable, InvalidInput
from weft.db.blobs import Blobs, digest_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.core.settings import Settings

MEDIA_TYPES = {
    "version": "application/json",
    "patch": "application/json-patch+json",
    "snapshot": "application/json",
}
# A long text is compressed in a third of the time, to a tenth more.
_LEVEL, _LEVEL_OF_LONG = 6, 3
# What is shorter is smaller with the dictionary than with bzip2, whose texts begin so.
_SHORT = 16 * 1024
_BZ2 = b"BZh91AY&SY"
# What most documents and patches have in them: what is short is compressed by half again as much with it.
_DICTIONARY = (
    b'"heartbeat_timeout_seconds":"concurrency_key":"allow_failure":true"max_parallel":"condition_field":"{{ nodes.'
    b'"branches":[{"condition":"default":true,"next":"type":"conditional""type":"fan_out","items":"{{ inputs.'
    b'"type":"fan_in""type":"wait","for":"approval""type":"workflow""retry":{"max_attempts":3,"backoff":"exponential",'
    b'"initial_delay_seconds":5,"max_delay_seconds":300},"timeout_seconds":3600,"queue":"default","params":{"'
    b'"description":"labels":{"name":"}},"type":"task","handler":"{"op":"remove","path":"/nodes/'
    b'[{"op":"add","path":"/nodes/","value":{"op":"test"{"op":"replace","path":"/nodes/'
    b'/params/"value":"{{ inputs.{{ nodes..output }}","next":"END"}'
)


class Content:
    """Bytes with their digest, as they are stored: compressed, or elsewhere; ``small`` takes longer and less room."""

    __slots__ = ("bytes", "data", "digest", "stored")

    def __init__(self, data: bytes, inline_limit: int, small: bool = False) -> None:
        self.data = data
        self.bytes = len(data)
        self.digest = digest_of(data)
        self.stored = compress(data, small=small) if len(data) <= inline_limit else None


def packing(text: bytes, settings: Settings, *, small: bool = False) -> Awaitable[Content]:
    """Begin to compress a text beside the event loop: it takes as long as checking."""
    return asyncio.get_running_loop().run_in_executor(None, Content, text, settings.inline_limit, small)


async def pack(
    text: bytes, settings: Settings, blobs: Callable[[], Blobs], begun: Awaitable[Content] | None = None
) -> Content:
    """Return a text as it is stored; what is large is put into the blob storage first."""
    if len(text) > settings.value_limit:
        raise InvalidInput("definition", f"has {len(text):,} bytes, and may have {settings.value_limit:,}")
    if begun is not None:
        content = await begun
    elif len(text) <= _SHORT:
        content = Content(text, settings.inline_limit)
    else:
        content = await packing(text, settings)
    if content.stored is None:
        await blobs().put(content.data)
    return content


def compress(data: bytes, *, small: bool = False) -> bytes:
    """Return the bytes as they are kept in a row."""
    if small and len(data) > _SHORT:
        return bz2.compress(data)
    level = _LEVEL if len(data) <= _SHORT else _LEVEL_OF_LONG
    packer = zlib.compressobj(level, zlib.DEFLATED, -15, 9, zdict=_DICTIONARY)
    return packer.compress(data) + packer.flush()


async def load(digest: str, stored: bytes | None, blobs: Callable[[], Blobs]) -> Any:
    """Return the value of a blob; raises `BlobUnavailable`, which names it, when it is missing or damaged."""
    return orjson.loads(await read(digest, stored, blobs))


async def read(digest: str, stored: bytes | None, blobs: Callable[[], Blobs]) -> bytes:
    """Return the bytes of a blob, from its row or from the blob storage, verified."""
    return unpack(digest, stored) if stored is not None else await blobs().get(digest)


def unpack(digest: str, stored: bytes) -> bytes:
    """Return the bytes that a row has compressed, verified."""
    data: bytes | None
    try:
        if stored.startswith(_BZ2):
            data = bz2.decompress(stored)
        else:
            data = zlib.decompressobj(-15, zdict=_DICTIONARY).decompress(stored)
    except (zlib.error, OSError, ValueError, EOFError):
        data = None
    if data is None or digest_of(data) != digest:
        raise BlobUnavailable(digest, "is damaged in its row: restore it from a backup")
    return data
