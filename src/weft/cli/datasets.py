"""``weft datasets``: looks at named tables of data, shows them to others, and goes back to what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.calls import call
from weft.cli.completion import complete_dataset, complete_role
from weft.cli.dataset_keeping import Name, delete, gc, hand_over, register, undelete
from weft.cli.lists import AfterName, Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.catalog.dataset_reading import Partition
    from weft.catalog.dataset_versions import DatasetVersion, DatasetWrite
    from weft.catalog.datasets import Dataset

app = new_app("Look at named tables of data: their versions, partitions, and what was written into them.")

Version = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The dataset; `orders@3` is its version 3.", autocompletion=complete_dataset
    ),
]
State = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="The dataset; `orders@3` is its version 3, `orders@3.12` what that was after a write.",
        autocompletion=complete_dataset,
    ),
]
Before = Annotated[int | None, typer.Option(metavar="NUMBER", help="Go on below this number: the next page.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]

_DATASETS = Listing(
    "datasets", ("DATASET~", "VERSION>", "ROWS>", "SIZE>", "WRITTEN", "BY~"), "no datasets", key="name", by="after"
)
_VERSIONS = Listing(
    "versions", ("VERSION>", "", "WRITES>", "ROWS>", "SIZE>", "FILES>", "WRITTEN", "CREATED"), "no versions",
    key="number", by="before",
)  # fmt: skip
_WRITES = Listing(
    "writes", ("WRITE>", "HOW", "ROWS>", "SIZE>", "REMOVED>", "PARTITIONS>", "WRITTEN", "BY~"), "nothing was written",
    key="number", by="before",
)  # fmt: skip
_PARTITIONS = Listing(
    "partitions", ("PARTITION~", "ROWS>", "SIZE>", "FILES>", "WRITE>", "WRITTEN"), "no partitions", key="key",
    by="after",
)  # fmt: skip


@app.command("list")
def list_datasets(after: AfterName = "", limit: Limit = 100, as_json: JsonFlag = False) -> None:
    """List datasets by name, with what their current versions have."""
    found = call(lambda client: client.datasets.list(after=after, limit=limit))
    _DATASETS.show(found, _row, limit, as_json=as_json)


def _row(each: Dataset) -> tuple[Any, ...]:
    from weft.cli.output import size_text, when

    by = "" if each.producer is None else str(each.producer)
    return each.name, each.version or "", each.rows, size_text(each.bytes), when(each.written_at), by


@app.command()
def show(dataset: Name, as_json: JsonFlag = False) -> None:
    """Show a dataset, with its columns."""
    from weft.cli.output import as_record, print_facts, print_json, print_table, size_text, when

    found = call(lambda client: client.datasets.show(dataset))
    if as_json:
        print_json(as_record(found))
        return
    told = {
        "dataset": found.name,
        "about": found.description,
        "written by": "nobody yet" if found.producer is None else str(found.producer),
        "version": "none yet" if found.version is None else f"{found.version}, write {found.write}",
        "kept in": "the database" if found.storage.get("kind") == "postgres" else "",
        "has": f"{found.rows} rows, {size_text(found.bytes)} in {found.files} files",
        "written": when(found.written_at),
        "told apart by": ", ".join(found.unique_key or ()),
        "seen by": ", ".join(("admins", *found.read_roles)),
        "created": f"{when(found.created_at)} by {found.actor}",
    }
    print_facts({name: text for name, text in told.items() if text})
    print_table(
        ("COLUMN~", "TYPE~", ""),
        [(each.name, each.type, "" if each.nullable else "not null") for each in found.columns],
        empty="no columns yet",
    )


@app.command()
def versions(dataset: Name, before: Before = None, limit: Limit = 100, as_json: JsonFlag = False) -> None:
    """List the versions of a dataset, the newest first; one is current."""
    found = call(lambda client: client.datasets.versions(dataset, before=before, limit=limit))
    _VERSIONS.show(found, _version_row, limit, as_json=as_json)


def _version_row(each: DatasetVersion) -> tuple[Any, ...]:
    from weft.cli.output import size_text, when

    note = "current" if each.is_current else ""
    told = each.number, note, each.write, each.rows, size_text(each.bytes), each.files
    return *told, when(each.written_at), when(each.created_at)


@app.command()
def writes(dataset: Version, before: Before = None, limit: Limit = 100, as_json: JsonFlag = False) -> None:
    """List what was written into a version, the newest first, and by which task."""
    found = call(lambda client: client.datasets.writes(dataset, before=before, limit=limit))
    _WRITES.show(found, _write_row, limit, as_json=as_json)


def _write_row(each: DatasetWrite) -> tuple[Any, ...]:
    from weft.cli.output import size_text, when

    by = each.actor if each.task_id is None else f"{each.node or each.handler}, task {each.task_id}"
    told = each.number, each.mode, each.rows, size_text(each.bytes), each.rows_removed or "", each.partitions
    return *told, when(each.written_at), by


@app.command()
def partitions(
    dataset: Version,
    after: Annotated[str | None, typer.Option(metavar="KEY", help="Go on after this key: the next page.")] = None,
    limit: Limit = 100,
    latest: Annotated[bool, typer.Option("--latest", help="Those that were written last.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the partitions of a dataset by key; `(all)` are rows that are in none."""
    found = call(lambda client: client.datasets.partitions(dataset, after=after, limit=limit, latest=latest))
    _PARTITIONS.show(found, _partition_row, None if latest else limit, as_json=as_json)


