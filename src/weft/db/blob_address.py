"""The addresses of what is kept outside of the database: a folder, or a bucket with a prefix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from weft.core.errors import InvalidSetting
from weft.db.address import HIDDEN

if TYPE_CHECKING:
    from weft.core.settings import Settings

_BLOBS, _DATA = "WEFT_BLOB_URL", "WEFT_DATA_URL"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
# What every client of S3 writes in the same way, into an address or into a signature.
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*")


class Bucket(NamedTuple):
    """A bucket of S3, and what the names of our objects in it begin with."""

    name: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.name}/{self.prefix}".rstrip("/")


def blob_address(settings: Settings) -> Path | Bucket:
    """Return where the blobs are, by default in a folder under WEFT_HOME.

    Example::

        folder = blob_address(Settings(blob_url="file:///srv/shop/blobs"))
    """
    if settings.blob_url is None:
        from weft.db.embedded_layout import home_dir

        return home_dir(settings) / "blobs"
    return _read(settings.blob_url, _BLOBS)


def data_address(settings: Settings) -> Path | Bucket:
    """Return where the files of datasets are, by default in a folder under WEFT_HOME."""
    if settings.data_url is None:
        from weft.db.embedded_layout import home_dir

        return home_dir(settings) / "data"
    return _read(settings.data_url, _DATA)


def shown_blob_url(url: str) -> str:
    """Return ``url`` as it may be printed: hidden when it is not sound, since a secret may stand in it."""
    if "://" not in url:
        return url
    try:
        return str(_read(url, _BLOBS))
    except InvalidSetting:
        return HIDDEN


def _read(url: str, setting: str) -> Path | Bucket:
    """Split an address; the errors never repeat it, because a secret may stand in it."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return Path(url).expanduser().absolute()
    match scheme[1].lower():
        case "file":
            return Path(unquote(urlsplit(url).path))
        case "s3":
            return _read_bucket(url[scheme.end() :].removeprefix("//"), setting)
        case _:
            raise InvalidSetting(setting, "is not supported: give a folder, or an address with file:// or s3://")


def _read_bucket(place: str, setting: str) -> Bucket:
    if "@" in place or "?" in place:
        raise InvalidSetting(
            setting, "has more in it than s3://bucket/prefix: credentials, region and endpoint are read from "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL",
        )  # fmt: skip
    name, _, prefix = place.partition("/")
    if not name:
        raise InvalidSetting(setting, "has no bucket: write it like s3://bucket/prefix")
    if _BUCKET.fullmatch(name) is None:
        raise InvalidSetting(setting, "has a bucket whose name S3 does not allow: write it like s3://bucket/prefix")
    prefix = prefix.removesuffix("/")
    if prefix and (_PREFIX.fullmatch(prefix) is None or {".", ".."} & set(prefix.split("/"))):
        raise InvalidSetting(setting, "has a prefix of other characters than letters, digits and !_.*'()- between /")
    return Bucket(name, prefix)
