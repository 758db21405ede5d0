"""Runs one call of a command on a client of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from weft.sdk.client import Client
    from weft.sdk.workflows import Workflows

T = TypeVar("T")


def open_client() -> Client:
    """Return the client of the settings in force: of the server that they name, else of the database."""
    from weft.cli.target import find_target

    settings = find_target().settings
    if settings.server is not None:
        from weft.remote.client import RemoteClient

        return RemoteClient(settings=settings)
    from weft.sdk.client import Client

    return Client(settings=settings)


def call(work: Callable[[Client], Awaitable[T]]) -> T:
    """Open a client with the settings in force, do ``work``, close it, return what came out."""
    import asyncio

    async def main() -> T:
        async with open_client() as client:
            return await work(client)

    return asyncio.run(main())


def call_workflows(work: Callable[[Workflows], Awaitable[Any]]) -> Any:
    """Do something with workflows; all that is wrong with a definition is told, before the error that ends it."""
    from weft.cli.output import print_complaints
    from weft.core.errors import InvalidDefinition, MergeConflict

    try:
        return call(lambda client: work(client.workflows))
    except InvalidDefinition as problem:
        print_complaints(problem.problems)
        raise
    except MergeConflict as problem:
        print_complaints(problem.conflicts)
        raise


def call_all(
    verb: str,
    done: str,
    work: Callable[[Client, bool, Callable[[int], None] | None], Awaitable[int]],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Do ``work`` on all that a command means, show how far it is, and tell how many there were.

    ``work`` is told whether only to count: where somebody looks on, it does that first.
    """
    from weft.cli.output import tell
    from weft.cli.progress import counted

    async def main(client: Client) -> int:
        if show is not None and not dry_run:
            show.total = await work(client, True, None)
        return await work(client, dry_run, show)

    with counted("found" if dry_run else done) as show:
        count = call(main)
    text = f"would {verb} {count}" if dry_run else f"{done} {count}"
    tell({done: 0 if dry_run else count, "found": count}, text, as_json=as_json)


def call_each(verb: str, ids: Sequence[str], work: Callable[[Client, Any], Awaitable[None]], *, as_json: bool) -> None:
    """Do ``work`` on each id, go on after one that is refused, and end with the code of the first refusal."""
    from weft.cli.output import complain, print_json
    from weft.core.errors import CallerError

    ids = list(dict.fromkeys(ids))
    refused: list[tuple[str, CallerError]] = []

    async def main(client: Client) -> None:
        for key in ids:
            try:
                await work(client, key)
            except CallerError as problem:
                refused.append((key, problem))

    call(main)
    failed = {key for key, _ in refused}
    landed = [key for key in ids if key not in failed]
    if as_json:
        reasons = [{"id": key, "code": problem.code, "message": str(problem)} for key, problem in refused]
        print_json({verb: len(landed), "found": len(ids), "ids": landed, "refused": reasons})
    else:
        for key in landed:
            print(f"{verb} {key}")
    for _, problem in refused:
        complain(str(problem))
    if refused:
        raise typer.Exit(refused[0][1].exit_code)
