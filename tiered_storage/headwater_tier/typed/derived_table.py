"""A derived table in Delta, and the adapter for deltalake. Only this module commits to one.

The fence is as the log table's: application transactions, compared in the snapshot that the commit
is made against, with retries off. Unlike a log table, users may rewrite and erase its rows; commits
that add rows or move the table back are refused, and named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow.fs import FileSelector

from headwater.security.store_options import opened
from headwater_tier.delta import (
    COMMIT_KIND,
    CommitUnknownError,
    TableAccessError,
    TableStateError,
    filesystem,
    table_exists,
)
from headwater_tier.typed.column_growth import is_variant
from headwater_tier.typed.latest_row import LSN
from headwater_tier.typed.names import Derived, Kind

USERS_OPERATIONS = frozenset(
    {
        "ADD COLUMN",
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "CHANGE COLUMN",
        "CLUSTER BY",
        "COMPUTE STATS",
        "DELETE",
        "DROP CONSTRAINT",
        "FSCK",
        "OPTIMIZE",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE",
        "UPDATE COLUMN METADATA",
        "UPDATE FIELD METADATA",
        "UPDATE TABLE METADATA",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations of others that lose and double nothing unasked."""
CHANGING_OPERATIONS = frozenset({"MERGE", "UPDATE"})
"""They may change offsets, by which a table of latest rows knows what is newer."""
RETENTION_PROPERTY = "delta.setTransactionRetentionDuration"
T = TypeVar("T")
_STORAGE_ERRORS = (DeltaError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class DerivedFile:
    """A live file. `path` is relative to the table; missing statistics are None."""

    path: str
    size_bytes: int
    rows: int | None
    min_partition: int | None
    max_partition: int | None
    min_offset: int | None
    max_offset: int | None
    max_timestamp: datetime | None = None
    max_lsn: int | None = None
    """Of `source.lsn`, in a table of Debezium's events."""

    def may_hold(self, partition: int, start: int, end: int) -> bool:
        """False if the statistics say that the file has no row of this offset range."""
        if self.min_partition is not None and partition < self.min_partition:
            return False
        if self.max_partition is not None and partition > self.max_partition:
            return False
        if self.min_offset is not None and self.min_offset >= end:
            return False
        return self.max_offset is None or self.max_offset >= start


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written and not committed; `stats` is Delta's JSON."""

    path: str
    size_bytes: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True)
class DerivedChange:
    """The content of one commit. `versions` are application transactions, as ends."""

    kind: str
    now_ms: int
    adds: Sequence[WrittenFile] = ()
    removes: Sequence[DerivedFile] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    data_change: bool = True


@dataclass(frozen=True, slots=True)
class Merge:
    """Rows to upsert and to delete: `condition` matches, `newer` guards, `deletes` chooses."""

    rows: pa.Table
    condition: str
    newer: str
    deletes: str
    columns: Mapping[str, str]
    """Column of the table -> expression over `s` (the rows) and `t` (the table), on update."""
    inserted: Mapping[str, str]


