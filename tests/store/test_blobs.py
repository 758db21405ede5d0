"""The storage of large values."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from weft.core.errors import BlobUnavailable, InvalidSetting
from weft.core.settings import Settings
from weft.db.blobs import FolderBlobs, open_blobs


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


def _files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


async def test_what_is_put_comes_back_by_its_hash(blobs: FolderBlobs, tmp_path: Path) -> None:
    for data in (b"", b"x", os.urandom(100_000)):
        digest = await blobs.put(data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert await blobs.get(digest) == data
    assert len(_files(tmp_path)) == 3


async def test_the_same_is_kept_once_also_when_put_at_once(blobs: FolderBlobs, tmp_path: Path) -> None:
    digests = await asyncio.gather(*(blobs.put(b"same" * 1000) for _ in range(20)))
    assert len(set(digests)) == 1
    assert [path.name for path in _files(tmp_path)] == [digests[0]]


async def test_a_damaged_or_missing_blob_is_an_error_that_names_it(blobs: FolderBlobs, tmp_path: Path) -> None:
    digest = await blobs.put(b"precious")
    (file,) = _files(tmp_path)
    file.write_bytes(b"precioux")
    with pytest.raises(BlobUnavailable, match=f"blob {digest} is damaged"):
        await blobs.get(digest)
    file.unlink()
    with pytest.raises(BlobUnavailable, match=f"blob {digest} is missing in .*WEFT_BLOB_URL") as caught:
        await blobs.get(digest)
    assert caught.value.digest == digest


async def test_a_damaged_blob_is_mended_when_the_value_is_put_again(blobs: FolderBlobs, tmp_path: Path) -> None:
    digest = await blobs.put(b"precious")
    (file,) = _files(tmp_path)
    for damage in (b"", b"prec", b"precioux"):
        file.write_bytes(damage)
        assert await blobs.put(b"precious") == digest
        assert await blobs.get(digest) == b"precious"


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 62 + "/.", "é" * 64])
async def test_what_is_no_hash_is_no_blob(blobs: FolderBlobs, digest: str) -> None:
    with pytest.raises(BlobUnavailable, match="is not the name of a blob"):
        await blobs.get(digest)


async def test_a_blob_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("not a folder")
    with pytest.raises(OSError, match=r"blobs"):
        await FolderBlobs(tmp_path / "blobs").put(b"x")


def test_the_storage_is_a_folder_by_default_or_by_address(tmp_path: Path) -> None:
    for url in (None, str(tmp_path / "elsewhere"), f"file://{tmp_path}/with%20blank"):
        assert open_blobs(Settings.load(environ={}, home=tmp_path, blob_url=url)) is not None
    with pytest.raises(InvalidSetting, match=r"WEFT_BLOB_URL: s3:// is not supported"):
        open_blobs(Settings.load(environ={}, home=tmp_path, blob_url="s3://bucket/x"))


async def test_an_address_with_a_blank_is_a_folder_with_a_blank(tmp_path: Path) -> None:
    store = open_blobs(Settings.load(environ={}, blob_url=f"file://{tmp_path}/with%20blank"))
    digest = await store.put(b"x")
    assert (tmp_path / "with blank" / digest[:2] / digest).read_bytes() == b"x"
