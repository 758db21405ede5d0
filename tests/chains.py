"""An ordered feed that grows, goes back and fails as it is told: a chain of blocks, served by HTTP and JSON-RPC."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

Block = dict[str, Any]


class Chain:
    """Blocks, each with the hash of the one before; `serve` lets others read them."""

    def __init__(self, first: int = 0, seed: int = 1) -> None:
        self.first = first
        self.blocks: list[Block] = []
        self.requests: list[str] = []
        # How the next requests are answered: a status, or what is called instead; then as it should be.
        self.faults: list[int | str | Callable[[list[Block]], list[Block]]] = []
        self.retry_after: str | None = None
        self.port = 0
        self._made = 0
        self._random = random.Random(seed)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def grow(self, count: int) -> None:
        for _ in range(count):
            self._made += 1
            number = self.first + len(self.blocks)
            parent = self.blocks[-1]["hash"] if self.blocks else "0x0"
            hash = "0x" + hashlib.sha256(f"{parent}:{self._made}".encode()).hexdigest()[:16]
            price = self._random.randrange(1000)
            self.blocks.append({"number": number, "hash": hash, "parentHash": parent, "price": price})

    def reorganize(self, depth: int, count: int) -> None:
        """Let others take the place of the last blocks."""
        del self.blocks[-depth:]
        self.grow(count)

    def rows(self) -> list[dict[str, Any]]:
        """What a follower must have of it."""
        return [
            {"number": b["number"], "hash": b["hash"], "parent_hash": b["parentHash"], "price": b["price"]}
            for b in self.blocks
        ]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Chain]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split(" ")
                headers: dict[str, str] = {}
                while (head := (await reader.readline()).decode().strip()) != "":
                    name, _, value = head.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(target)
                if not await self._respond(writer, method, target, body):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    async def _respond(self, writer: asyncio.StreamWriter, method: str, target: str, body: bytes) -> bool:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "close":
            return False
        if fault == "hang":
            await asyncio.sleep(3600)
        shown = fault(list(self.blocks)) if callable(fault) else self.blocks
        answer = self._rpc(json.loads(body), shown) if method == "POST" else self._list(target, shown)
        text = json.dumps(answer).encode()
        status = fault if isinstance(fault, int) else 200
        text = b'{"items": [' if fault == "half" else text
        more = f"retry-after: {self.retry_after}\r\n" if self.retry_after and status != 200 else ""
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\n{more}\r\n".encode() + text)
        await writer.drain()
        return True

    def _list(self, target: str, blocks: list[Block]) -> dict[str, Any]:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        first, limit = int(asked["from"]), int(asked["limit"])
        found = [block for block in blocks if block["number"] >= first][:limit]
        return {"items": found, "head": blocks[-1]["number"] if blocks else None}

    def _rpc(self, calls: Any, blocks: list[Block]) -> Any:
        if isinstance(calls, list):
            return [self._rpc(call, blocks) for call in calls]
        result: Any = hex(blocks[-1]["number"] if blocks else 0)
        if calls["method"] == "eth_getBlockByNumber":
            number = int(calls["params"][0], 16)
            result = next((block | {"number": hex(number)} for block in blocks if block["number"] == number), None)
        return {"jsonrpc": "2.0", "id": calls["id"], "result": result}
