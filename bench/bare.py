"""The least that a server can do: ``python -m bench.bare URL PORT`` answers with one row, by the same programs."""

import asyncio
import signal
import sys

import asyncpg
import orjson
import uvicorn
import uvloop
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATH = "/one"
_ONE = "select id, name from weft.queue order by id limit 1"


async def main(url: str, port: int) -> None:
    """Answer over HTTP until SIGTERM."""
    done = asyncio.Event()
    pool = await asyncpg.create_pool(url, min_size=1, max_size=10)

    async def one(_: Request) -> Response:
        row = await pool.fetchrow(_ONE)
        assert row is not None
        return Response(orjson.dumps(dict(row)), media_type="application/json")

    app = FastAPI()
    app.router.routes.append(Route(PATH, one))
    serving = uvicorn.Server(
        uvicorn.Config(app, port=port, http="httptools", loop="none", log_level="warning", access_log=False)
    )
    running = asyncio.create_task(serving.serve())
    while not serving.started:  # noqa: ASYNC110  it does not say so
        await asyncio.sleep(0.01)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    print("ready", flush=True)
    await done.wait()
    serving.should_exit = True
    await running
    await pool.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
