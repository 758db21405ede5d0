"""The objects of a bucket in which datasets are: listed, removed, and what is wrong with it in words to act on."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from weft.core.data_errors import DataUnavailable
from weft.core.errors import InvalidSetting
from weft.db.bucket_problems import allows_http, problem_of

if TYPE_CHECKING:
    from weft.db.blob_address import Bucket

# Whoever waits for a bucket holds one of Arrow's threads, of which those need one too who read files of the machine.
_THREADS = 128
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# As Arrow tells it: what S3 calls the problem, in capitals, or the status of the answer where there is none.
_TOLD = re.compile(r"AWS Error ([A-Z0-9_]+)(?: \(HTTP status (\d{3})\))?")
_STATUSES = {"INTERNAL_FAILURE": "500", "SERVICE_UNAVAILABLE": "503", "SLOW_DOWN": "503"}
_GONE = ("NO_SUCH_KEY", "RESOURCE_NOT_FOUND")
# What S3 calls a problem that Arrow does not know, and which object it is about.
_UNKNOWN = re.compile(r"Unable to parse ExceptionName: (\w{1,64})")
_OBJECT = re.compile(r"(?:key '|(?:input source|does not exist) '[^/']+/)([^']{1,1024})'")


def open_bucket(address: Bucket) -> fs.FileSystem:
    """Return the files of a bucket as Arrow reads and writes them, found by the same variables as that of blobs.

    It may block: Arrow opens none before each request to any bucket, by whomever, has ended that goes on just now.
    """
    allows_http(os.environ)
    said = sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    return _opened(address, tuple(said))


@functools.lru_cache(maxsize=64)
def _opened(address: Bucket, _variables: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    """Return the one for all who ask, as long as the variables by which it is found say the same."""
    if pa.io_thread_count() < _THREADS:
        pa.set_io_thread_count(_THREADS)
    try:
        return fs.S3FileSystem(
            endpoint_override=next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None),
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
            request_timeout=60,
            connect_timeout=10,
            # What is small goes up in one piece, when it is whole.
            allow_delayed_open=True,
        )
    except (OSError, ValueError):
        # The problem may repeat a secret.
        raise InvalidSetting(
            "WEFT_DATA_URL", f"{address} cannot be opened with the AWS variables of the environment"
        ) from None


@contextlib.contextmanager
def telling(place: str) -> Iterator[None]:
    """Tell what is wrong with files in our own words: those of Arrow may have credentials in them."""
    try:
        yield
    except OSError as problem:
        if place.startswith("s3://"):
            named = _OBJECT.search(str(problem))
            where = "" if named is None else f" at {named[1]}"
            raise DataUnavailable(place, f"are out of reach{where}: {words_of(problem)}") from None
        if isinstance(problem, FileNotFoundError):
            raise DataUnavailable(place, f"are missing: {problem.filename or problem}") from None
        raise DataUnavailable(place, f"are out of reach: {problem.strerror or problem}") from None


def words_of(problem: OSError) -> str:
    """Return what is wrong by an error of Arrow, and what to do about it."""
    text, is_missing = str(problem), isinstance(problem, FileNotFoundError)
    told, unknown = _TOLD.search(text), _UNKNOWN.search(text)
    kind, status = (told[1], told[2] or _STATUSES.get(told[1])) if told is not None else ("", None)
    if kind in _GONE or (is_missing and kind != "NO_SUCH_BUCKET"):
        return "an object is missing"
    if kind in ("", "NETWORK_CONNECTION"):
        return problem_of(OSError())
    code = unknown[1] if unknown is not None else "" if kind == "UNKNOWN" else kind.title().replace("_", "")
    return problem_of(OSError(f"<Code>{code}</Code>" + ("" if status is None else f" status code: {status}")))


class Objects:
    """What lies in a bucket under a prefix; in the process that is not forked from one that has used it."""

    def __init__(self, address: Bucket) -> None:
        try:
            from obstore.store import S3Store
        except ModuleNotFoundError:
            raise InvalidSetting(
                "WEFT_DATA_URL", 's3:// needs a further package: pip install "weft[data,s3]"'
            ) from None
        self._address = address
        self._store = S3Store(
            address.name, prefix=address.prefix or None, client_options={"allow_http": allows_http(os.environ)}
        )

    def beginning_with(self, location: str, prefix: str) -> list[str]:
        """Return the names under a location that begin so."""
        import obstore

        found: list[str] = []
        with self._asking("listed"):
            for page in obstore.list(self._store, location, offset=f"{location}{prefix}"):
                names = [str(each["path"]).removeprefix(location) for each in page]
                found += [name for name in names if name.startswith(prefix)]
                # They come in order.
                if not names[-1].startswith(prefix):
                    break
        return found

    def remove(self, location: str, names: Iterable[str]) -> None:
        """Remove objects; those that are gone already are no problem."""
        import obstore

        paths = [f"{location}{name}" for name in names]
        if paths:
            with self._asking("removed"):
                obstore.delete(self._store, paths)

    @contextlib.contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        known: tuple[type[Any], ...] = (BaseError, OSError, ValueError)
        try:
            yield
        except known as problem:
            raise DataUnavailable(str(self._address), f"cannot be {verb}: {problem_of(problem)}") from None
