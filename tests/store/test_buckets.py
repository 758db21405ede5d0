"""Large values in a bucket of S3: what may go wrong with it, and what comes late to it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest

from buckets import SECRET, S3Bucket, S3Server
from weft.core.errors import BlobUnavailable, InvalidSetting, WeftError
from weft.core.settings import Settings
from weft.db.blob_bucket import BucketBlobs
from weft.db.blobs import open_blobs

DAY = timedelta(days=1)
DATA = b"precious"
DELETING = "POST", r"\?delete"


@pytest.fixture
def blobs(s3_bucket: S3Bucket) -> BucketBlobs:
    return BucketBlobs(s3_bucket.address)


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = datetime.combine(datetime.now(UTC).date(), time(12), UTC)

    def __call__(self) -> datetime:
        return self.now


def _closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def _problems(blobs: BucketBlobs) -> list[str]:
    """Return what each verb says about the storage."""
    digest = "a" * 64
    verbs = (
        lambda: blobs.put(DATA), lambda: blobs.get(digest), lambda: asyncio.to_thread(blobs.put_now, DATA),
        lambda: asyncio.to_thread(blobs.remove, digest, DAY), lambda: asyncio.to_thread(blobs.mark, "7-weft"),
        lambda: asyncio.to_thread(blobs.users),
    )  # fmt: skip
    said = []
    for verb in verbs:
        with pytest.raises(BlobUnavailable) as caught:
            await verb()
        assert caught.value.__suppress_context__, "else a traceback would print what obstore says"
        said.append(str(caught.value))
    return said


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        ("403 Forbidden", "AccessDenied", "access is denied: allow s3:GetObject, s3:PutObject and s3:DeleteObject"),
        ("403 Forbidden", "SomethingElse", "access is denied: allow s3:GetObject"),
        ("401 Unauthorized", "Unauthorized", "access is denied: allow s3:GetObject"),
        ("403 Forbidden", "InvalidAccessKeyId", "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("403 Forbidden", "SignatureDoesNotMatch", "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("400 Bad Request", "ExpiredToken", "renew AWS_SESSION_TOKEN"),
        ("403 Forbidden", "RequestTimeTooSkewed", "it refuses the clock of this machine"),
        ("301 Moved Permanently", "PermanentRedirect", "is in another region: set AWS_REGION"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "is in another region: set AWS_REGION"),
        ("400 Bad Request", "SomethingElse", "it answers 400 SomethingElse"),
    ],
)
async def test_a_storage_that_refuses_is_told_with_what_to_do_and_without_secrets(
    blobs: BucketBlobs, s3_bucket: S3Bucket, status: str, code: str, advice: str
) -> None:
    with s3_bucket.server.answering(status, code):
        said = await _problems(blobs)
    for line in said:
        assert s3_bucket.url not in line
        assert advice in line
        assert SECRET not in line
        assert "AKIATEST" not in line
    assert said[1].startswith(f"blob {'a' * 64} cannot be listed: ")


async def test_a_storage_that_is_out_of_order_is_asked_again_before_it_is_told(
    blobs: BucketBlobs, s3_bucket: S3Bucket
) -> None:
    with s3_bucket.server.answering("503 Slow Down", "SlowDown"), pytest.raises(BlobUnavailable) as caught:
        await blobs.get("a" * 64)
    assert "it is out of order or too busy, and answers 503 SlowDown: try again later" in str(caught.value)


async def test_a_storage_that_cannot_be_reached_is_told(s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{_closed_port()}")
    for line in await _problems(BucketBlobs(s3_bucket.address)):
        assert "it cannot be reached: see to the network, AWS_ENDPOINT_URL" in line
        assert "AKIATEST" not in line


async def test_a_bucket_that_is_not_there_is_told(blobs: BucketBlobs, s3_bucket: S3Bucket) -> None:
    s3_bucket.remove()
    for line in await _problems(blobs):
        assert "there is no such bucket: create it" in line


async def test_credentials_that_are_not_there_are_told(
    s3_bucket: S3Bucket, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without keys a role of the machine is asked for, here at a server that knows of none."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(InvalidSetting, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together") as caught:
        BucketBlobs(s3_bucket.address)
    assert SECRET not in str(caught.value)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", s3_server.url)
    blobs = BucketBlobs(s3_bucket.address)
    with s3_server.answering("404 Not Found", "Nothing"):
        for line in await _problems(blobs):
            assert "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give" in line
    assert s3_server.requests[-1][0].startswith("PUT /latest/api/token")


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
@pytest.mark.parametrize("endpoint", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
async def test_region_endpoint_and_token_come_from_the_environment(
    s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv(name, "eu-north-1")
    monkeypatch.setenv(endpoint, s3_bucket.server.url)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    await BucketBlobs(s3_bucket.address).put(DATA)
    _, signature = s3_bucket.server.requests[-1]
    assert "Credential=AKIATESTTESTTEST/" in signature
    assert "/eu-north-1/s3/" in signature
    assert "x-amz-security-token" in signature


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("", "is not an address like https://host:port"),
        ("nonsense", "is not an address like"),
        ("ftp://host", "is not an address like"),
        ("http://[bad", "is not an address like"),
        ("https://host:port", "is not an address like"),
        ("https://key:secret@host", "is not an address like"),
        ("http://storage.example:9000", "sends values unencrypted: use https://, or set AWS_ALLOW_HTTP=true"),
    ],
)
def test_an_endpoint_that_cannot_be_one_is_refused(
    s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, endpoint: str, problem: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(InvalidSetting, match="setting AWS_ENDPOINT_URL: ") as caught:
        BucketBlobs(s3_bucket.address)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_endpoint_elsewhere_may_be_unencrypted_if_that_is_said(
    s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.example:9000")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    BucketBlobs(s3_bucket.address)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "perhaps")
    with pytest.raises(InvalidSetting, match="AWS_ALLOW_HTTP: 'perhaps' is neither true nor false"):
        BucketBlobs(s3_bucket.address)


def test_without_the_package_its_name_is_told(s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "weft.db.blob_bucket")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidSetting, match=r'WEFT_BLOB_URL: .*pip install "weft\[s3\]"'):
        open_blobs(Settings.load(environ={}, blob_url=s3_bucket.url))


class Read(io.BytesIO):
    """A file that notes how much of it is read at once."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.most = max(self.most, len(found))
        return found


