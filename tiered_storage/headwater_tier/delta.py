"""The log table in Delta: the only user of deltalake, and the only committer (design: the fence).

Every read of the fence comes from a snapshot that passed all checks; every commit happens on the
snapshot that was checked, with retries off (deltalake records an application transaction's version
but never compares it, so the comparison is ours, on the snapshot that is committed against).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow import fs

from headwater.errors import HeadwaterError
from headwater_tier import schema
from headwater_tier.plan import FileFacts, TableLocation
from headwater_tier.table_names import end_txn, rows_txn, start_txn

COMMIT_KIND = "headwater"
"""Key of commitInfo that marks a commit as ours and says what it did."""
HISTORY_LOOKBACK = 200
"""Commits looked through to name a foreign one."""
_STORAGE_ERRORS = (DeltaError, OSError, ValueError)
"""What deltalake and its storage raise."""


class TableStateError(HeadwaterError):
    """The table is not what Headwater left: foreign commit, feature, property. Names it."""


class TableAccessError(HeadwaterError):
    """The table cannot be read or written: missing, not writable, refused. Names the path."""


class CommitUnknownError(HeadwaterError):
    """A commit failed or was refused: whether it happened is known only after a refresh."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One file of the snapshot; path relative to the table; None where no statistics were kept."""

    path: str
    size_bytes: int
    rows: int | None
    modified_ms: int
    min_partition: int | None
    max_partition: int | None
    min_offset: int | None
    max_offset: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of the table that passed every check."""

    version: int
    partitions: int
    ends: Mapping[int, int]
    starts: Mapping[int, int]
    rows: int
    files: tuple[LiveFile, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to the table. `data_change` is false when no reader may see new rows."""

    kind: str
    now_ms: int
    adds: Sequence[FileFacts] = ()
    removes: Sequence[LiveFile] = ()
    ends: Mapping[int, int] | None = None
    starts: Mapping[int, int] | None = None
    data_change: bool = True


@contextmanager
def _told(location: TableLocation, doing: str) -> Iterator[None]:
    """Storage errors as one that names the table and what was tried."""
    try:
        yield
    except TableNotFoundError as error:
        raise TableAccessError(
            f"there is no log table at {location.uri}: nothing was tiered yet "
            "(`headwater tier run` does it), or it was removed"
        ) from error
    except _STORAGE_ERRORS as error:
        raise TableAccessError(f"{doing} {location.uri} failed: {error}") from error


