"""Files that others have written, registered as a version of a dataset: looked at first, then listed all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.catalog import dataset_registering
from weft.catalog.dataset_registering import Registration
from weft.catalog.datasets import PartitionBy, check_dataset
from weft.core.checks import check_number
from weft.core.errors import InvalidInput
from weft.data.extra import needs
from weft.data.own_thread import in_own_thread

if TYPE_CHECKING:
    from weft.catalog.dataset_reading import DatasetState
    from weft.sdk.client import Client

_MOST = 2**53


async def registered(
    client: Client, name: str, address: str, glob: str, partition_by: str, range: tuple[int | None, int | None], *,
    replace: bool, breaking: bool,
) -> DatasetState:  # fmt: skip
    """Return the state of a version with the files that are at an address."""
    needs("pyarrow")
    from weft.data import columns, outside

    check_dataset(name)
    start, end = (None if each is None else check_number(each, "range", -_MOST, _MOST) for each in range)
    if (start is None) != (end is None) or (start is not None and end is not None and start > end):
        raise InvalidInput("range", "has a beginning and an end, which comes after it")
    org_id, actor, allowed = await client.org_id(), client.actor, client.settings.data_outside
    place = await in_own_thread(outside.check_address, address, allowed)
    wanted = Registration(place, glob, partition_by, start, end)
    if not replace:
        known = await client.database.read(lambda conn: dataset_registering.find(conn, org_id, name, wanted))
        if known is not None:
            return known
    # Files are looked at before anything is locked: there may be many.
    found = await in_own_thread(outside.look, place, glob, hive=partition_by == PartitionBy.HIVE, allowed=allowed)
    files, kept = [file._asdict() for file in found.files], found.record()

    def require_fitting(before: str) -> None:
        known = columns.recorded(before)
        if known is not None and not breaking:
            outside.require_fitting(known, found.schema)

    return await client.database.run(
        lambda conn: dataset_registering.register(
            conn, org_id, name, wanted, files, kept, require_fitting, actor, replace=replace
        )
    )
