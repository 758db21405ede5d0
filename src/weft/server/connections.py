"""A connection of a client, which may keep the server waiting for its headers, and to read its answers, so long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# More than any client sends that means well; an address is part of it.
LONGEST_HEAD = 64 * 1024
_LAST_MOMENT = 0.5
# Of what a client does not read so much is held, and what was written last.
_UNREAD = 1 << 15
_REFUSED = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n\r\n%s"


class Connection(HttpToolsProtocol):
    """Uvicorn's connection, which by itself waits for ever for headers to end and for answers to be taken.

    What has begun and does not come to the end of its headers, or of which no answer is taken, is given up after
    ``patience`` seconds; headers that are longer than any that are meant well are given up at once.
    """

    patience = 30.0
    is_stopping: Callable[[], bool] = staticmethod(lambda: False)
    _head = 0
    _is_in_body = False
    _waiting: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first headers."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNREAD)
        self._wait()
        if self.is_stopping():
            # Let in when nobody looks any more who is there; whoever asks now is still answered.
            self.loop.call_later(_LAST_MOMENT, self.shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._wait_no_more()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and see whether headers come to an end."""
        self._head += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            # What comes now is its body, which others look at, or the next request, which is read when it is due.
            self._head = 0
            return
        if self._is_in_body:
            # It was answered before it was read; the rest is passed over, for a while.
            self._head = 0
        if self._head > LONGEST_HEAD:
            said = b"the address and the headers of a request may have %d bytes" % LONGEST_HEAD
            self._refuse(b"431 Request Header Fields Too Large", b"headers_too_large", b"HeadersTooLarge", said)
        elif self._waiting is None:
            self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes after the body is none, and nobody before the server has looked at it."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer."""
        self._head, self._is_in_body = 0, True
        self._wait_no_more()
        super().on_headers_complete()
        if self.is_stopping():
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Expect the headers of the next request."""
        self._head, self._is_in_body = 0, False
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Give the client up when it does not read for a while."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close what was idle; what the client has not read by now is not kept for it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.patience, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def send_400_response(self, msg: str) -> None:
        """Say that what came is not HTTP."""
        self._refuse(b"400 Bad Request", b"malformed_request", b"MalformedRequest", b"what was sent is not HTTP")

    def _refuse(self, status: bytes, code: bytes, title: bytes, said: bytes) -> None:
        told = b'{"type":"urn:weft:problem:%s","title":"%s","status":%s,"code":"%s","detail":"%s"}'
        body = told % (code, title, status[:3], code, said)
        self.transport.write(_REFUSED % (status, len(body), body))
        self.transport.close()
        # Whoever still sends, and does not read, is not waited for.
        self.loop.call_later(self.patience, self.transport.abort)


def connections(patience: float, is_stopping: Callable[[], bool]) -> type[Connection]:
    """Return the kind of connection that waits so many seconds, and takes one request more at most at the end."""
    return type("Connection", (Connection,), {"patience": patience, "is_stopping": staticmethod(is_stopping)})
