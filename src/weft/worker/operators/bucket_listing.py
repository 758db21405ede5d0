"""The objects under a prefix of a bucket in order, those too by whose names no store can be asked."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    from weft.db.blob_address import Bucket

_TIMEOUT = timedelta(minutes=1)
# What the objects are that lie beside an odd one, by what is known of them: each is asked for once, not in each look.
_TAGS = 100_000
# A store is asked for so many at once, and gives none of them if one has an odd name.
_PAGE = 1000
_tags: dict[tuple[str, str, datetime, int], str] = {}


class Listed(NamedTuple):
    """An object by its path under the prefix; it has no tag before it is `looked_at` if it lies beside an odd one."""

    path: str
    size: int
    mtime: datetime
    tag: str | None


def is_odd(path: str) -> bool:
    """Whether a path is none to a store: it has an empty part, one that leads elsewhere, or a control character."""
    return leads_elsewhere(path) or "" in path.split("/") or any(sign < " " or sign == "\x7f" for sign in path)


def leads_elsewhere(path: str) -> bool:
    """Whether whoever reads a path may come to another: it has a part of dots alone."""
    return not {".", ".."}.isdisjoint(path.split("/"))


class BucketListing:
    """The objects under a prefix: pages of a store, which gives none that has an object with an odd name in it.

    What is in such a page is found by Arrow, which lists objects by whatever name, all of the prefix at a time.
    """

    def __init__(self, address: Bucket) -> None:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        from weft.db.bucket_problems import allows_http

        self._address, self._refused = address, BaseError
        self._prefix = f"{address.prefix}/" if address.prefix else ""
        try:
            options = {"allow_http": allows_http(os.environ), "timeout": _TIMEOUT}
            self._store = S3Store(address.name, client_options=options)  # type: ignore[arg-type]
        except (BaseError, ValueError):
            # The problem may repeat a secret.
            raise InvalidInput(
                "source.path", f"{address} cannot be opened with the AWS variables of the worker's environment"
            ) from None

    def after(self, path: str) -> Iterator[Listed]:
        """Yield the objects after a path, as the bucket lists them."""
        names: list[Listed] | None = None
        while True:
            problem: Exception | None = None
            if not path or not is_odd(path):
                try:
                    for each in self._in_pages(path):
                        path = each.path
                        yield each
                    return
                except self._refused as refused:
                    problem = refused
            if names is None:
                names = self._all_names(problem)
            around = _around(names, path)
            if problem is not None and not any(is_odd(each.path) for each in around):
                raise self._problem("listed", problem) from None
            yield from around
            if not around or is_odd(around[-1].path):
                return
            path = around[-1].path

    def looked_at(self, each: Listed) -> Listed | None:
        """Return an object with its tag; None when it is gone."""
        if each.tag is not None or is_odd(each.path):
            return each._replace(tag=each.tag or _tag(each.mtime, each.size))
        import obstore

        known = str(self._address), each.path, each.mtime, each.size
        if known not in _tags:
            try:
                meta = obstore.head(self._store, f"{self._prefix}{each.path}")
            except FileNotFoundError:
                return None
            except self._refused as problem:
                raise self._problem("read", problem) from None
            if len(_tags) >= _TAGS:
                _tags.clear()
            _tags[known] = meta["e_tag"] or _tag(meta["last_modified"], meta["size"])
        return each._replace(tag=_tags[known])

    def is_there(self, path: str) -> bool:
        """Whether there is an object of that name; what stands for a folder is listed without the `/` at its end."""
        import obstore

        # Of those that a store cannot be asked for what stands for a folder was not listed.
        if is_odd(path):
            return True
        try:
            obstore.head(self._store, f"{self._prefix}{path}")
        except FileNotFoundError:
            return False
        except self._refused as problem:
            raise self._problem("read", problem) from None
        return True

    def _in_pages(self, path: str) -> Iterator[Listed]:
        import obstore

        offset = f"{self._prefix}{path}" if path else None
        for page in obstore.list(self._store, prefix=self._prefix or None, offset=offset, chunk_size=_PAGE):
            for each in page:
                # One that stands for the prefix itself is no part of it.
                if (name := str(each["path"])).startswith(self._prefix):
                    mtime, size = each["last_modified"], each["size"]
                    yield Listed(name.removeprefix(self._prefix), size, mtime, each["e_tag"] or _tag(mtime, size))

    def _all_names(self, problem: Exception | None) -> list[Listed]:
        """Return all objects in order, by whatever name; Arrow lists no less of them."""
        try:
            from pyarrow import fs

            from weft.data.bucket import open_bucket, words_of
        except ModuleNotFoundError:
            raise self._problem("listed", problem or ModuleNotFoundError()) from None
        place = f"{self._address.name}/{self._prefix}"
        chosen = fs.FileSelector(place.rstrip("/"), recursive=True, allow_not_found=True)
        try:
            found = open_bucket(self._address).get_file_info(chosen)
        except OSError as unlisted:
            raise InvalidInput("source.path", f"{self._address} cannot be listed: {words_of(unlisted)}") from None
        # There are two of a name where one ends in a slash.
        files = {each.path.removeprefix(place): each for each in found if each.type is fs.FileType.File}
        return [Listed(name, files[name].size, files[name].mtime.astimezone(UTC), None) for name in sorted(files)]

    def _problem(self, verb: str, problem: Exception) -> InvalidInput:
        from weft.db.bucket_problems import problem_of

        return InvalidInput("source.path", f"{self._address} cannot be {verb}: {problem_of(problem)}")


def _tag(mtime: datetime, size: int) -> str:
    return f"{mtime.timestamp()}:{size}"


def _around(names: list[Listed], path: str) -> list[Listed]:
    """Return a page of objects after a path, and on to one that a store can go on after, beyond the odd ones."""
    first = bisect_right(names, path, key=lambda each: each.path)
    end, has_odd = first, bool(path) and is_odd(path)
    while end < len(names):
        is_sound = not is_odd(names[end].path)
        has_odd = has_odd or not is_sound
        end += 1
        if is_sound and has_odd and end - first >= _PAGE:
            break
    return names[first:end]
