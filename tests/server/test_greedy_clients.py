"""Clients that are slow, greedy or mistaken: each is told or given up, and the others are answered meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

import weft
from weft.core.settings import Settings
from weft.server.connections import LONGEST_HEAD
from weft.server.serving import Server

_LIMIT = 1024 * 1024
_TASKS = "/api/v1/tasks"


@pytest.fixture
def settings(url: str, home: Path) -> Settings:
    """A server that waits for nobody for long."""
    return Settings.load(
        environ={}, database_url=url, home=home, server_read_timeout=1.5, server_body_limit=_LIMIT,
        worker_heartbeat_interval=0.5, worker_timeout=8,
    )  # fmt: skip


class _Line:
    """A connection on which anything can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._token = token

    def send(self, sent: bytes) -> None:
        self._writer.write(sent)

    def begin(self, headers: str) -> None:
        self.send(f"POST {_TASKS} HTTP/1.1\r\nhost: x\r\nauthorization: {self._token}\r\n{headers}\r\n\r\n".encode())

    async def drain(self) -> None:
        await self._writer.drain()

    async def rest(self) -> bytes:
        """Return all that comes until the server closes."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read()
        return b""

    async def status(self) -> int:
        """Return the status of the answer."""
        return int((await self._reader.readline()).split()[1])

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def _line(server: Server, http: httpx.AsyncClient) -> AsyncIterator[_Line]:
    address = httpx.URL(server.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    found = _Line(reader, writer, http.headers["authorization"])
    try:
        yield found
    finally:
        found.close()


async def _send(server: Server, http: httpx.AsyncClient, headers: str, *bodies: bytes) -> int:
    async with _line(server, http) as line:
        line.begin(headers)
        for body in bodies:
            line.send(body)
        return await line.status()


async def _trickle(server: Server, http: httpx.AsyncClient) -> int:
    async with _line(server, http) as line:
        line.begin("content-type: application/json\r\ncontent-length: 100000")
        answer = asyncio.create_task(line.status())
        while not answer.done():
            line.send(b" ")
            await asyncio.wait([answer], timeout=0.05)
        return await answer


async def _unended(server: Server, http: httpx.AsyncClient, begun: bytes) -> bytes:
    async with _line(server, http) as line:
        line.send(begun)
        return await line.rest()


async def test_clients_that_keep_the_server_waiting_are_given_up(server: Server, http: httpx.AsyncClient) -> None:
    typed = "content-type: application/json\r\n"
    told, silent = await asyncio.gather(
        asyncio.gather(
            _send(server, http, f"{typed}content-length: 100", b'{"handler"'),
            _send(server, http, f"{typed}transfer-encoding: chunked", b'5\r\n{"han\r\n'),
            _trickle(server, http),
        ),
        asyncio.gather(
            _unended(server, http, b""),
            _unended(server, http, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-more: "),
            _unended(server, http, b"\r\n\r\n"),
        ),
    )
    assert told == [408, 408, 408]
    assert silent == [b"", b"", b""]
    assert (await http.get("/healthz")).status_code == 200


async def test_a_client_that_never_reads_its_answers_is_given_up(server: Server, http: httpx.AsyncClient) -> None:
    async def open_requests() -> int:
        lines = (await http.get("/metrics")).text.splitlines()
        return int(float(next(line for line in lines if line.startswith("weft_http_requests_open")).split()[1]))

    address = httpx.URL(server.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, (address.host, address.port))
        asked = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 100
        await asyncio.get_running_loop().sock_sendall(deaf, asked)
        async with asyncio.timeout(60):
            while await open_requests() < 2:
                pass
            while await open_requests() > 1:
                pass


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ("content-type: application/json", b'{"handler": "h", "params": {"n": NaN}}', 400),
        ("content-type: application/json", b'{"handler": "h", "handler": "g"}', 400),
        ("content-type: application/json", b'{"handler": "h", "params": ' + b"[" * 100_000, 400),
        ("content-type: application/json", b'{"handler": "h", "priority": ' + b"9" * 5000 + b"}", 400),
        ("content-type: application/json", b'{"handler": "\\ud800"}', 422),
        ("content-type: application/json", b'{"handler": "a\\u0000b"}', 422),
        ("content-type: application/json", b'{"handler": "h", "params": {"n": 1e999}}', 422),
        ("content-type: application/json", b'{"handler": "h", "priority": 1.5}', 422),
        ("content-type: application/json", b'{"handler": "\xff"}', 400),
        ("content-type: application/json", "{}".encode("utf-16"), 400),
        ("content-type: application/json", b"", 422),
        ("content-type: application/json; charset=utf-16", "{}".encode("utf-16"), 415),
        ("content-type: text/plain", b'{"handler": "h"}', 415),
        ("content-type: application/yaml", b"handler: h", 415),
        ("x-none: 1", b'{"handler": "h"}', 415),
        ("content-type: application/json\r\ncontent-encoding: gzip", gzip.compress(b" " * _LIMIT * 10), 415),
        ("content-type: application/json", b" " * (_LIMIT + 1), 413),
        ("content-type: application/json\r\nidempotency-key: \xfc", b'{"handler": "h"}', 422),
    ],
    ids=[
        "no-number", "twice", "deep", "huge-number", "surrogate", "nul", "infinite", "fraction", "not-utf8", "utf16",
        "empty", "charset", "plain", "yaml", "untyped", "packed", "large", "odd-key",
    ],
)  # fmt: skip
async def test_a_body_that_is_not_plain_json_is_refused_and_nothing_is_written(
    headers: str, body: bytes, status: int, server: Server, http: httpx.AsyncClient, client: weft.Client
) -> None:
    assert await _send(server, http, f"{headers}\r\ncontent-length: {len(body)}", body) == status
    assert (await client.list_tasks()).tasks == ()


async def test_what_has_no_end_is_ended(server: Server, http: httpx.AsyncClient, client: weft.Client) -> None:
    async with _line(server, http) as line:
        line.begin("content-type: application/json\r\ntransfer-encoding: chunked")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        answer = asyncio.create_task(line.status())
        while not answer.done():
            line.send(chunk)
            with contextlib.suppress(ConnectionError):
                await line.drain()
            await asyncio.sleep(0)
        assert await answer == 413
    async with _line(server, http) as line:
        line.send(b"GET /healthz HTTP/1.1\r\n")
        answer = asyncio.create_task(line.status())
        sent = 0
        while not answer.done():
            line.send(b"x-more: " + b"x" * 1000 + b"\r\n")
            sent += 1010
            await asyncio.sleep(0)
        assert await answer == 431
    many = "&".join(f"p{n}=1" for n in range(LONGEST_HEAD // 4))
    async with _line(server, http) as line:
        line.send(f"GET /api/v1/jobs?{many} HTTP/1.1\r\n".encode())
        assert await line.status() == 431
    assert (await client.list_tasks()).tasks == ()


async def test_many_keys_are_read_as_they_are_and_what_comes_after_a_body_is_another_request(
    server: Server, http: httpx.AsyncClient, client: weft.Client
) -> None:
    params = {f"k{n}": n for n in range(60_000)}
    made = await http.post(_TASKS, json={"handler": "h", "params": params})
    assert made.status_code == 201
    assert (await client.get_task(int(made.json()["id"]))).params == params
    sent = json.dumps({"handler": "h"}).encode()
    async with _line(server, http) as line:
        line.begin(f"content-type: application/json\r\ncontent-length: {len(sent)}")
        line.send(sent + b"more than was said")
        answered = await line.rest()
    assert b"HTTP/1.1 400" in answered
    assert b'"code":"malformed_request"' in answered
    async with _line(server, http) as line:
        line.send(
            b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 3 + b"GET /nowhere HTTP/1.1\r\nconnection: close\r\n\r\n"
        )
        answered = await line.rest()
    assert answered.count(b"HTTP/1.1 200") == 3


async def test_a_body_that_comes_after_its_answer_is_passed_over_and_not_taken_for_headers(
    server: Server, http: httpx.AsyncClient
) -> None:
    size = 4 * LONGEST_HEAD
    async with _line(server, http) as line:
        line.send(f"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode())
        assert await line.status() == 200
        line.send(b" " * size + b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        rest = await line.rest()
    assert rest.count(b"HTTP/1.1 401") == 1
    assert b"HTTP/1.1 431" not in rest


async def test_a_thousand_idle_connections_keep_nobody_from_being_answered(
    server: Server, http: httpx.AsyncClient
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    address = httpx.URL(server.url)
    idle = []
    try:
        for _ in range(1000):
            idle.append(await asyncio.open_connection(address.host, address.port))
        assert (await http.get("/api/v1/jobs")).status_code == 200
        # By and by they are given up.
        assert await asyncio.gather(*(reader.read() for reader, _ in idle)) == [b""] * 1000
    finally:
        for _, writer in idle:
            writer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def few_files() -> Iterator[int]:
    """What a process is started with here: the soft limit of most shells, and a hard one above it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 1024:
        pytest.skip("there is no more to be had")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_server_full_of_connections_refuses_more_and_answers_those_that_it_has(
    few_files: int, apart: tuple[str, int]
) -> None:
    url, pid = apart
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (few_files, few_files), "it takes what it may have"
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, few_files))
    address = httpx.URL(url)
    idle = []
    async with httpx.AsyncClient(base_url=url) as kept:
        assert (await kept.get("/healthz")).status_code == 200
        for _ in range(100 - 64):
            idle.append(await asyncio.open_connection(address.host, address.port))
        refused = await asyncio.wait_for(idle[-1][0].read(), 30)
        assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: ")
        assert b'"code":"server_full"' in refused
        assert (await kept.get("/readyz")).status_code == 200, "it still has what its database takes"
        idle[0][1].close()
        async with asyncio.timeout(30):
            while not await _is_answered(url):
                pass
    for _, writer in idle:
        writer.close()


async def _is_answered(url: str) -> bool:
    """Ask on a connection of its own."""
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        return (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    except ConnectionError:
        # Refused before it had asked.
        return False
    finally:
        writer.close()
