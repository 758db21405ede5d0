"""What is kept in a row is read by every later release, and never as something else."""

from __future__ import annotations

import asyncio

import pytest

from weft.core.errors import BlobUnavailable
from weft.db.blobs import Blobs, digest_of
from weft.history.contents import compress, read

# As they stand in databases: by zlib with the dictionary, by zlib when the text is long, by bzip2.
KEPT = {
    b'[{"op":"replace","path":"/nodes/fetch/params/size","value":3}]': "8b2660785a6a497206cc86e2ccaa5484138d6b6301",
    b'{"handler":"h","retry":{"max_attempts":3,"backoff":"exponential"}}': "ab46727706508ed4f8a8ad0500",
    b"y" * 20_000: "edd03101000000c2a0dcb65f0d0f88c03060c0800103060c183060c0800103060c183060c0800103060c183060c0800103"
    "060c183060c0800103060c183060c0800103060c183060c0800103060c183060c0800103060c183060c0800103060c183060c080818b8100",
    b"x" * 20_000: "425a683931415926535949e9862b0000290180801000400008200020a534198e32a36151e2ee48a70a12093d30c560",
}


def nowhere() -> Blobs:
    raise AssertionError("what stands in a row is not looked for elsewhere")


def kept(digest: str, stored: bytes) -> bytes:
    return asyncio.run(read(digest, stored, nowhere))


@pytest.mark.parametrize("text", KEPT)
def test_what_an_earlier_release_has_kept_is_read(text: bytes) -> None:
    assert kept(digest_of(text), bytes.fromhex(KEPT[text])) == text


def test_the_dictionary_is_the_one_of_the_first_release() -> None:
    """It can never be another: what was compressed with it is read with it alone. This is all of it, by itself."""
    digest = "c569ce5f1b059e28f83942603ed2b11384ca1cc18d04f9895e38e386ffd9715d"
    assert len(kept(digest, bytes.fromhex("531a4d92a3497270254900"))) == 659


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("text", [b"{}", *KEPT])
def test_what_is_kept_reads_back(text: bytes, is_small: bool) -> None:
    assert kept(digest_of(text), compress(text, small=is_small)) == text


@pytest.mark.parametrize("text", KEPT)
def test_bytes_that_are_damaged_anywhere_are_told_as_such_or_read_as_they_were(text: bytes) -> None:
    stored, digest = bytes.fromhex(KEPT[text]), digest_of(text)
    cut = [stored[:length] for length in range(len(stored))]
    flipped = [
        stored[: bit // 8] + bytes([stored[bit // 8] ^ 1 << bit % 8]) + stored[bit // 8 + 1 :]
        for bit in range(8 * len(stored))
    ]
    told = [said for said in (told_of(digest, damaged) for damaged in cut + flipped) if said is not None]
    assert len(told) > len(stored)
    assert all(said.startswith(f"blob {digest} is damaged in its row") for said in told)


def told_of(digest: str, stored: bytes) -> str | None:
    """Return what is told of damage, or nothing where what is read has the digest that it should have."""
    try:
        assert digest_of(kept(digest, stored)) == digest
    except BlobUnavailable as problem:
        return str(problem)
    return None