class DerivedTable:
    """An open derived table at one version; `refresh` moves to the newest. Not thread-safe."""

    def __init__(self, derived: Derived, *, checked: bool = True) -> None:
        """Open the newest version. Raises TableAccessError, TableStateError (unless unchecked)."""
        self.derived = derived
        self._checked = checked
        self._listed: tuple[int, tuple[DerivedFile, ...]] | None = None
        with self._errors("opening"):
            self._table = DeltaTable(self.uri, storage_options=self._options())
        if checked:
            self.check()

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.derived.place.uri

    @classmethod
    def create(
        cls, derived: Derived, schema: pa.Schema, properties: Mapping[str, str]
    ) -> DerivedTable:
        """Create the table, or open the existing one."""
        if not table_exists(derived.place):
            commit = _commit_properties("create", {derived.version_txn: 0})
            try:
                DeltaTable.create(
                    derived.place.uri,
                    _delta_schema(schema),
                    mode="error",
                    name=f"{derived.place.topic}_{derived.kind.value}",
                    configuration=dict(properties),
                    storage_options=opened(derived.place.storage_options),
                    commit_properties=commit,
                    raise_if_key_not_exists=False,
                )
            except _STORAGE_ERRORS as error:
                if not table_exists(derived.place):  # else another service created it just now
                    raise TableAccessError(
                        f"the table {derived.place.uri} cannot be created: {error}"
                    ) from error
        return cls(derived)

    def refresh(self) -> None:
        """Move to the newest version and check it."""
        with self._errors("reading the log of"):
            before = self._table.version()
            self._table.update_incremental()
            if self._table.version() == before:
                return
        if self._checked:
            self.check()

    @property
    def version(self) -> int:
        """The version that the handle is at."""
        return int(self._table.version())

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return {k: v for k, v in self._table.metadata().configuration.items() if v}

    def parsed(self, name: str, parse: Callable[[str | None], T]) -> T:
        """A property of Headwater's own. Raises TableStateError for one that does not parse."""
        try:
            return parse(self.properties.get(name))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise TableStateError(
                f"table {self.uri}: its property {name} was changed by someone else and does not "
                f"parse ({type(error).__name__}): rebuild the table from the log table with "
                f"`headwater tier retype {self.derived.place.topic}`"
            ) from error

    @property
    def schema(self) -> pa.Schema:
        """The columns, with their fields' metadata."""
        return pa.schema(self._table.schema().to_arrow())

    def version_of(self, app_id: str) -> int | None:
        """The version of an application transaction; None without one."""
        with self._errors("reading the log of"):
            return self._table.transaction_version(app_id)

    def ends(self, partitions: int) -> dict[int, int]:
        """The fence: next offset to read per partition, of partitions that have one."""
        return self._by_partition(self.derived.end_txn, partitions)

    def clean(self, partitions: int) -> dict[int, int]:
        """Per partition, the offset below which the quarantine table lacks no record."""
        return self._by_partition(self.derived.clean_txn, partitions)

    def files(self) -> tuple[DerivedFile, ...]:
        """The live files."""
        if self._listed is None or self._listed[0] != self.version:
            self._listed = (self.version, self._list())
        return self._listed[1]

    @property
    def rows(self) -> int:
        """The number of rows, by the files' statistics."""
        return sum(live.rows or 0 for live in self.files())

    def _list(self) -> tuple[DerivedFile, ...]:
        with self._errors("reading the log of"):
            adds = pa.table(self._table.get_add_actions(flatten=True))
        return tuple(
            DerivedFile(
                path=unquote(row["path"]),
                size_bytes=row["size_bytes"],
                rows=row.get("num_records"),
                min_partition=row.get("min.partition"),
                max_partition=row.get("max.partition"),
                min_offset=row.get("min.offset"),
                max_offset=row.get("max.offset"),
                max_timestamp=row.get("max.timestamp"),
                max_lsn=row.get(f"max.{LSN}"),
            )
            for row in adds.to_pylist()
        )

    def history(self, limit: int) -> list[dict[str, Any]]:
        """The commitInfo of the newest commits, newest first."""
        with self._errors("reading the history of"):
            return list(self._table.history(limit))

    def commit(self, change: DerivedChange) -> None:
        """Commit against the handle's version. Raises CommitUnknownError; call `refresh` after."""
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size_bytes, {}, change.now_ms, change.data_change, f.stats)
            for f in change.adds
        ]
        actions += [
            RemoveAction(f.path, change.data_change, change.now_ms, f.size_bytes, {})
            for f in change.removes
        ]
        with self._unknown():
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                commit_properties=self._commit_properties(change.kind, change.versions),
            )

    def grow(self, schema: pa.Schema) -> None:
        """Add columns by an empty append. Raises CommitUnknownError; call `refresh` after."""
        if any(is_variant(column) for column in schema):
            self._add_columns(schema)
            return
        with self._unknown():
            write_deltalake(
                self._table,
                schema.empty_table(),
                mode="append",
                schema_mode="merge",
                commit_properties=self._commit_properties("grow", {}),
            )

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties. Raises CommitUnknownError; call `refresh` after."""
        with self._unknown():
            self._table.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,
                commit_properties=self._commit_properties("properties", {}),
            )

    def merge(self, merge: Merge, versions: Mapping[str, int]) -> dict[str, Any]:
        """MERGE rows and fence in one commit; its metrics. Raises CommitUnknownError."""
        with self._unknown():
            return dict(
                self._table.merge(
                    merge.rows,
                    predicate=merge.condition,
                    source_alias="s",
                    target_alias="t",
                    writer_properties=_without_statistics(self.schema),
                    commit_properties=self._commit_properties("merge", versions),
                )
                .when_matched_delete(f"{merge.newer} and {merge.deletes}")
                .when_matched_update(dict(merge.columns), merge.newer)
                .when_not_matched_insert(dict(merge.inserted), f"not ({merge.deletes})")
                .execute()
            )

    def require_whole_files(self) -> None:
        """Raise TableStateError if deletion vectors hide rows: files are read as they are here."""
        if "deletionVectors" in (self._table.protocol().reader_features or []):
            raise TableStateError(
                f"table {self.uri} has deletion vectors: apply them with REORG TABLE ... APPLY "
                "(PURGE), then ALTER TABLE ... DROP FEATURE deletionVectors"
            )

    def require_present_files(self) -> None:
        """Raise TableStateError if live files no longer exist; one listing of the folder."""
        with self._errors("listing"):
            found = filesystem(self.derived.place).get_file_info(FileSelector("", recursive=True))
        present = {info.path for info in found}
        lost = [live.path for live in self.files() if live.path not in present]
        if lost:
            raise TableStateError(
                f"table {self.uri} has lost {len(lost)} files, {lost[0]} is one: rebuild it from "
                f"the log table with `headwater tier retype {self.derived.place.topic}`"
            )

    def vacuum(self, age_hours: int) -> list[str]:
        """Delete unreferenced files, orphans too; their paths. Raises TableAccessError."""
        with self._errors("vacuuming"):
            return self._table.vacuum(
                age_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                commit_properties=_commit_properties("vacuum", {}),
            )

    def accept(self) -> None:
        """Take over the table as others left it. Raises CommitUnknownError."""
        self.commit(DerivedChange("accept", 0))

    def foreign_commits(self) -> list[dict[str, Any]]:
        """The commitInfo of others' commits after Headwater's newest one, newest first."""
        own = self.version_of(self.derived.version_txn)
        since = self.version - (-1 if own is None else own)
        if since <= 0:
            return []
        return [info for info in self.history(since) if COMMIT_KIND not in info]

    def _add_columns(self, schema: pa.Schema) -> None:
        """`grow` for a table with a VARIANT, which an append would turn into a struct."""
        own = set(self.schema.names)
        new = [column for column in schema if column.name not in own]
        if pa.schema([c for c in schema if c.name in own]) != self.schema:
            raise TableStateError(
                f"table {self.uri}: a struct of the key has new fields, which a table with a "
                "VARIANT cannot get: rebuild it with `headwater tier retype "
                f"{self.derived.place.topic}`"
            )
        with self._unknown():
            self._table.alter.add_columns(
                Schema.from_arrow(pa.schema(new)).fields,
                commit_properties=self._commit_properties("grow", {}),
            )

    def _by_partition(self, name: Any, partitions: int) -> dict[int, int]:
        found = {p: self.version_of(name(p)) for p in range(partitions)}
        return {p: version for p, version in found.items() if version is not None}

    def check(self) -> None:
        """Judge what others did, now and at each refresh. Raises TableStateError, naming it."""
        self._checked = True
        mode = self.properties.get("delta.columnMapping.mode", "none")
        if mode != "none":
            raise TableStateError(
                f"table {self.uri}: property delta.columnMapping.mode is {mode!r}, which Headwater "
                "cannot write: drop the feature (ALTER TABLE ... DROP FEATURE columnMapping)"
            )
        topic = self.derived.place.topic
        if RETENTION_PROPERTY in self.properties:
            raise TableStateError(
                f"table {self.uri}: property {RETENTION_PROPERTY} erases the offsets that it is "
                "filled up to: unset it (ALTER TABLE ... UNSET TBLPROPERTIES)"
            )
        if self.version_of(self.derived.version_txn) is None:
            raise TableStateError(
                f"table {self.uri}: its log has lost the offsets that it is filled up to: rebuild "
                f"it from the log table with `headwater tier retype {topic}`"
            )
        for info in self.foreign_commits():
            operation = str(info.get("operation", "unknown"))
            if not self._is_users(operation, info):
                raise TableStateError(
                    f"table {self.uri}: version {info.get('version')} was committed by someone "
                    f"else: {operation} ({info.get('engineInfo', 'unknown engine')}), which may "
                    "have doubled or lost rows: rebuild it from the log table with `headwater tier "
                    f"retype {topic}`, or accept it with `headwater tier typed {topic} --accept`"
                )

    def _is_users(self, operation: str, info: Mapping[str, Any]) -> bool:
        """True for what others may do to this kind of table."""
        if self.derived.kind is Kind.LATEST and operation in CHANGING_OPERATIONS:
            return False
        return operation in USERS_OPERATIONS or _merge_without_inserts(info)

    def _options(self) -> dict[str, str]:
        return opened(self.derived.place.storage_options)

    def _commit_properties(self, kind: str, versions: Mapping[str, int]) -> CommitProperties:
        return _commit_properties(kind, {**versions, self.derived.version_txn: self.version + 1})

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError as error:
            raise TableAccessError(f"there is no table at {self.uri}") from error
        except _STORAGE_ERRORS as error:
            raise TableAccessError(f"{doing} {self.uri} failed: {error}") from error

    @contextmanager
    def _unknown(self) -> Iterator[None]:
        try:
            yield
        except _STORAGE_ERRORS as error:
            raise CommitUnknownError(
                f"committing version {self.version + 1} of {self.uri}: {error}"
            ) from error


def floats_in(schema: pa.Schema) -> list[str]:
    """Paths of columns that may hold NaN, as Parquet writes them: `a`, `s.b`, `l.list.element`."""
    return [path for field in schema for path in _float_paths(field.name, field.type)]


def _float_paths(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_floating(type_):
        yield path
    elif pa.types.is_struct(type_):
        for i in range(type_.num_fields):
            yield from _float_paths(f"{path}.{type_.field(i).name}", type_.field(i).type)
    elif pa.types.is_map(type_):
        yield from _float_paths(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_list(type_):
        yield from _float_paths(f"{path}.list.element", type_.value_type)


def _without_statistics(schema: pa.Schema) -> WriterProperties:
    """No min and max of floats: deltalake's leave out NaN, and Spark would then miss rows."""
    nothing = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(
        compression="LZ4_RAW",
        column_properties=dict.fromkeys(floats_in(schema), nothing),
    )


def _commit_properties(kind: str, versions: Mapping[str, int]) -> CommitProperties:
    return CommitProperties(
        custom_metadata={COMMIT_KIND: kind},
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, version) for app_id, version in versions.items()],
    )


def _merge_without_inserts(info: Mapping[str, Any]) -> bool:
    if info.get("operation") != "MERGE":
        return False
    metrics = info.get("operationMetrics")
    metrics = json.loads(metrics) if isinstance(metrics, str) else metrics or {}
    inserted = metrics.get("numTargetRowsInserted", metrics.get("num_target_rows_inserted"))
    return inserted is not None and int(inserted) == 0


def _delta_schema(schema: pa.Schema) -> Schema:
    """Delta's schema; Arrow has no type of its own for a VARIANT.

    Beside one, columns may be null: deltalake does not list the feature that NOT NULL is in a
    protocol of features, and Spark then refuses the table.
    """
    found = json.loads(Schema.from_arrow(schema).to_json())
    variants = {column.name for column in schema if is_variant(column)}
    for row in found["fields"] if variants else ():
        row["nullable"] = True
        if row["name"] in variants:
            row["type"] = "variant"
    return Schema.from_json(json.dumps(found))
