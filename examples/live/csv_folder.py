"""The operator of `csv_folder.yaml` that reads the files.

Shows: an operator of one's own, for files that arrive.
"""

import pyarrow as pa
from pyarrow import csv

import weft

TYPES = csv.ConvertOptions(column_types={"id": pa.int64(), "day": pa.string(), "price": pa.float64()})


@weft.operator("import_orders")
def import_orders(live: weft.LiveContext) -> int:
    """Add the orders of one file to those of their days; an order that is there already is not added again."""
    table = csv.read_csv(live.unit.said["path"], convert_options=TYPES)
    written = live.write(table, partition_by="day")
    return int(written.rows)
