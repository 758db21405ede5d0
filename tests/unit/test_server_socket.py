"""The socket of a server: what it accepts sends the end of an answer at once."""

from __future__ import annotations

import asyncio
import socket

from weft.server.sockets import take_address


async def test_what_is_accepted_holds_nothing_back() -> None:
    """Else each answer in two parts waits for the client to say that it has had the first: 40 ms on Linux."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = writer.get_extra_info("socket")
        accepted.set_result(known.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with take_address("127.0.0.1", 0) as listening:
        async with await asyncio.start_server(serve, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            assert await accepted
            writer.close()
            await writer.wait_closed()