async def test_a_large_file_is_put_in_parts_and_is_there_whole_or_not_at_all(
    blobs: BucketBlobs, s3_bucket: S3Bucket
) -> None:
    data = os.urandom(1 << 20) * 12
    file, digest = Read(data), hashlib.sha256(data).hexdigest()
    await blobs.put_file(file, digest)
    assert file.most <= 1 << 20
    parts = [place for place, _ in s3_bucket.server.requests if place.startswith("PUT") and "partNumber=" in place]
    assert len(parts) == 3
    assert await blobs.get(digest) == data
    (name,) = s3_bucket.objects()
    s3_bucket.write(name, data[1:])
    await blobs.put_file(file, digest)
    assert await blobs.get(digest) == data
    assert sorted(len(each) for each in s3_bucket.objects().values()) == [len(data) - 1, len(data)], "kept aside"


async def test_of_several_copies_one_that_is_whole_is_enough(blobs: BucketBlobs, s3_bucket: S3Bucket) -> None:
    digest = await blobs.put(DATA)
    s3_bucket.write(f"{digest[:2]}/{digest}/restored", b"damaged")
    assert await blobs.get(digest) == DATA


async def test_what_was_brought_there_under_another_name_is_read_and_removed(
    blobs: BucketBlobs, s3_bucket: S3Bucket
) -> None:
    digest = hashlib.sha256(DATA).hexdigest()
    s3_bucket.write(f"{digest[:2]}/{digest}/moved", DATA)
    assert await blobs.get(digest) == DATA
    assert not blobs.remove(digest, DAY)
    s3_bucket.age(1.1)
    assert blobs.remove(digest, DAY)
    assert s3_bucket.objects() == {}


