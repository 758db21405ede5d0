"""A job whose end is told to a receiver, which checks that it comes from Weft."""

import asyncio
import base64
import hashlib
import hmac
import time

import weft

KEY = b"32 bytes that nobody can guess.."
FLOW = {
    "workflow_id": "nightly",
    "inputs": {"day": {"type": "string", "required": True}},
    "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end", "output": "{{ inputs.day }}"}},
}


# docs: begin verify
def is_from_weft(headers: dict[str, str], body: bytes) -> bool:
    told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    made = "v1," + base64.b64encode(hmac.new(KEY, told, hashlib.sha256).digest()).decode()
    is_recent = abs(time.time() - int(headers["webhook-timestamp"])) < 300
    return is_recent and any(hmac.compare_digest(made, each) for each in headers["webhook-signature"].split(" "))


# docs: end verify


async def main() -> None:
    told = asyncio.Event()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        print(is_from_weft(headers, body), body.decode().partition('"status"')[2][:13])
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()
        told.set()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    secret = f"whsec_{base64.b64encode(KEY).decode()}"
    async with weft.Client(callback_secret=secret, callback_allowed="127.0.0.1") as client:
        url = f"http://127.0.0.1:{port}/hooks/weft"
        # docs: begin submit
        job = await client.jobs.submit(FLOW, {"day": "2026-11-14"}, callback_url=url)
        # docs: end submit
        async with weft.Orchestrator(client=client):
            await client.jobs.wait(job.id, timeout=30)
            await told.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