class LogTable:
    """A handle on one topic's log table. Not thread-safe; `refresh` to see newer commits."""

    def __init__(self, location: TableLocation, *, checked: bool = True) -> None:
        """Open what is there. Raises TableAccessError when there is no table.

        `checked=False` is for verifying and repairing: differences are then not errors here.
        """
        self.location = location
        self._checked = checked
        with _told(location, "opening"):
            self._table = DeltaTable(location.uri, storage_options=dict(location.storage_options))
        self._snapshot = self._read()

    @classmethod
    def create(cls, location: TableLocation, partitions: int) -> LogTable:
        """Create it with our protocol and properties, or open it if it is there already."""
        if not table_exists(location):
            properties = schema.table_properties(location.topic, location.topic_id, partitions)
            try:
                DeltaTable.create(
                    location.uri,
                    schema.LOG_TABLE_SCHEMA,
                    mode="error",
                    name=location.topic,
                    configuration=properties,
                    storage_options=dict(location.storage_options),
                    commit_properties=CommitProperties(custom_metadata={COMMIT_KIND: "create"}),
                    raise_if_key_not_exists=False,
                )
            except _STORAGE_ERRORS as error:
                if not table_exists(location):  # else another tierer was faster
                    raise TableAccessError(
                        f"the log table {location.uri} cannot be created: {error}"
                    ) from error
        return cls(location)

    def refresh(self) -> Snapshot:
        """The newest version, checked. Raises TableStateError, naming the foreign commit."""
        with _told(self.location, "reading the log of"):
            before = self._table.version()
            self._table.update_incremental()
            if self._table.version() == before:
                return self._snapshot
        self._snapshot = self._read()
        return self._snapshot

    @property
    def snapshot(self) -> Snapshot:
        """The version that the last refresh checked."""
        return self._snapshot

    def commit(self, change: Change) -> None:
        """One commit on the checked snapshot. Raises CommitUnknownError: refresh to learn more.

        A commit of anyone in between makes it fail, as retries are off. The handle does not
        advance by itself: refresh after it.
        """
        table, topic_id = self._table, self.location.topic_id
        rows = self._snapshot.rows + sum(f.rows for f in change.adds)
        rows -= sum(f.rows or 0 for f in change.removes)
        versions = [Transaction(rows_txn(topic_id), rows)]
        versions += [Transaction(end_txn(topic_id, p), o) for p, o in (change.ends or {}).items()]
        versions += [
            Transaction(start_txn(topic_id, p), o) for p, o in (change.starts or {}).items()
        ]
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                f.path, f.size_bytes, {}, f.written_ms, change.data_change, schema.stats_json(f)
            )
            for f in change.adds
        ]
        actions += [
            RemoveAction(f.path, change.data_change, change.now_ms, f.size_bytes, {})
            for f in change.removes
        ]
        properties = CommitProperties(
            custom_metadata={COMMIT_KIND: change.kind},
            max_commit_retries=0,
            app_transactions=versions,
        )
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), commit_properties=properties
            )
        except _STORAGE_ERRORS as error:
            raise CommitUnknownError(
                f"committing version {table.version() + 1} of {self.location.uri}: {error}"
            ) from error

    def vacuum(self, retention_hours: int, keep_versions: Sequence[int]) -> list[str]:
        """Delete files no longer needed, orphans too; never those of the versions to keep."""
        with _told(self.location, "vacuuming"):
            return self._table.vacuum(
                retention_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                keep_versions=list(keep_versions) or None,
                commit_properties=CommitProperties(custom_metadata={COMMIT_KIND: "vacuum"}),
            )

    def history(self, limit: int) -> list[dict[str, Any]]:
        """The newest commits' info, newest first: version, operation, ours or not."""
        with _told(self.location, "reading the history of"):
            return list(self._table.history(limit))

    def version_of(self, app_id: str) -> int | None:
        """The version of an application transaction."""
        return self._table.transaction_version(app_id)

    def _read(self) -> Snapshot:
        with _told(self.location, "reading the log of"):
            properties = {k: v for k, v in self._table.metadata().configuration.items() if v}
            protocol = self._table.protocol()
            adds = pa.table(self._table.get_add_actions(flatten=True))
            schema_found = pa.schema(self._table.schema().to_arrow())
        newer = schema.newer_format(properties)
        if newer:
            raise TableStateError(
                f"log table {self.location.uri} has format {newer}, this Headwater reads up to "
                f"{schema.FORMAT_VERSION}: run the newer Headwater that wrote it"
            )
        files = tuple(_live_files(adds))
        problem = (
            schema.properties_problem(properties, self.location.topic_id)
            or schema.protocol_problem(
                protocol.min_reader_version,
                protocol.min_writer_version,
                protocol.reader_features,
                protocol.writer_features,
            )
            or _schema_problem(schema_found)
        )
        partitions = _known_partitions(properties, files)
        ends = self._fences(end_txn, partitions)
        starts = self._fences(start_txn, partitions)
        rows = sum(f.rows or 0 for f in files)
        problem = problem or self._rows_problem(files, rows, ends)
        if problem and self._checked:
            raise TableStateError(
                f"log table {self.location.uri}, version {self._table.version()}: {problem}. "
                f"{self._foreign_commit()} Tiering of this topic stops until it is repaired "
                "(`headwater tier repair`)."
            )
        count = max([partitions, *(p + 1 for p in ends)])
        return Snapshot(self._table.version(), count, ends, starts, rows, files)

    def _fences(self, name: Any, partitions: int) -> dict[int, int]:
        """Per partition; those added since creation are found by asking on while there are any."""
        found = {}
        partition = 0
        while True:
            version = self.version_of(name(self.location.topic_id, partition))
            if version is not None:
                found[partition] = version
            elif partition >= partitions:
                return found
            partition += 1

    def _rows_problem(
        self, files: Sequence[LiveFile], rows: int, ends: Mapping[int, int]
    ) -> str | None:
        without = [f.path for f in files if f.rows is None]
        if without:
            return f"file {without[0]} has no row count, so it is not ours"
        counted = self.version_of(rows_txn(self.location.topic_id))
        if counted is None and files:
            return f"it holds {rows} rows but no fence was ever written"
        if counted is not None and counted != rows:
            return f"its files hold {rows} rows, tiering counted {counted}"
        for live in files:
            for partition in (live.min_partition, live.max_partition):
                if partition is not None and partition not in ends:
                    return f"{live.path} holds rows of partition {partition}, which has no end"
        return None

    def _foreign_commit(self) -> str:
        """Names the newest commit that is not ours."""
        for info in self.history(HISTORY_LOOKBACK):
            if COMMIT_KIND not in info:
                return (
                    f"Version {info.get('version')} was committed by someone else: "
                    f"{info.get('operation')} ({info.get('engineInfo', 'unknown engine')})."
                )
        return "No foreign commit is left in its history."


def _known_partitions(properties: Mapping[str, str], files: Sequence[LiveFile]) -> int:
    created = properties.get(schema.PARTITIONS, "0")
    largest = max((f.max_partition or 0 for f in files), default=-1)
    return max(int(created) if created.isdigit() else 0, largest + 1)


def _schema_problem(found: pa.Schema) -> str | None:
    names = tuple(found.names)
    if names != schema.LOG_TABLE_COLUMNS:
        return f"its columns are {list(names)}, must be {list(schema.LOG_TABLE_COLUMNS)}"
    return None


def _live_files(adds: pa.Table) -> Iterator[LiveFile]:
    for row in adds.to_pylist():
        yield LiveFile(
            path=unquote(row["path"]),
            size_bytes=row["size_bytes"],
            rows=row.get("num_records"),
            modified_ms=_milliseconds(row["modification_time"]),
            min_partition=row.get("min.partition"),
            max_partition=row.get("max.partition"),
            min_offset=row.get("min.offset"),
            max_offset=row.get("max.offset"),
        )


def _milliseconds(moment: Any) -> int:
    return moment if isinstance(moment, int) else int(moment.timestamp() * 1000)


def table_exists(location: TableLocation) -> bool:
    """True when a log table is there."""
    with _told(location, "looking for"):
        return DeltaTable.is_deltatable(location.uri, dict(location.storage_options))


def local_path(uri: str) -> str | None:
    """The folder of a table on a local path, None for an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return os.path.abspath(uri) if "://" not in uri else None


def filesystem(location: TableLocation) -> fs.FileSystem:
    """The table's folder as a pyarrow filesystem, its root; same storage options as deltalake."""
    path = local_path(location.uri)
    if path is not None:
        return fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    with _told(location, "reaching"):
        handler = DeltaStorageHandler(location.uri, dict(location.storage_options))
    return fs.PyFileSystem(handler)
