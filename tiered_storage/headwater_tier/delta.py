"""The log table in Delta, and the adapter for deltalake. Only this module commits to log tables:
by deltalake, or on a local disk by a file of the log that it writes itself (`local_log`).

The fence is the set of application transactions in the Delta log: tiered end and log start per
partition, and the row count. It is read from a snapshot that passed all checks, and every commit is
made against that snapshot with retries off. deltalake records the version of an application
transaction but does not compare it, so the callers compare it in the checked snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow import fs

from headwater.errors import HeadwaterError
from headwater.security.store_options import opened
from headwater_tier import schema
from headwater_tier.commit_fence import FileFacts
from headwater_tier.live_files import LiveFile as LiveFile
from headwater_tier.live_files import LiveFiles
from headwater_tier.local_log import LocalLog, actions_of, is_plain
from headwater_tier.local_log import local_path as local_path
from headwater_tier.table_names import TableLocation, end_txn, rows_txn, start_txn

logger = logging.getLogger(__name__)

COMMIT_KIND = "headwater"
"""Key of commitInfo that marks a commit of Headwater; its value is the kind of change."""
CHECKPOINT_EVERY = int(schema.REQUIRED_PROPERTIES["delta.checkpointInterval"])
HISTORY_LOOKBACK = 200
"""Newest commits that are searched for a foreign one."""
STORAGE_ERRORS = (DeltaError, OSError, ValueError)
"""The errors that deltalake and its storage raise."""


class TableStateError(HeadwaterError):
    """Someone else changed the table: a foreign commit, feature or property, which is named."""


class TableAccessError(HeadwaterError):
    """The table cannot be read or written, for example as it is missing. Names the path."""


class CommitUnknownError(HeadwaterError):
    """A commit failed; whether the log has it nevertheless is known only after a refresh."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of the table that passed every check."""

    version: int
    partitions: int
    ends: Mapping[int, int]
    starts: Mapping[int, int]
    rows: int
    files: LiveFiles
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """The content of one commit. `data_change` is false if it only rewrites or removes rows."""

    kind: str
    now_ms: int
    adds: Sequence[FileFacts] = ()
    removes: Sequence[LiveFile] = ()
    ends: Mapping[int, int] | None = None
    starts: Mapping[int, int] | None = None
    data_change: bool = True


@contextmanager
def access_errors(location: TableLocation, doing: str) -> Iterator[None]:
    """Turns storage errors into TableAccessError, which names the table and the operation."""
    try:
        yield
    except TableNotFoundError as error:
        raise TableAccessError(
            f"there is no log table at {location.uri}: either nothing was tiered yet (run "
            "`headwater tier run`), or the table was removed"
        ) from error
    except STORAGE_ERRORS as error:
        raise TableAccessError(f"{doing} {location.uri} failed: {error}") from error


