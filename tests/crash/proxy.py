"""A proxy between a program and PostgreSQL that knows the protocol well enough to fail at an exact moment.

Faults are rules. A rule sees each statement whose text it asks for when the server has answered it, and before the
program hears of that: the program's ambiguous moment. It may let the answer pass, hold it, or cut the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum

from wire import Listener, loopback_url, message, open_stream, read_first_message, read_message

_IDLE = b"I"


class Fault(Enum):
    """What becomes of an answer."""

    PASS = "pass"
    CUT = "cut"  # the connection is reset
    HOLE = "hole"  # neither side hears of the other any more, and neither is told


@dataclass
class Exchange:
    """A statement that the server has executed, and whose answer is still here."""

    text: str
    params: list[bytes | None]
    rows: int = 0
    error: str | None = None
    is_committed: bool = False
    # The statements of the same transaction that came before, from its BEGIN on.
    before: list[str] = field(default_factory=list)

    def array_length(self, position: int) -> int:
        """Return the number of elements of a one-dimensional array among the params."""
        raw = self.params[position]
        assert raw is not None
        return 0 if struct.unpack_from("!i", raw)[0] == 0 else int(struct.unpack_from("!i", raw, 12)[0])

    def integers(self, position: int) -> list[int]:
        """Return the elements of a one-dimensional array of bigint among the params."""
        raw = self.params[position]
        assert raw is not None
        return [struct.unpack_from("!q", raw, 24 + 12 * n)[0] for n in range(self.array_length(position))]

    def integer(self, position: int) -> int:
        """Return an integer among the params."""
        raw = self.params[position]
        assert raw is not None
        return int.from_bytes(raw, "big", signed=True)


@dataclass
class Rule:
    """Applies to the first statements that contain ``text`` and for which ``when`` is true, ``times`` of them."""

    text: str
    fault: Fault
    when: Callable[[Exchange], bool] = lambda _: True
    times: int = 1
    fired: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[Exchange] = field(default_factory=list)
    gate: asyncio.Event | None = None


def nth(number: int) -> Callable[[Exchange], bool]:
    """True for one statement only, by its place among all that are answered."""
    counted = itertools.count(1)
    return lambda _: next(counted) == number


class Proxy:
    """Listens on the loopback address and leads to the server of ``url``."""

    def __init__(self, url: str) -> None:
        self._upstream = url
        self._links: set[Link] = set()
        self._listener = Listener(self._serve)
        self._lost: list[asyncio.StreamWriter] = []
        self._healed = asyncio.Event()
        self._healed.set()
        self.rules: list[Rule] = []
        self.latency = 0.0

    @property
    def url(self) -> str:
        """The address of the same database, through this proxy."""
        return loopback_url(self._upstream, self._listener.port)

    def rule(self, text: str, fault: Fault, when: Callable[[Exchange], bool] = lambda _: True, times: int = 1) -> Rule:
        """Add a rule."""
        rule = Rule(text, fault, when, times)
        self.rules.append(rule)
        return rule

    def hold(self, text: str, when: Callable[[Exchange], bool] = lambda _: True) -> Rule:
        """Add a rule that holds the answer back until its gate is opened, and then lets it pass."""
        rule = Rule(text, Fault.PASS, when, gate=asyncio.Event())
        self.rules.append(rule)
        return rule

    def partition(self) -> None:
        """Turn every connection into a black hole, for good, and new ones until `heal`."""
        self._healed.clear()
        for link in self._links:
            link.is_hole = True

    def heal(self) -> None:
        """Let new connections through again."""
        self._healed.set()

    def reset_all(self) -> None:
        """Reset every connection."""
        for link in list(self._links):
            link.reset()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    async def start(self) -> None:
        """Begin to listen."""
        await self._listener.start()

    async def stop(self) -> None:
        """End every connection."""
        self.reset_all()
        await self._listener.stop()
        for writer in self._lost:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._healed.is_set():
            # Whoever connects now hears nothing, not even later.
            await reader.read()
            return
        code, rest = await read_first_message(reader, writer)
        up_reader, up_writer = await open_stream(self._upstream)
        up_writer.write(message(b"", struct.pack("!i", code) + rest))
        link = Link(self, reader, writer, up_reader, up_writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            writer.transport.abort()
            if link.is_hole:
                # The server does not hear of the end either.
                self._lost.append(up_writer)
            else:
                up_writer.transport.abort()


class Link:
    """One connection through the proxy."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._up_reader, self._up_writer = up_reader, up_writer
        self._texts: dict[bytes, str] = {}
        # What was sent and not yet answered, up to each Sync: None for what no rule could ask for.
        self._sent: deque[Exchange | None] = deque()
        self._current: Exchange | None = None
        self._transaction: list[str] = []
        self.is_hole = False

    async def run(self) -> None:
        """Carry messages both ways until one side ends; a black hole ends with the program's side only."""
        back = asyncio.create_task(self._carry_back())
        try:
            await self._carry_there()
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    def reset(self) -> None:
        """End the program's side with a reset, and the server's with it."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        self._up_writer.transport.abort()

    async def _carry_there(self) -> None:
        while True:
            kind, body = await read_message(self._reader)
            if self.is_hole:
                continue
            self._note(kind, body)
            if self._proxy.latency and kind in (b"S", b"Q", b"H"):
                await asyncio.sleep(self._proxy.latency)
            self._up_writer.write(message(kind, body))
            await self._up_writer.drain()

    def _note(self, kind: bytes, body: bytes) -> None:
        if kind == b"P":
            name, _, rest = body.partition(b"\0")
            self._texts[name] = rest.partition(b"\0")[0].decode()
        elif kind == b"B":
            _, _, rest = body.partition(b"\0")
            name, _, rest = rest.partition(b"\0")
            self._current = Exchange(self._texts.get(name, ""), _params(rest))
        elif kind == b"S":
            self._sent.append(self._current)
            self._current = None
        elif kind == b"Q":
            self._sent.append(Exchange(body.rstrip(b"\0").decode(), []))

    async def _carry_back(self) -> None:
        held: list[bytes] = []
        try:
            while True:
                kind, body = await read_message(self._up_reader)
                whole = message(kind, body)
                exchange = self._sent[0] if self._sent else None
                if exchange is not None:
                    exchange.rows += kind == b"D"
                    exchange.error = body.decode(errors="replace") if kind == b"E" else exchange.error
                if kind == b"Z" and self._sent:
                    self._sent.popleft()
                    if exchange is not None:
                        exchange.is_committed = body == _IDLE and exchange.error is None
                        exchange.before = list(self._transaction)
                        self._transaction = [] if body == _IDLE else [*self._transaction, exchange.text]
                        await self._apply(exchange)
                if self.is_hole:
                    held.clear()
                    continue
                held.append(whole)
                if kind == b"Z" or not self._is_watched(exchange):
                    self._writer.write(b"".join(held))
                    held.clear()
                    await self._writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            if not self.is_hole:
                if held:
                    self._writer.write(b"".join(held))
                self._writer.close()

    def _is_watched(self, exchange: Exchange | None) -> bool:
        return exchange is not None and any(rule.text in exchange.text for rule in self._proxy.rules)

    async def _apply(self, exchange: Exchange) -> None:
        for rule in self._proxy.rules:
            if rule.text in exchange.text and len(rule.seen) < rule.times and rule.when(exchange):
                rule.seen.append(exchange)
                rule.fired.set()
                if rule.gate is not None:
                    await rule.gate.wait()
                if rule.fault is Fault.CUT:
                    self.reset()
                    raise ConnectionResetError
                elif rule.fault is Fault.HOLE:
                    self.is_hole = True


def _params(rest: bytes) -> list[bytes | None]:
    """Read the params of a Bind message, after the names of portal and statement."""
    (formats,) = struct.unpack_from("!h", rest)
    at = 2 + 2 * formats
    (count,) = struct.unpack_from("!h", rest, at)
    at += 2
    found: list[bytes | None] = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", rest, at)
        at += 4
        found.append(None if length < 0 else rest[at : at + length])
        at += max(length, 0)
    return found


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[Proxy]:
    """Lend a proxy to the server of ``url``."""
    proxy = Proxy(url)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
