"""What users and accidents do to a Delta table, each as a function of its URI."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction


def folder_of(uri: str) -> Path:
    """The folder of a table on the local disk."""
    return Path(uri.removeprefix("file://"))


def optimize(uri: str) -> None:
    DeltaTable(uri).optimize.compact()


def cluster_by_value(uri: str) -> None:
    DeltaTable(uri).optimize.z_order(["timestamp", "value"])


def optimize_and_vacuum(uri: str) -> None:
    optimize(uri)
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)


def restore(uri: str) -> None:
    DeltaTable(uri).restore(DeltaTable(uri).version() - 1)


def deletion_vectors(uri: str) -> None:
    DeltaTable(uri).alter.set_table_properties({"delta.enableDeletionVectors": "true"})


def append(uri: str) -> None:
    write_deltalake(uri, DeltaTable(uri).to_pyarrow_table().slice(0, 3), mode="append")


def add_without_file(uri: str, rows: int = 5) -> None:
    table = DeltaTable(uri)
    least = {"partition": 0, "offset": 0}
    stats = {"numRecords": rows, "minValues": least, "maxValues": least}
    action = AddAction("nobody-wrote-it.parquet", 100, {}, 0, True, json.dumps(stats))
    table.create_write_transaction([action], "append", table.schema())


def add_empty_without_file(uri: str) -> None:
    add_without_file(uri, 0)


def delete_a_file(uri: str) -> None:
    os.unlink(folder_of(sorted(DeltaTable(uri).file_uris())[0]))


def lose_the_log_end(uri: str) -> None:
    sorted((folder_of(uri) / "_delta_log").glob("*.json"))[-1].unlink()


def remove_the_table(uri: str) -> None:
    shutil.rmtree(folder_of(uri))
