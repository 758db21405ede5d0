"""The storage of large values: what holds for a folder and for a bucket."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
from datetime import timedelta
from pathlib import Path

import pytest

from storages import Storage
from weft.core.errors import BlobUnavailable, InvalidSetting
from weft.core.settings import Settings
from weft.db.blob_folder import FolderBlobs
from weft.db.blobs import BlobStore, open_blobs

DAY = timedelta(days=1)


@pytest.fixture
def blobs(storage: Storage) -> BlobStore:
    return storage.open()


async def test_what_is_put_comes_back_by_its_hash(blobs: BlobStore, storage: Storage) -> None:
    for data in (b"", b"x", os.urandom(100_000)):
        digest = await blobs.put(data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert await blobs.get(digest) == data
    assert len(storage.digests()) == 3


async def test_the_same_is_kept_once_also_when_put_at_once(blobs: BlobStore, storage: Storage) -> None:
    digests = await asyncio.gather(*(blobs.put(b"same" * 1000) for _ in range(20)))
    assert len(set(digests)) == 1
    assert storage.digests() == [digests[0]]


async def test_what_is_put_where_nothing_can_be_awaited_is_the_same(blobs: BlobStore, storage: Storage) -> None:
    digest = blobs.put_now(b"precious")
    assert await blobs.put(b"precious") == digest
    assert await blobs.get(digest) == b"precious"
    assert storage.digests() == [digest]


async def test_the_same_on_another_day_is_kept_once(blobs: BlobStore, storage: Storage) -> None:
    for _ in range(3):
        digest = await blobs.put(b"precious")
        assert storage.digests() == [digest]
        storage.age(2)


async def test_a_damaged_or_missing_blob_is_an_error_that_names_it(
    blobs: BlobStore, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    digest = await blobs.put(b"precious")
    storage.write(digest, b"precioux")
    with pytest.raises(BlobUnavailable, match=f"blob {digest} is damaged.* bring it back"):
        await blobs.get(digest)
    storage.delete(digest)
    with caplog.at_level("INFO"), pytest.raises(BlobUnavailable, match=f"blob {digest} is .*WEFT_BLOB_URL") as caught:
        await blobs.get(digest)
    assert caught.value.digest == digest
    assert storage.url not in str(caught.value), "it is kept, and shown to others"
    assert f"blob {digest} is missing" in caplog.text
    assert storage.url in caplog.text


async def test_a_damaged_blob_is_mended_when_the_value_is_put_again_and_the_damage_is_kept_aside(
    blobs: BlobStore, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    digest = await blobs.put(b"precious")
    for age, damages in ((0, (b"", b"prec", b"prec")), (2, (b"precioux", b"pre"))):
        for damage in damages:
            storage.age(age)
            storage.write(digest, damage)
            caplog.clear()
            assert await blobs.put(b"precious") == digest
            assert await blobs.get(digest) == b"precious"
            assert storage.digests() == [digest]
            assert damage in storage.damaged(digest)
            assert f"blob {digest} was damaged" in caplog.text
            assert f"damaged/{digest}-" in caplog.text
    assert storage.damaged(digest) == {b"", b"prec", b"precioux", b"pre"}
    assert await blobs.put(b"precious") == digest
    assert len(storage.damaged(digest)) == 4


async def test_a_blob_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    digest = await blobs.put(b"precious")
    path = tmp_path / digest[:2] / digest
    path.unlink()
    path.mkdir()
    with pytest.raises(BlobUnavailable, match=f"blob {digest} cannot be read from the blob storage: Is a directory"):
        await blobs.get(digest)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 62 + "/.", "é" * 64])
async def test_what_is_no_hash_is_no_blob(blobs: BlobStore, digest: str) -> None:
    with pytest.raises(BlobUnavailable, match="is not the name of a blob"):
        await blobs.get(digest)


async def test_a_blob_is_removed_when_nobody_has_put_it_for_the_grace(blobs: BlobStore, storage: Storage) -> None:
    digest, other = await blobs.put(b"precious"), await blobs.put(b"other")
    assert not blobs.remove(digest, DAY)
    storage.age(0.9)
    assert not blobs.remove(digest, DAY)
    storage.age(0.2)
    assert blobs.remove(digest, DAY)
    with pytest.raises(BlobUnavailable, match="is missing"):
        await blobs.get(digest)
    assert storage.digests() == [other]
    # It need not be there to be gone.
    assert blobs.remove(digest, DAY)


async def test_a_blob_that_was_put_again_is_young(blobs: BlobStore, storage: Storage) -> None:
    digest = await blobs.put(b"precious")
    storage.age(5)
    assert blobs.put_now(b"precious") == digest
    assert not blobs.remove(digest, DAY)
    assert await blobs.get(digest) == b"precious"


def test_each_database_leaves_its_name(blobs: BlobStore, storage: Storage) -> None:
    assert blobs.users() == set()
    for user in ("7-weft", "7-Ümläute & more/than that%20", "7-weft"):
        blobs.mark(user)
    assert blobs.users() == {"7-weft", "7-Ümläute & more/than that%20"}
    storage.forget_user("7-Ümläute & more/than that%20")
    assert blobs.users() == {"7-weft"}
    assert storage.digests() == []


async def test_a_blob_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    blobs, before = FolderBlobs(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a disk with so much room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(BlobUnavailable, match=r"blob \w+ cannot be written to the blob storage: File too large"):
            await blobs.put(b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_what_a_killed_process_has_left_is_swept_away_and_nothing_else(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    kept, moved, again = [await blobs.put(data) for data in (b"kept", b"moved", b"again")]
    folder = tmp_path / kept[:2]
    left, young = folder / ".new-left", folder / ".new-young"
    for path in (left, young):
        path.write_bytes(b"half")
    os.utime(left, (0, 0))
    # Killed amid a removal: of what somebody put in that moment, and of what was put once more since.
    for digest in (moved, again):
        path = tmp_path / digest[:2] / digest
        path.rename(path.with_name(f".old-{digest}"))
    await blobs.put(b"again")
    (tmp_path / again[:2] / f".old-{again}").write_bytes(b"damaged")
    assert (blobs.sweep(DAY), blobs.sweep(DAY)) == (3, 0)
    assert [await blobs.get(digest) for digest in (kept, moved, again)] == [b"kept", b"moved", b"again"]
    assert [path.name for path in tmp_path.rglob(".*")] == [".new-young"]


async def test_the_storage_is_the_one_of_the_settings(storage: Storage, tmp_path: Path) -> None:
    digest = await open_blobs(Settings.load(environ={}, home=tmp_path, blob_url=storage.url)).put(b"x")
    assert storage.digests() == [digest]
    assert await storage.open().get(digest) == b"x"


async def test_the_storage_is_a_folder_by_default(tmp_path: Path) -> None:
    digest = await open_blobs(Settings.load(environ={}, home=tmp_path)).put(b"x")
    assert (tmp_path / "blobs" / digest[:2] / digest).read_bytes() == b"x"


async def test_an_address_with_a_blank_is_a_folder_with_a_blank(tmp_path: Path) -> None:
    store = open_blobs(Settings.load(environ={}, blob_url=f"file://{tmp_path}/with%20blank"))
    digest = await store.put(b"x")
    assert (tmp_path / "with blank" / digest[:2] / digest).read_bytes() == b"x"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("gs://bucket/x", "is not supported: give a folder, or an address with file:// or s3://"),
        ("https://secret@host/x", "is not supported"),
        ("s3:", "has no bucket: write it like s3://bucket/prefix"),
        ("s3://", "has no bucket"),
        ("s3:///prefix", "has no bucket"),
        ("s3://a secret/x", "has a bucket whose name S3 does not allow"),
        ("s3://[::1]/x", "has a bucket whose name S3 does not allow"),
        ("s3://key:secret@bucket/x", "credentials, region and endpoint are read from AWS_ACCESS_KEY_ID"),
        ("s3://bucket/x?secret=1", "credentials, region and endpoint are read from AWS_ACCESS_KEY_ID"),
        ("s3://bucket/a secret", "has a prefix of other characters than"),
        ("s3://bucket/a//b", "has a prefix of other characters than"),
        ("s3://bucket/../b", "has a prefix of other characters than"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused_without_repeating_it(url: str, problem: str) -> None:
    with pytest.raises(InvalidSetting, match="setting WEFT_BLOB_URL: ") as caught:
        open_blobs(Settings.load(environ={}, blob_url=url))
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)