class LogTable:
    """An open log table at one version; `refresh` moves to the newest. Not thread-safe."""

    def __init__(
        self,
        location: TableLocation,
        *,
        checked: bool = True,
        at: int | datetime | None = None,
        made: Snapshot | None = None,
    ) -> None:
        """Open the newest version. Raises TableAccessError when there is no table.

        With `checked=False`, for verify and repair, foreign changes raise no TableStateError.
        `at` opens an earlier version: this one, or the newest that was committed by this time.
        `made`: the first version of a table that was made just now, by this process.
        """
        self.location = location
        self._checked = checked
        self._log = _local_log(location)
        self._opened_table: DeltaTable | None = None
        self.definition_problem: str | None = None
        """What is wrong with the table's properties, protocol or columns, and no commit undoes."""
        self._own: Change | None = None
        """The commit that was made against the snapshot, until `refresh` has moved to it."""
        if at is not None:
            self._travel(at)
        self._snapshot = made or self._read()

    @property
    def _table(self) -> DeltaTable:
        """deltalake's table, opened when it is needed. It may be at an earlier version than the
        snapshot, after commits without deltalake."""
        if self._opened_table is None:
            self._opened_table = self._opened()
        return self._opened_table

    def _opened(self) -> DeltaTable:
        with access_errors(self.location, "opening"):
            options = opened(self.location.storage_options)
            return DeltaTable(self.location.uri, storage_options=options)

    def _travel(self, at: int | datetime) -> None:
        """Move to an earlier version. Raises TableAccessError when the log has it no longer."""
        version = at if isinstance(at, int) else self._version_at(at)
        newest = self._table.version()
        if version > newest:
            raise TableAccessError(
                f"the log table {self.location.uri} has no version {version}: the newest is"
                f" {newest}"
            )
        try:
            self._table.load_as_version(version)
        except STORAGE_ERRORS as error:
            raise TableAccessError(
                f"version {version} of the log table {self.location.uri} cannot be opened; perhaps"
                f" its log was cleaned up: {error}"
            ) from error

    def _version_at(self, time: datetime) -> int:
        """The newest version that was committed by this time; 0, which is empty, before any."""
        with access_errors(self.location, "reading the history of"):
            committed_ms = {row["version"]: row["timestamp"] for row in self._table.history()}
        by_then = [v for v, ms in committed_ms.items() if ms <= time.timestamp() * 1000]
        if not by_then and 0 not in committed_ms:
            raise TableAccessError(
                f"the log of {self.location.uri} reaches back to version {min(committed_ms)} only,"
                f" which is newer than {time.isoformat()}"
            )
        return max(by_then, default=0)

    @classmethod
    def create(cls, location: TableLocation, partitions: int) -> LogTable:
        """Create the table with Headwater's protocol and properties, or open the existing one."""
        if not table_exists(location):
            properties = schema.table_properties(location.topic, location.topic_id, partitions)
            try:
                if _create_in_log(location, properties):
                    made = Snapshot(0, partitions, {}, {}, 0, LiveFiles.none())
                    return cls(location, made=made)
            except FileExistsError:  # another tier job made it just now
                return cls(location)
            try:
                DeltaTable.create(
                    location.uri,
                    schema.LOG_TABLE_SCHEMA,
                    mode="error",
                    name=location.topic,
                    configuration=properties,
                    storage_options=opened(location.storage_options),
                    commit_properties=CommitProperties(custom_metadata={COMMIT_KIND: "create"}),
                    raise_if_key_not_exists=False,
                )
            except STORAGE_ERRORS as error:
                if not table_exists(location):  # else another tier job created it just now
                    raise TableAccessError(
                        f"the log table {location.uri} cannot be created: {error}"
                    ) from error
        return cls(location)

    def refresh(self) -> Snapshot:
        """Move to the newest version and check it. Raises TableStateError, naming the commit."""
        own, self._own = self._own, None
        version = self._snapshot.version + (own is not None)
        if self._log is None or not self._log.is_newest(version):
            with access_errors(self.location, "reading the log of"):
                self._table.update_incremental()
            if self._table.version() != version:
                self._check_log_end(version)
                self._snapshot = self._read()
                return self._snapshot
        if own is not None:
            self._snapshot = self._after(own)
        return self._snapshot

    def _after(self, own: Change) -> Snapshot:
        """The version of this handle's own commit, and of no other: it changed what it says. Asking
        deltalake for it would cost milliseconds, and more for each partition."""
        former = self._snapshot
        ends = {**former.ends, **(own.ends or {})}
        starts = {**former.starts, **(own.starts or {})}
        count = max([former.partitions, *(p + 1 for p in ends)])
        files = former.files.after(own.adds, own.removes)
        size_bytes = former.size_bytes + sum(f.size_bytes for f in own.adds)
        size_bytes -= sum(f.size_bytes for f in own.removes)
        rows = _rows_after(former, own)
        return Snapshot(former.version + 1, count, ends, starts, rows, files, size_bytes)

    def reopen(self) -> Snapshot:
        """Forget what is known and open the newest version: after a commit of unknown outcome.
        Raises TableStateError if the log has lost versions."""
        self._opened_table, self._own = None, None
        self._check_log_end(self._snapshot.version)
        self._snapshot = self._read()
        return self._snapshot

    def _check_log_end(self, before: int) -> None:
        if self._table.version() < before:
            raise TableStateError(
                f"log table {self.location.uri} went back from version {before} to "
                f"{self._table.version()}: the end of its log is lost (files of _delta_log were "
                "deleted, or an older copy was brought back). What it lost is tiered again as far "
                "as brokers have it."
            )

    @property
    def snapshot(self) -> Snapshot:
        """The version that `refresh` moved to last."""
        return self._snapshot

    def commit(self, change: Change) -> None:
        """Commit against the checked snapshot. Raises CommitUnknownError.

        Fails if there was any other commit since, as retries are off. The handle stays at its
        version: call `refresh` afterwards.
        """
        if not self._commit_to_log(change):
            self._commit_by_deltalake(change)
        self._own = change

    def _versions(self, change: Change) -> dict[str, int]:
        """The application transactions of a commit."""
        topic_id = self.location.topic_id
        found = {rows_txn(topic_id): _rows_after(self._snapshot, change)}
        found |= {end_txn(topic_id, p): o for p, o in (change.ends or {}).items()}
        return found | {start_txn(topic_id, p): o for p, o in (change.starts or {}).items()}

    def _commit_to_log(self, change: Change) -> bool:
        """Commit by writing the log's next file; False if deltalake must do it."""
        at = self._snapshot.version
        paths = [f.path for f in change.adds] + [f.path for f in change.removes]
        removes_rows = change.data_change and bool(change.removes)
        if self._log is None or removes_rows or not all(map(is_plain, paths)):
            return False
        if self.definition_problem or not self._log.is_newest(at):
            return False  # a feature of others may demand what Headwater does not write
        actions = actions_of(
            change.adds,
            [(f.path, f.size_bytes) for f in change.removes],
            self._versions(change),
            now_ms=change.now_ms,
            data_change=change.data_change,
        )
        try:
            if not self._log.append(at + 1, {COMMIT_KIND: change.kind}, actions):
                return False
        except OSError as error:
            raise CommitUnknownError(
                f"committing version {at + 1} of {self.location.uri}: {error}"
            ) from error
        if (at + 2) % CHECKPOINT_EVERY == 0:  # as deltalake counts
            self._checkpoint(at + 1)
        return True

    def _checkpoint(self, version: int) -> None:
        """What deltalake does after such a commit, which is made: an error is only logged."""
        try:
            self._table.update_incremental()
            self._table.create_checkpoint()
            if self._table.metadata().configuration.get(schema.EXPIRED_LOG_CLEANUP) != "false":
                self._table.cleanup_metadata()
        except (TableAccessError, *STORAGE_ERRORS) as error:
            at = f"{self.location.uri} has no whole checkpoint of version {version}"
            logger.warning("%s: %s", at, error)

    def _commit_by_deltalake(self, change: Change) -> None:
        table = self._caught_up()
        if table.version() != self._snapshot.version:
            raise CommitUnknownError(
                f"{self.location.uri} is at version {table.version()}, not at "
                f"{self._snapshot.version}: another commit was first, or its log lost its end"
            )
        versions = [Transaction(name, at) for name, at in self._versions(change).items()]
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
        except STORAGE_ERRORS as error:
            raise CommitUnknownError(
                f"committing version {table.version() + 1} of {self.location.uri}: {error}"
            ) from error

    def _caught_up(self) -> DeltaTable:
        """deltalake's table, not before the snapshot's version."""
        if self._table.version() < self._snapshot.version:
            with access_errors(self.location, "reading the log of"):
                self._table.update_incremental()
        return self._table

    def vacuum(self, retention_hours: int, keep_versions: Sequence[int]) -> list[str]:
        """Delete unreferenced files, orphans too; keeps the files of `keep_versions`."""
        with access_errors(self.location, "vacuuming"):
            return self._caught_up().vacuum(
                retention_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                keep_versions=list(keep_versions) or None,
                commit_properties=CommitProperties(custom_metadata={COMMIT_KIND: "vacuum"}),
            )

    def history(self, limit: int) -> list[dict[str, Any]]:
        """The commitInfo of the newest commits, newest first."""
        with access_errors(self.location, "reading the history of"):
            return list(self._caught_up().history(limit))

    def version_of(self, app_id: str) -> int | None:
        """The version of an application transaction; None without one."""
        return self._caught_up().transaction_version(app_id)

    def _read(self) -> Snapshot:
        with access_errors(self.location, "reading the log of"):
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
        files = LiveFiles(adds)
        self.definition_problem = problem = (
            schema.properties_problem(properties, self.location.topic_id)
            or schema.protocol_problem(
                protocol.min_reader_version,
                protocol.min_writer_version,
                protocol.reader_features,
                protocol.writer_features,
            )
            or schema.columns_problem(schema_found.names)
        )
        partitions = _known_partitions(properties, files)
        ends = self._fences(end_txn, partitions)
        starts = self._fences(start_txn, partitions)
        rows = files.total("num_records")
        problem = problem or self._rows_problem(files, rows, ends)
        if problem and self._checked:
            remedy = (
                schema.UNDO
                if self.definition_problem
                else "it is repaired (`headwater tier repair`)"
            )
            raise TableStateError(
                f"log table {self.location.uri}, version {self._table.version()}: {problem}. "
                f"{self._foreign_commit()} Tiering of this topic stops until {remedy}."
            )
        count = max([partitions, *(p + 1 for p in ends)])
        size_bytes = files.total("size_bytes")
        return Snapshot(self._table.version(), count, ends, starts, rows, files, size_bytes)

    def _fences(self, name: Any, partitions: int) -> dict[int, int]:
        """The fence's value per partition; partitions added later are found by asking on."""
        found = {}
        partition = 0
        while True:
            version = self._table.transaction_version(name(self.location.topic_id, partition))
            if version is not None:
                found[partition] = version
            elif partition >= partitions:
                return found
            partition += 1

    def _rows_problem(self, files: LiveFiles, rows: int, ends: Mapping[int, int]) -> str | None:
        without = files.first_without_rows()
        if without is not None:
            return f"file {without} has no row count, so Headwater did not write it"
        counted = self._table.transaction_version(rows_txn(self.location.topic_id))
        if counted is None and len(files):
            return f"it holds {rows} rows, but its log has no row count of tiering"
        if counted is not None and counted != rows:
            return f"its files hold {rows} rows, tiering counted {counted}"
        for partition in sorted(files.partitions() - ends.keys()):
            path = next(f.path for f in files if partition in (f.min_partition, f.max_partition))
            return f"{path} holds rows of partition {partition}, which has no tiered end"
        return None

    def _foreign_commit(self) -> str:
        """A sentence about the newest commit that is not Headwater's."""
        with access_errors(self.location, "reading the history of"):
            found = list(self._table.history(HISTORY_LOOKBACK))
        for info in found:
            if COMMIT_KIND not in info:
                return (
                    f"Version {info.get('version')} was committed by someone else: "
                    f"{info.get('operation')} ({info.get('engineInfo', 'unknown engine')})."
                )
        return "Its history names no foreign commit any more."


