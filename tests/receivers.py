"""A receiver of callbacks on this machine: a real HTTP server that takes, refuses, hangs or sends elsewhere."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def is_signed_by(self, key: bytes) -> bool:
        """Check the signature as a receiver does, by the published scheme and not by our own code."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return expected in self.headers.get("webhook-signature", "").split(" ")


class Receiver:
    """Answers each request by the next of ``answers``: a status, ``hang``, ``close``, ``noise``; then 204 for ever."""

    def __init__(self, *answers: int | str, scheme: str = "http") -> None:
        self._scheme = scheme
        self.answers = list(answers)
        self.received: list[Received] = []
        self.port = 0
        # Where it sends whoever it answers with a redirect: to itself, unless it is told otherwise.
        self.elsewhere = ""
        self._come = asyncio.Condition()
        self._leave = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hooks/weft?token=abc"

    async def until(self, count: int, within: float = 60) -> list[Received]:
        """Return what came when it is so many."""
        async with asyncio.timeout(within), self._come:
            await self._come.wait_for(lambda: len(self.received) >= count)
        return list(self.received)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request and answer it."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers["content-length"]))
            answer = self.answers.pop(0) if self.answers else 204
            async with self._come:
                self.received.append(Received(head[0].split(" ")[1], headers, body))
                self._come.notify_all()
            match answer:
                case "hang":
                    await self._leave.wait()
                case "close":
                    pass
                case "noise":
                    writer.write(b"SSH-2.0-OpenSSH\r\n")
                case "interim":
                    writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
                case status:
                    place = self.elsewhere or self.url
                    writer.write(f"HTTP/1.1 {status} X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        self._leave.set()


def self_signed(folder: Path) -> ssl.SSLContext:
    """Return what a server needs that vouches for itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(pem, *plain) + made.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@asynccontextmanager
async def receiving(*answers: int | str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Receive on a port of one's own."""
    receiver = Receiver(*answers, scheme="http" if tls is None else "https")
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        await receiver.close()
        server.close()
