"""An S3 server of the tests' own: moto's, behind a door at which requests can be held or turned away."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from weft.db.blob_address import Bucket

SECRET = "not-to-be-told-to-anybody"
REGION = "eu-central-1"
PATIENCE = 60.0
_DAY = r"\d{4}-\d\d-\d\d"

Start = Callable[..., Any]


class Held:
    """The first request of a kind, which waits at the door until the test lets it in."""

    def __init__(self, method: str, place: str) -> None:
        self._method = method
        self._place = re.compile(place)
        self._came = threading.Event()
        self._open = threading.Event()

    def meet(self, method: str, place: str) -> None:
        if method == self._method and self._place.search(place) and not self._came.is_set():
            self._came.set()
            assert self._open.wait(PATIENCE), "the test never let it in"

    @property
    def has_come(self) -> bool:
        """Whether it is at the door."""
        return self._came.is_set()

    def wait(self) -> None:
        """Return when it is at the door."""
        assert self._came.wait(PATIENCE), "no such request came"

    def let_in(self) -> None:
        self._open.set()


class _Handler(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Say nothing: what is written to stderr would be taken for the words of who is tested."""


class S3Server:
    """An S3 on a port of this machine; it checks no credentials, so what is denied is denied at its door."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._held: list[Held] = []
        self._instead: tuple[str, bytes] | None = None
        self._forgotten: re.Pattern[str] | None = None
        # The method and place of each request, and what it is signed with.
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a program must have in its environment to find it."""
        return {
            "AWS_ACCESS_KEY_ID": "AKIATESTTESTTEST", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
        }  # fmt: skip

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        method, place = environ["REQUEST_METHOD"], f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        self.requests.append((f"{method} {place}", environ.get("HTTP_AUTHORIZATION", "")))
        for held in list(self._held):
            held.meet(method, place)
        is_forgotten = self._forgotten is not None and self._forgotten.search(f"{method} {place}") is not None
        if self._instead is None and not is_forgotten:
            return self._moto(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, body = self._instead or ("200 OK", b"")
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    @contextlib.contextmanager
    def holding(self, method: str, place: str) -> Iterator[Held]:
        """Hold the first request whose path and query have ``place`` in them, until the test lets it in or ends."""
        held = Held(method, place)
        self._held.append(held)
        try:
            yield held
        finally:
            self._held.remove(held)
            held.let_in()

    @contextlib.contextmanager
    def answering(self, status: str, code: str) -> Iterator[None]:
        """Turn all requests away, as S3 does: with a code, and with much that nobody else should read."""
        said = f"<Code>{code}</Code><AWSAccessKeyId>AKIATESTTESTTEST</AWSAccessKeyId><Proof>{SECRET}</Proof>"
        self._instead = status, f"<Error>{said}</Error>".encode()
        try:
            yield
        finally:
            self._instead = None

    @contextlib.contextmanager
    def forgetting(self, request: str) -> Iterator[None]:
        """Say of each such request, by its method and place, that it was done, and do nothing."""
        self._forgotten = re.compile(request)
        try:
            yield
        finally:
            self._forgotten = None

    def make_bucket(self, address: Bucket | None = None) -> S3Bucket:
        return S3Bucket(self, address)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class S3Bucket:
    """A bucket of one test, looked into and meddled with behind the back of whoever uses it."""

    def __init__(self, server: S3Server, address: Bucket | None = None) -> None:
        self.server = server
        self.address = address or Bucket(f"test-{uuid.uuid4().hex[:12]}", "some/prefix")
        self.url = str(self.address)
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._backend.create_bucket(self.address.name, REGION)

    def _keys(self) -> dict[str, Any]:
        """What lies under the prefix, with the names that it has there."""
        prefix = f"{self.address.prefix}/"
        keys = self._backend.buckets[self.address.name].keys
        return {name.removeprefix(prefix): keys[name] for name in list(keys) if name.startswith(prefix)}

    def objects(self) -> dict[str, bytes]:
        """Return the blobs by their names, those of the users left out."""
        return {name: key.value for name, key in self._keys().items() if not name.startswith("used-by/")}

    def names(self) -> set[str]:
        return set(self._keys())

    def write(self, name: str, data: bytes) -> None:
        self._backend.put_object(self.address.name, f"{self.address.prefix}/{name}", data)

    def delete(self, name: str) -> None:
        self._backend.delete_object(self.address.name, f"{self.address.prefix}/{name}")

    def age(self, days: float) -> None:
        """Let the blobs be older, as if they had been put so many days before."""
        keys = self._backend.buckets[self.address.name].keys
        for name, key in sorted(self._keys().items()):
            place, _, day = name.rpartition("/")
            if place != "used-by":
                data, put_at = key.value, key.last_modified - timedelta(days=days)
                older = f"{place}/{put_at.date() if re.fullmatch(_DAY, day) else day}"
                self.delete(name)
                self.write(older, data)
                keys[f"{self.address.prefix}/{older}"].last_modified = put_at

    def remove(self) -> None:
        """Remove the bucket itself."""
        for name in self._keys():
            self.delete(name)
        self._backend.delete_bucket(self.address.name)