def _rows_after(snapshot: Snapshot, change: Change) -> int:
    added = sum(f.rows for f in change.adds)
    return snapshot.rows + added - sum(f.rows or 0 for f in change.removes)


def _known_partitions(properties: Mapping[str, str], files: LiveFiles) -> int:
    created = properties.get(schema.PARTITIONS, "0")
    largest = max(files.partitions(), default=-1)
    return max(int(created) if created.isdigit() else 0, largest + 1)


def _local_log(location: TableLocation) -> LocalLog | None:
    folder = local_path(location.uri)
    return None if folder is None else LocalLog(folder)


def _create_in_log(location: TableLocation, properties: Mapping[str, str]) -> bool:
    """Make a table on a local disk by its log's first file; False if deltalake must do it. Raises
    FileExistsError when there is a log."""
    log = _local_log(location)
    if log is None:
        return False
    columns = DeltaSchema.from_arrow(schema.LOG_TABLE_SCHEMA).to_json()
    try:
        return log.create({COMMIT_KIND: "create"}, location.topic, columns, properties)
    except FileExistsError:
        raise
    except OSError as error:
        what = f"the log table {location.uri} cannot be created"
        raise TableAccessError(f"{what}: {error}") from error


def table_exists(location: TableLocation) -> bool:
    """True when there is a Delta table at the location."""
    log = _local_log(location)
    with access_errors(location, "looking for"):
        if log is not None and not log.exists:
            return False
        return DeltaTable.is_deltatable(location.uri, opened(location.storage_options))


def may_use_threads(location: TableLocation) -> bool:
    """Whether Arrow's threads may read the table's files. A file of an object store is a Python
    object: a thread that still held one when a process ends would abort it."""
    return local_path(location.uri) is not None


def filesystem(location: TableLocation) -> fs.FileSystem:
    """A pyarrow filesystem rooted in the table's folder, with deltalake's storage options."""
    path = local_path(location.uri)
    if path is not None:
        return fs.SubTreeFileSystem(path, fs.LocalFileSystem())
    with access_errors(location, "reaching"):
        handler = DeltaStorageHandler(location.uri, opened(location.storage_options))
    return fs.PyFileSystem(handler)
