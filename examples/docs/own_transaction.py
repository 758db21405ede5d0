"""Enqueue inside your own transaction, whichever driver it is of."""

import asyncio
import os

import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import weft

URL = os.environ["WEFT_DATABASE_URL"]  # the application's tables and Weft's share one database


@weft.task(name="order:confirm")
async def confirm(order: int) -> int:
    return order


# docs: begin asyncpg
async def with_asyncpg(client: weft.Client) -> weft.TaskHandle:
    conn = await asyncpg.connect(URL)
    try:
        async with conn.transaction():
            order = await conn.fetchval("insert into purchase (item) values ($1) returning id", "tea")
            return await client.enqueue(confirm, {"order": order}, connection=conn)
    finally:
        await conn.close()


# docs: end asyncpg


# docs: begin psycopg
async def with_psycopg(client: weft.Client) -> weft.TaskHandle:
    async with await psycopg.AsyncConnection.connect(URL) as conn:  # commits when the block ends well
        cursor = await conn.execute("insert into purchase (item) values (%s) returning id", ["tea"])
        [(order,)] = await cursor.fetchall()
        return await client.enqueue(confirm, {"order": order}, connection=conn)


# docs: end psycopg


# docs: begin sqlalchemy
async def with_sqlalchemy(client: weft.Client) -> weft.TaskHandle:
    engine = create_async_engine(URL.replace("postgresql://", "postgresql+psycopg://"))
    async with engine.begin() as conn:
        insert = sa.text("insert into purchase (item) values (:item) returning id")
        order = (await conn.execute(insert, {"item": "tea"})).scalar_one()
        handle = await client.enqueue(confirm, {"order": order}, connection=conn)
    await engine.dispose()
    return handle


# docs: end sqlalchemy


# docs: begin sync
async def with_a_sync_connection(client: weft.Client) -> weft.TaskHandle:
    with psycopg.connect(URL) as conn:  # the statement blocks the event loop for one round trip
        [(order,)] = conn.execute("insert into purchase (item) values ('tea') returning id").fetchall()
        return await client.enqueue(confirm, {"order": order}, connection=conn)


# docs: end sync


# docs: begin rollback
async def rolled_back(client: weft.Client) -> weft.TaskHandle:
    conn = await asyncpg.connect(URL)
    transaction = conn.transaction()
    await transaction.start()
    handle = await client.enqueue(confirm, {"order": 0}, connection=conn)
    await transaction.rollback()
    await conn.close()
    return handle


# docs: end rollback


async def main() -> None:
    conn = await asyncpg.connect(URL)
    await conn.execute("create table purchase (id bigint generated always as identity, item text)")
    await conn.close()
    async with weft.Client() as client, weft.Worker(client=client):
        for way in (with_asyncpg, with_psycopg, with_sqlalchemy, with_a_sync_connection):
            print(way.__name__, await client.wait((await way(client)).id, timeout=30))
        gone = await rolled_back(client)
        try:
            await client.get_task(gone.id)
        except weft.NotFound:
            print("rolled back: no task")


if __name__ == "__main__":
    asyncio.run(main())