def _partition_row(each: Partition) -> tuple[Any, ...]:
    from weft.cli.output import size_text, when

    return each.key or "(all)", each.rows, size_text(each.bytes), each.files, each.write, when(each.written_at)


@app.command()
def sample(
    dataset: State,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many rows.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show a few rows of a dataset; `weft query` asks for more."""
    from weft.cli.output import print_json
    from weft.cli.query import print_rows
    from weft.core.json import exact

    rows = call(lambda client: client.datasets.sample(dataset, limit=limit))
    if as_json:
        print_json({"dataset": dataset, "rows": exact(rows)})
        return
    print_rows(rows)


@app.command()
def diff(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD", help="A state, such as `orders@1.3`; alone it is compared with the one before it.",
            autocompletion=complete_dataset,
        ),
    ],
    new: Annotated[
        str | None,
        typer.Argument(metavar="NEW", help="The state to compare it with.", autocompletion=complete_dataset),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Also the rows that differ.")] = False,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="With --rows: tells rows apart; may be repeated; else the unique key."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many partitions, and rows.")] = 100,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Show what differs between two states: columns, partitions, rows; alone what the last write has changed."""
    from weft.cli.dataset_diff import print_diff, print_row_diff
    from weft.cli.output import as_record, print_json
    from weft.core.errors import InvalidInput
    from weft.core.json import exact

    if key and not rows:
        raise InvalidInput("--key", "is for --rows: add that")
    found = call(lambda client: client.datasets.diff(old, new, limit=limit))
    changed = call(lambda client: client.datasets.diff_rows(old, new, key=key or None, limit=limit)) if rows else None
    if as_json:
        print_json(as_record(found) | ({} if changed is None else {"rows": exact(as_record(changed))}))
        return
    print_diff(found)
    if changed is not None:
        print_row_diff(changed)


@app.command()
def state(
    dataset: State,
    as_of: Annotated[str | None, typer.Option(metavar="MOMENT", help="What it was at this moment.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which state of a dataset a name means, or which it had at a moment."""
    from weft.cli.inputs import read_moment
    from weft.cli.output import as_record, tell

    moment = read_moment("--as-of", as_of)
    found = call(lambda client: client.datasets.state(dataset, as_of=moment))
    tell(as_record(found), f"{found.name}@{found.version}.{found.write}", as_json=as_json)


@app.command()
@says_why
def create(
    dataset: Name,
    description: Annotated[str | None, typer.Option(help="What it is about.")] = None,
    storage: Annotated[
        str, typer.Option(help="How its rows are kept: `parquet` in files, `postgres` in a table of the database.")
    ] = "parquet",
    as_json: JsonFlag = False,
) -> None:
    """Make a dataset before anything is written into it; the first write would make it, too, in files."""
    from weft.cli.output import tell

    created = call(lambda client: client.datasets.create(dataset, description=description, storage=storage))
    told = f"created {dataset}" if created else f"there is a dataset {dataset} already"
    tell({"dataset": dataset, "created": created}, told, as_json=as_json)


@app.command()
@says_why
def describe(
    dataset: Name,
    description: Annotated[str, typer.Argument(metavar="TEXT", help="What it is about.")],
    as_json: JsonFlag = False,
) -> None:
    """Say what a dataset is about."""
    from weft.cli.output import as_record, tell

    found = call(lambda client: client.datasets.describe(dataset, description))
    tell(as_record(found), f"described {dataset}", as_json=as_json)


@app.command()
@says_why
def grant(
    dataset: Name,
    roles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ROLE...", help="Roles of the org; none at all for admins alone.", autocompletion=complete_role
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which roles see a dataset, instead of those that do now; admins do in any case."""
    from weft.cli.output import as_record, tell

    found = call(lambda client: client.datasets.grant(dataset, roles or []))
    tell(as_record(found), f"{dataset} is seen by {', '.join(('admins', *found.read_roles))}", as_json=as_json)


@app.command()
@says_why
def rollback(dataset: State, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Let readers see an earlier state: `orders@2` is a version, `orders@2.7` what it was after a write.

    Nothing is lost by it: what was seen before can be gone back to in the same way.
    """
    from weft.cli.output import tell
    from weft.core.errors import InvalidInput

    name, at, _ = dataset.partition("@")
    if not at:
        raise InvalidInput("DATASET", f"say where to go back to: {name}@VERSION, or {name}@VERSION.WRITE")
    before = call(lambda client: client.datasets.show(name))
    was = f"{before.name}@{before.version}.{before.write}"
    if not yes:
        found = call(lambda client: client.datasets.state(dataset))
        wanted = f"{found.name}@{found.version}.{found.write}"
        told = f"would take {name} from {was} to {wanted}: add --yes"
        tell({"dataset": name, "from": was, "to": wanted, "rolled_back": False}, told, as_json=as_json)
        return
    found = call(lambda client: client.datasets.rollback(dataset))
    now = f"{found.name}@{found.version}.{found.write}"
    tell({"dataset": name, "from": was, "to": now, "rolled_back": True}, f"{name} is {now}, was {was}", as_json=as_json)


for command in (register, hand_over, delete, undelete, gc):
    app.command()(command)
