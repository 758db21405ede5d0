"""``weft cache``: looks at outputs that serve again, and clears them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.lists import AfterName, Limit, Listing
from weft.cli.reasons import says_why
from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    from weft.queue.cache import CachedOutputs

app = new_app("Look at outputs of tasks that serve again, and clear them.")

_COLUMNS = ("HANDLER~", "OUTPUTS>", "BYTES>", "BLOBS>", "OLDEST", "NEWEST", "USED")
_LISTING = Listing("handlers", _COLUMNS, "the cache is empty", key="handler", by="after")


@app.command("list")
def list_outputs(after: AfterName = "", limit: Limit = None, as_json: JsonFlag = False) -> None:
    """List how many outputs there are of each handler, their bytes, how many are blobs, and when one served last."""
    found = call(lambda client: client.cached_outputs(after=after, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


def _row(each: CachedOutputs) -> tuple[Any, ...]:
    from weft.cli.output import when

    moments = when(each.oldest_at), when(each.newest_at), when(each.used_at)
    return each.handler, each.outputs, each.bytes, each.blobs, *moments


@app.command()
@says_why
def clear(
    handler: Annotated[str | None, typer.Argument(metavar="HANDLER", help="The outputs of this handler.")] = None,
    every: Annotated[bool, typer.Option("--all", help="The outputs of all handlers.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Forget outputs, so that their tasks run the next time. Results of jobs and tasks stay as they are."""
    from weft.cli.output import tell

    if (handler is None) is not every:
        raise InvalidInput("handler", "say which handler, or --all")
    count = call(lambda client: client.clear_cache(handler))
    tell({"cleared": count}, f"cleared {count}", as_json=as_json)
