"""Reads a Delta table with deltalake and pyarrow alone, into an Arrow file.

Imports nothing of Headwater: the demo runs it to show that log tables are plain Delta.
Usage: plain_reader.py TABLE_URI TARGET.arrow
"""

import sys

import pyarrow as pa
import pyarrow.ipc
from deltalake import DeltaTable


def main() -> None:
    """Copy the live rows of the table."""
    table_uri, target = sys.argv[1:]
    table = pa.table(DeltaTable(table_uri).to_pyarrow_table())
    with pa.OSFile(target, "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    main()
