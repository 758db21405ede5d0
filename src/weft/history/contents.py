"""The bytes of documents and patches: compressed in the database, or in the blob storage when they are large."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import BlobUnavailable
from weft.db.blobs import Blobs, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVEL = 6
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
    """Bytes with their digest, as they are stored: compressed, or elsewhere."""

    __slots__ = ("bytes", "data", "digest", "stored")

    def __init__(self, data: bytes, inline_limit: int) -> None:
        self.data = data
        self.bytes = len(data)
        self.digest = digest_of(data)
        self.stored = compress(data) if len(data) <= inline_limit else None


def content_of(value: Any, inline_limit: int) -> Content:
    """Return a value's JSON, its keys in the order in which they were written."""
    return Content(orjson.dumps(value), inline_limit)


def compress(data: bytes) -> bytes:
    """Return the bytes as they are kept in a row."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9, zdict=_DICTIONARY)
    return packer.compress(data) + packer.flush()


async def load(digest: str, stored: bytes | None, blobs: Callable[[], Blobs]) -> Any:
    """Return the value of a blob; raises `BlobUnavailable`, which names it, when it is missing or damaged."""
    return orjson.loads(await read(digest, stored, blobs))


async def read(digest: str, stored: bytes | None, blobs: Callable[[], Blobs]) -> bytes:
    """Return the bytes of a blob, from its row or from the blob storage, verified."""
    return unpack(digest, stored) if stored is not None else await blobs().get(digest)


def unpack(digest: str, stored: bytes) -> bytes:
    """Return the bytes that a row has compressed, verified."""
    try:
        data = zlib.decompressobj(-15, zdict=_DICTIONARY).decompress(stored)
    except zlib.error as problem:
        raise BlobUnavailable(digest, f"is damaged in its row ({problem}): restore it from a backup") from None
    if digest_of(data) != digest:
        raise BlobUnavailable(digest, "is damaged in its row, its bytes have another hash: restore it from a backup")
    return data
