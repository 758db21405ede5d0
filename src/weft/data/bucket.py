"""The objects of a bucket in which datasets are: listed, removed, and what is wrong with it in words to act on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from weft.core.data_errors import DataUnavailable
from weft.core.errors import InvalidSetting
from weft.db.bucket_problems import allows_http, problem_of

if TYPE_CHECKING:
    from weft.db.blob_address import Bucket

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# As Arrow tells it: what S3 calls the problem, in capitals, or the status of the answer where there is none.
_TOLD = re.compile(r"AWS Error ([A-Z0-9_]+)(?: \(HTTP status (\d{3})\))?")


def open_bucket(address: Bucket) -> fs.FileSystem:
    """Return the files of a bucket as Arrow reads and writes them, found by the same variables as that of blobs."""
    allows_http(os.environ)
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
    except FileNotFoundError as problem:
        if not place.startswith("s3://"):
            raise DataUnavailable(place, f"are missing: {problem.filename or problem}") from None
        raise DataUnavailable(place, f"are out of reach: {_words(problem) or 'an object is missing'}") from None
    except OSError as problem:
        if place.startswith("s3://"):
            raise DataUnavailable(place, f"are out of reach: {_words(problem)}") from None
        raise DataUnavailable(place, f"are out of reach: {problem.strerror or problem}") from None


def _words(problem: OSError) -> str:
    told = _TOLD.search(str(problem))
    if told is None:
        return "" if isinstance(problem, FileNotFoundError) else problem_of(problem)
    code = told[1].title().replace("_", "")
    if isinstance(problem, FileNotFoundError) and code != "NoSuchBucket":
        return ""
    return problem_of(OSError(f"<Code>{code}</Code> status code: {told[2]}" if told[2] else f"<Code>{code}</Code>"))


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
