"""The catalog in Delta: an append-only table with one writer, by a fence as of log tables.

Each commit moves the application transaction `hwc1/version` from the value that its writer has seen
to the next one, with retries off. A writer that was overtaken reads the table again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from headwater.entropy import Entropy
from headwater.errors import HeadwaterError
from headwater.security.store_options import opened
from headwater_tier.catalog.rows import CatalogRow, Key, Kind, newest
from headwater_tier.delta import COMMIT_KIND, TableAccessError, TableStateError, filesystem
from headwater_tier.table_names import TableLocation

FOLDER = "_headwater_catalog"
VERSION_TXN = "hwc1/version"
SCHEMA = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("controller_epoch", pa.int32(), nullable=False),
        pa.field("zxid", pa.int64(), nullable=False),
        pa.field("json", pa.string(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
FORMAT = "headwater.format"
FORMAT_VERSION = 1
PROPERTIES = {
    FORMAT: str(FORMAT_VERSION),
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
FILES_MAX = 500
"""More files are rewritten as one: a commit of every change adds one."""
KINDS = frozenset(kind.value for kind in Kind)
_ERRORS = (DeltaError, OSError, ValueError)


class CatalogOvertakenError(HeadwaterError):
    """Another writer committed to the catalog: read it again."""


def catalog_uri(base: str) -> str:
    """`s3://lake/headwater/_headwater_catalog`, beside the log tables."""
    return f"{base.rstrip('/')}/{FOLDER}"


class CatalogTable:
    """An open catalog. Not thread-safe."""

    def __init__(self, uri: str, storage_options: Mapping[str, str], *, at: int | None = None):
        """Open it at its newest version, or `at` one. Raises TableAccessError without a table."""
        self.uri = uri
        self._options = opened(storage_options)
        with self._access_errors("opening"):
            self._table = DeltaTable(uri, version=at, storage_options=self._options)
        self._check_format()

    def _check_format(self) -> None:
        with self._access_errors("opening"):
            text = self._table.metadata().configuration.get(FORMAT) or str(FORMAT_VERSION)
        if not text.isdecimal() or int(text) > FORMAT_VERSION:
            raise TableStateError(
                f"the catalog {self.uri} has format {text}, this Headwater reads up to"
                f" {FORMAT_VERSION}: run the newer Headwater that wrote it"
            )

    @classmethod
    def create(cls, uri: str, storage_options: Mapping[str, str]) -> CatalogTable:
        """Open it, or create it."""
        options = opened(storage_options)
        try:
            if not DeltaTable.is_deltatable(uri, options):
                DeltaTable.create(
                    uri,
                    SCHEMA,
                    mode="error",
                    name=FOLDER,
                    configuration=PROPERTIES,
                    storage_options=options,
                    commit_properties=CommitProperties(custom_metadata={COMMIT_KIND: "create"}),
                    raise_if_key_not_exists=False,
                )
        except _ERRORS as error:
            if not DeltaTable.is_deltatable(uri, options):  # else another writer created it
                raise TableAccessError(f"the catalog {uri} cannot be created: {error}") from error
        return cls(uri, storage_options)

    @property
    def version(self) -> int:
        """The open version of the Delta table."""
        return int(self._table.version())

    def rows(self) -> list[CatalogRow]:
        """All rows, oldest first, without those of kinds that a newer release has added."""
        return [_row(values) for values in self._stored() if values["kind"] in KINDS]

    def _stored(self) -> list[dict[str, Any]]:
        with self._access_errors("reading"):
            adds = pa.table(self._table.get_add_actions(flatten=True))
            paths = [unquote(path) for path in adds.column("path").to_pylist()]
            found = _read_files(self.uri, self._options, paths)
        rows: list[dict[str, Any]] = found.sort_by([("version", "ascending")]).to_pylist()
        return rows

    def catalog(self) -> dict[Key, CatalogRow]:
        """The newest row of each thing that is not deleted."""
        return newest(self.rows())

    def append(self, rows: Sequence[CatalogRow]) -> None:
        """Commit rows, each about another thing. Raises CatalogOvertakenError, after which the
        table is open at its newest version; TableAccessError."""
        following = self._next()
        self._commit(
            lambda properties: write_deltalake(
                self._table,
                _arrow(rows, following),
                mode="append",
                commit_properties=properties,
            ),
            "append",
            following,
        )

    def refresh(self) -> None:
        """Move to the newest version."""
        with self._access_errors("reading the log of"):
            self._table = DeltaTable(self.uri, storage_options=self._options)

    def fold(self, entropy: Entropy, now_ms: int) -> None:
        """Rewrite the table as one file with the newest row of each thing. Raises as `append`."""
        following = self._next()
        newest = {(row["kind"], row["name"]): row for row in self._stored()}
        kept = [{**row, "version": following} for row in newest.values() if not row["deleted"]]
        data = pa.Table.from_pylist(kept, schema=SCHEMA)
        with self._access_errors("folding"):
            adds = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
            path = f"folded-{entropy.uuid()}.parquet"
            size = _write_file(self.uri, self._options, path, data)
        stats = json.dumps({"numRecords": data.num_rows})
        actions: list[AddAction | RemoveAction] = [
            AddAction(path, size, {}, now_ms, False, stats),
            *(RemoveAction(row["path"], False, now_ms, row["size_bytes"], {}) for row in adds),
        ]
        self._commit(
            lambda properties: self._table.create_write_transaction(
                actions, "append", self._table.schema(), commit_properties=properties
            ),
            "fold",
            following,
        )
        with self._access_errors("vacuuming"):
            self._table.vacuum(dry_run=False)

    @property
    def files(self) -> int:
        """The number of its live files."""
        return len(self._table.file_uris())

    def _next(self) -> int:
        return (self._table.transaction_version(VERSION_TXN) or 0) + 1

    def _commit(self, write: Callable[[CommitProperties], None], kind: str, version: int) -> None:
        properties = CommitProperties(
            custom_metadata={COMMIT_KIND: f"catalog-{kind}"},
            max_commit_retries=0,
            app_transactions=[Transaction(VERSION_TXN, version)],
        )
        try:
            write(properties)
        except _ERRORS as error:
            self.refresh()
            if self._next() - 1 >= version:
                raise CatalogOvertakenError(f"{self.uri}: another writer committed") from error
            raise TableAccessError(f"writing {self.uri} failed: {error}") from error
        self.refresh()

    @contextmanager
    def _access_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError as error:
            raise TableAccessError(
                f"there is no catalog at {self.uri}: name the base folder of the tables, and see"
                " docs/restore.md"
            ) from error
        except _ERRORS as error:
            raise TableAccessError(f"{doing} {self.uri} failed: {error}") from error


def _read_files(uri: str, options: Mapping[str, str], paths: Sequence[str]) -> pa.Table:
    """All rows of these files, read by this thread alone. A thread of Arrow's that still held a
    file of an object store, which is a Python object, when a command ends would abort it."""
    folder = filesystem(TableLocation(uri, FOLDER, UUID(int=0), tuple(options.items())))
    tables = [SCHEMA.empty_table()]
    for path in paths:
        with folder.open_input_file(path) as file, pq.ParquetFile(file) as source:
            table = source.read(columns=SCHEMA.names, use_threads=False)
        tables.append(table.cast(SCHEMA))
    return pa.concat_tables(tables)


def _write_file(uri: str, options: Mapping[str, str], path: str, data: pa.Table) -> int:
    """Write a Parquet file into the table's folder; its size in bytes."""
    folder = filesystem(TableLocation(uri, FOLDER, UUID(int=0), tuple(options.items())))
    pq.write_table(data, path, filesystem=folder)
    return int(folder.get_file_info(path).size)


def _arrow(rows: Sequence[CatalogRow], version: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "version": version,
                "kind": row.kind.value,
                "name": row.name,
                "controller_epoch": row.controller_epoch,
                "zxid": row.zxid,
                "json": row.json,
                "deleted": row.deleted,
                "time": row.time_ms * 1000,
            }
            for row in rows
        ],
        schema=SCHEMA,
    )


def _row(values: Mapping[str, Any]) -> CatalogRow:
    return CatalogRow(
        kind=Kind(values["kind"]),
        name=values["name"],
        json=values["json"],
        deleted=values["deleted"],
        controller_epoch=values["controller_epoch"],
        zxid=values["zxid"],
        time_ms=int(values["time"].timestamp() * 1000),
    )