def test_a_program_that_uses_a_folder_never_loads_what_buckets_need(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys, weft
from weft.core.settings import Settings
from weft.db.blobs import open_blobs
asyncio.run(open_blobs(Settings.load(environ={{}}, home={str(tmp_path)!r})).put(b"x"))
print([name for name in ("obstore", "weft.db.blob_bucket") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


async def test_what_may_be_put_but_not_listed_is_put(blobs: BucketBlobs, s3_bucket: S3Bucket) -> None:
    server = s3_bucket.server
    with (
        server.holding("GET", "list-type") as listing,
        server.holding("PUT", "") as writing,
        ThreadPoolExecutor() as threads,
    ):
        putting = threads.submit(blobs.put_now, DATA)
        listing.wait()
        with server.answering("403 Forbidden", "AccessDenied"):
            listing.let_in()
            writing.wait()
        writing.let_in()
        digest = putting.result()
    assert await blobs.get(digest) == DATA


async def test_what_may_be_put_but_not_read_is_put_and_no_copy_is_taken_away(
    blobs: BucketBlobs, s3_bucket: S3Bucket
) -> None:
    server, digest = s3_bucket.server, await blobs.put(DATA)
    s3_bucket.age(3)
    with (
        server.holding("GET", rf"{digest}/") as reading,
        server.holding("PUT", "") as writing,
        ThreadPoolExecutor() as threads,
    ):
        putting = threads.submit(blobs.put_now, DATA)
        reading.wait()
        with server.answering("403 Forbidden", "AccessDenied"):
            reading.let_in()
            writing.wait()
        writing.let_in()
        assert putting.result() == digest
    assert len(s3_bucket.objects()) == 2


# What comes between the look of a removal and the removal itself, and after it.


async def test_what_is_put_while_it_is_removed_stays(blobs: BucketBlobs, s3_bucket: S3Bucket) -> None:
    digest = await blobs.put(DATA)
    s3_bucket.age(3)
    with s3_bucket.server.holding(*DELETING) as deleting, ThreadPoolExecutor() as threads:
        removing = threads.submit(blobs.remove, digest, DAY)
        deleting.wait()
        assert blobs.put_now(DATA) == digest
        deleting.let_in()
        assert not removing.result()
    assert await blobs.get(digest) == DATA


async def test_a_removal_takes_only_what_was_old_when_it_looked_however_late_it_comes(
    blobs: BucketBlobs, s3_bucket: S3Bucket
) -> None:
    digest = await blobs.put(DATA)
    s3_bucket.age(9)
    with s3_bucket.server.holding(*DELETING) as deleting, ThreadPoolExecutor() as threads:
        removing = threads.submit(blobs.remove, digest, DAY)
        deleting.wait()
        clock = Clock()
        for _ in range(5):
            assert BucketBlobs(s3_bucket.address, clock=clock).put_now(DATA) == digest
            clock.now += DAY
        deleting.let_in()
        assert not removing.result()
    assert await blobs.get(digest) == DATA


async def test_a_put_that_ends_long_after_its_day_is_done_again(s3_bucket: S3Bucket) -> None:
    """A name whose day is over for long may be in the hands of a removal."""
    clock = Clock()
    blobs = BucketBlobs(s3_bucket.address, clock=clock)
    today, days_later = clock.now.date(), clock.now.date() + 2 * DAY
    with s3_bucket.server.holding("PUT", f"/{today}") as writing, ThreadPoolExecutor() as threads:
        putting = threads.submit(blobs.put_now, DATA)
        writing.wait()
        clock.now += 2 * DAY
        writing.let_in()
        digest = putting.result()
    # And what it wrote under the old name is gone.
    assert s3_bucket.objects() == {f"{digest[:2]}/{digest}/{days_later}": DATA}


async def test_a_put_that_ends_just_after_its_day_counts(s3_bucket: S3Bucket) -> None:
    clock = Clock()
    blobs = BucketBlobs(s3_bucket.address, clock=clock)
    today = clock.now.date()
    with s3_bucket.server.holding("PUT", f"/{today}") as writing, ThreadPoolExecutor() as threads:
        putting = threads.submit(blobs.put_now, DATA)
        writing.wait()
        clock.now += timedelta(hours=12, minutes=59)
        writing.let_in()
        digest = putting.result()
    assert s3_bucket.objects() == {f"{digest[:2]}/{digest}/{today}": DATA}
    # And as long as somebody may still put under this name, it is not removed, however short the grace.
    clock.now += timedelta(hours=1)
    assert not blobs.remove(digest, timedelta(0))
    clock.now += timedelta(minutes=1)
    assert blobs.remove(digest, timedelta(0))


async def test_whoever_reads_what_is_put_anew_reads_the_new(blobs: BucketBlobs, s3_bucket: S3Bucket) -> None:
    """The put removes the older copy which the reader has found."""
    digest = await blobs.put(DATA)
    s3_bucket.age(3)
    with s3_bucket.server.holding("GET", rf"{digest}/") as reading:
        getting = asyncio.create_task(blobs.get(digest))
        await asyncio.to_thread(reading.wait)
        await blobs.put(DATA)
        reading.let_in()
        assert await getting == DATA


def test_a_process_that_was_forked_is_refused_and_does_not_hang(blobs: BucketBlobs, s3_bucket: S3Bucket) -> None:
    digest = blobs.put_now(DATA)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Python hears no signal while it waits for what never comes.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        said = ""
        for store in (blobs, BucketBlobs(s3_bucket.address)):
            try:
                asyncio.run(store.get(digest))
            except WeftError as problem:
                said += f"{problem}\n"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        lines = answer.read().splitlines()
    os.waitpid(child, 0)
    assert (
        lines
        == [f"blob {digest} cannot be listed in a process that was forked from one that uses s3://: start it by spawn"]
        * 2
    )
