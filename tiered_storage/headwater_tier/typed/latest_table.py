"""The table of the latest row per key: MERGE of what is new in the typed table.

A compacted topic as a table: the last record of a key is its row, a tombstone deletes it. Merges
are repeatable, as a row changes only by a newer record; the fence is as the typed table's, with
`end`s of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.delta import CommitUnknownError, TableStateError, table_exists
from headwater_tier.schema import PARTITIONS
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.column_growth import (
    KEY,
    TOMBSTONE,
    Part,
    has_equality,
    is_variant,
    source_of,
)
from headwater_tier.typed.compaction import compact_derived
from headwater_tier.typed.decoding import DeclarationError
from headwater_tier.typed.derived_files import stats_columns, write_derived
from headwater_tier.typed.derived_table import DerivedChange, DerivedTable, Merge
from headwater_tier.typed.latest_row import (
    GROWTHS,
    LSN,
    OP,
    Growth,
    deletes,
    growths_from_property,
    growths_to_property,
    newer_condition,
    newest_rows,
    overruled,
    placeholder,
    quoted,
)
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.rewriting import have_keys_of, rewrite
from headwater_tier.typed.typed_rows import (
    at_places,
    matching,
    newer_files,
    spans_of,
    typed_rows,
)
from headwater_tier.typed.typed_table import STATS_PROPERTY, base_properties

FILE_BYTES = 32 << 20
"""A MERGE rewrites the files that it touches: small ones cost less."""
SMALL_FILES_MAX = 16
"""Each MERGE leaves a file of new rows; so many are rewritten, sorted by key."""
MERGE_ROWS_MAX = 500_000
CHANGED_SHARE = 100
"""A merge is due early when the new rows are a hundredth of the table's."""
_NOT_KEPT = (TOMBSTONE, OP)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Rows that a merge read, and those that it changed."""

    read: int = 0
    changed: int = 0
    behind: int = 0
    """Offsets of the typed table that are not merged yet."""


class Latest:
    """The latest table of one generation of a typed table. Not thread-safe."""

    def __init__(self, location: TableLocation, clock: Clock, entropy: Entropy) -> None:
        """Opens nothing before the first turn."""
        self._location = location
        self._clock = clock
        self._entropy = entropy
        self._table: DerivedTable | None = None
        self._merged_at: float | None = None

    @property
    def rows(self) -> int | None:
        """The number of keys, as of the last turn; None before it."""
        return None if self._table is None else self._table.rows

    def turn(
        self,
        typed: DerivedTable,
        partitions: int,
        interval_ms: int,
        *,
        rows_max: int = 0,
        first_row: Callable[[int, int], int] = lambda _partition, offset: offset,
    ) -> MergeResult:
        """Merge what is new, if it is due. Raises TableAccessError, TableStateError.

        `first_row`: (partition, offset) -> the first offset from there on that may have a row.
        """
        table = self._opened(typed, partitions)
        typed_ends, ends = typed.ends(partitions), table.ends(partitions)
        spans = {p: (ends.get(p, 0), end) for p, end in typed_ends.items() if ends.get(p, 0) < end}
        behind = sum(end - start for start, end in spans.values())
        if not behind or not self._is_due(table, behind, interval_ms):
            return MergeResult(behind=behind)
        share = max(1, (rows_max or MERGE_ROWS_MAX) // len(spans))
        spans = {p: (at, min(end, first_row(p, at) + share)) for p, (at, end) in spans.items()}
        rows = typed_rows(typed, spans)
        changed = self._merged(typed, table, rows, {p: end for p, (_, end) in spans.items()})
        compact_derived(
            table,
            key_columns(typed.schema),
            clock=self._clock,
            entropy=self._entropy,
            files_min=SMALL_FILES_MAX,
            bytes_target=FILE_BYTES,
        )
        done = sum(end - start for start, end in spans.values())
        if done == behind:
            self._merged_at = self._clock.monotonic()
        return MergeResult(rows.num_rows, changed, behind - done)

    def admit(self, typed: DerivedTable, admitted: pa.Table, partitions: int) -> int:
        """Merge rows that a replay brought below the `end`s, if they are their keys' newest.

        `admitted` names them by partition and offset. A key that a later record deleted stays so.
        """
        table = self._opened(typed, partitions)
        typed.refresh()  # a delete that is merged by now may be newer than the snapshot at hand
        if latest_schema(typed.schema) != table.schema:
            raise CommitUnknownError(f"{typed.uri} got columns meanwhile")
        below = {p: (0, end) for p, end in table.ends(partitions).items()}
        keys = key_columns(typed.schema)
        late = events(at_places(typed_rows(typed, spans_of(admitted, below)), admitted), keys)
        if not late.num_rows:
            return 0
        own = late.select(keys).group_by(keys).aggregate([])
        if OP in typed.schema.names:  # a TRUNCATE has no key
            nulls = [pa.nulls(1, field.type) for field in own.schema]
            own = pa.concat_tables([own, pa.table(nulls, schema=own.schema)])
        rivals, _ = after_truncate(events(typed_rows(typed, below, among=own), keys))
        growths = table.parsed(GROWTHS, growths_from_property)
        newest = at_places(newest_rows(rivals, keys, growths), admitted)
        return self._upserted(table, newest, keys, growths, {}) if newest.num_rows else 0

    def _opened(self, typed: DerivedTable, partitions: int) -> DerivedTable:
        """The table at its newest version, with the typed table's columns."""
        wanted = derived(self._location, Kind.LATEST, typed.derived.generation)
        if self._table is not None and self._table.derived == wanted:
            self._table.refresh()
        else:
            self._table = self._created(typed, partitions)
        table = self._table
        schema = latest_schema(typed.schema)
        if schema != table.schema:
            table.grow(schema)
            table.refresh()
        if int(table.properties.get(PARTITIONS, "0")) < partitions:
            self._grown(table, partitions)
        return table

    def _created(self, typed: DerivedTable, partitions: int) -> DerivedTable:
        key_columns(typed.schema)
        wanted = derived(self._location, Kind.LATEST, typed.derived.generation)
        if table_exists(wanted.place):
            return DerivedTable(wanted)
        schema = latest_schema(typed.schema)
        properties = base_properties(self._location, schema) | {
            PARTITIONS: str(partitions),
            STATS_PROPERTY: ",".join(stats_columns(schema)),
            "delta.targetFileSize": str(FILE_BYTES),
        }
        return DerivedTable.create(wanted, schema, properties)

    def _grown(self, table: DerivedTable, partitions: int) -> None:
        """Remember from which offsets on the topic has more partitions."""
        before = int(table.properties.get(PARTITIONS, "0"))
        growths = [
            *table.parsed(GROWTHS, growths_from_property),
            Growth(before, dict.fromkeys(range(before), 0) | table.ends(before)),
        ]
        table.set_properties({PARTITIONS: str(partitions), GROWTHS: growths_to_property(growths)})
        table.refresh()

    def _is_due(self, table: DerivedTable, behind: int, interval_ms: int) -> bool:
        if self._merged_at is None:
            return True
        if (self._clock.monotonic() - self._merged_at) * 1000 >= interval_ms:
            return True
        return behind * CHANGED_SHARE >= table.rows

    def _merged(
        self, typed: DerivedTable, table: DerivedTable, rows: pa.Table, ends: Mapping[int, int]
    ) -> int:
        versions = {table.derived.end_txn(p): end for p, end in ends.items()}
        keys = key_columns(typed.schema)
        growths = table.parsed(GROWTHS, growths_from_property)
        rows = self._truncated(table, events(rows, keys), len(ends))
        found = newest_rows(rows, keys, growths)
        found = self._without_deleted(typed, table, found, keys, growths)
        if not table.files():
            return self._filled(table, found, keys, versions)
        if found.num_rows:
            return self._upserted(table, found, keys, growths, versions)
        table.commit(DerivedChange("merge", self._clock.now_ms(), versions=versions))
        table.refresh()
        return 0

    def _without_deleted(
        self,
        typed: DerivedTable,
        table: DerivedTable,
        found: pa.Table,
        keys: Sequence[str],
        growths: Sequence[Growth],
    ) -> pa.Table:
        """The rows but those whose key was deleted by a newer record that is merged already.

        The table of latest rows has nothing of a deleted key. Offsets of one partition say enough,
        but a key that moved may have its delete in another one, merged before its row; and a
        connector of Debezium sends old changes again. The typed table has the deletes.
        """
        partitions = int(table.properties.get(PARTITIONS, "1"))
        below = {p: (0, end) for p, end in table.ends(partitions).items()}
        coming = found.filter(pc.invert(_is_gone(found)))
        if not coming.num_rows or not below or (partitions == 1 and LSN not in found.schema.names):
            return found
        gone = typed_rows(
            typed,
            below,
            among=coming.select(keys),
            may_matter=newer_files(coming, growths, partitions),
            kept=_only_deletes,
        )
        gone = events(gone, keys)
        gone = gone.filter(pa.array(overruled(coming, gone, keys, growths)))
        if not gone.num_rows:
            return found
        # All records of the few keys in question tell: one after the delete may be older still.
        own = gone.select(keys).group_by(keys).aggregate([])
        mine = matching(coming, own)
        both = pa.concat_tables(
            [events(typed_rows(typed, below, among=own), keys), mine.select(typed.schema.names)]
        ).sort_by([("partition", "ascending"), ("offset", "ascending")])
        newest = at_places(newest_rows(both, keys, growths), mine)
        others = found.filter(pa.array(~have_keys_of(found, own, keys)))
        deleting = matching(_only_deletes(found), own)
        return pa.concat_tables([others, deleting, newest.select(found.schema.names)])

    def _upserted(
        self,
        table: DerivedTable,
        found: pa.Table,
        keys: Sequence[str],
        growths: Sequence[Growth],
        versions: Mapping[str, int],
    ) -> int:
        """MERGE one row per key; the fence moves with the last MERGE. The rows that changed."""
        if any(is_variant(field) for field in table.schema):
            return rewrite(
                table,
                found,
                keys,
                growths,
                versions,
                bytes_target=FILE_BYTES,
                clock=self._clock,
                entropy=self._entropy,
            )
        changed = 0
        groups = by_nulls(found, keys)
        for nulls, part in groups:
            last = part is groups[-1][1]
            merge = _merge(part, table.schema, keys, nulls, growths)
            metrics = table.merge(merge, versions if last else {})
            table.refresh()
            changed += sum(
                int(metrics.get(f"num_target_rows_{what}", 0))
                for what in ("inserted", "updated", "deleted")
            )
        return changed

    def _filled(
        self, table: DerivedTable, found: pa.Table, keys: Sequence[str], versions: Mapping[str, int]
    ) -> int:
        """The first rows of an empty table: files sorted by key, without a MERGE."""
        rows = found.filter(pc.invert(_is_gone(found)))
        rows = _without_placeholders(rows).select(table.schema.names).cast(table.schema)
        rows = rows.sort_by([(name, "ascending") for name in keys])
        step = max(1, rows.num_rows * FILE_BYTES // max(rows.nbytes, 1))
        parts = [rows.slice(at, step) for at in range(0, rows.num_rows, step)]
        place = table.derived.place
        adds = [write_derived(place, part, self._entropy.uuid()) for part in parts]
        table.commit(DerivedChange("merge", self._clock.now_ms(), adds, versions=versions))
        table.refresh()
        return int(rows.num_rows)

    def _truncated(self, table: DerivedTable, rows: pa.Table, partitions: int) -> pa.Table:
        """Honour a TRUNCATE of Debezium: the rows after it, of a table that was emptied.

        Raises TableStateError for a topic of several partitions, whose order is unknown.
        """
        left, is_truncated = after_truncate(rows)
        if not is_truncated:
            return rows
        if int(table.properties.get(PARTITIONS, "1")) > 1:
            raise TableStateError(
                f"{table.uri}: the source truncated its table, and topic {self._location.topic} "
                "has several partitions, so that no order with other changes is known: rebuild it "
                "with `headwater tier retype`, and give topics of Debezium one partition"
            )
        live = table.files()
        if live:
            table.commit(DerivedChange("truncate", self._clock.now_ms(), removes=live))
            table.refresh()
        return left


def _is_gone(rows: pa.Table) -> pa.ChunkedArray:
    """Per row, whether it deletes its key."""
    is_gone = pc.equal(rows[OP], "d") if OP in rows.schema.names else rows[TOMBSTONE]
    return pc.fill_null(is_gone, False)


def _only_deletes(rows: pa.Table) -> pa.Table:
    return rows.filter(_is_gone(rows))


def after_truncate(rows: pa.Table) -> tuple[pa.Table, bool]:
    """The rows after the last TRUNCATE of Debezium, and whether there was one."""
    if OP not in rows.schema.names:
        return rows, False
    at = np.flatnonzero(pc.equal(rows.column(OP), "t").to_numpy(zero_copy_only=False))
    return (rows.slice(int(at[-1]) + 1), True) if len(at) else (rows, False)


def latest_schema(typed: pa.Schema) -> pa.Schema:
    """The columns of the latest table: the typed table's without its flags."""
    return pa.schema([field for field in typed if field.name not in _NOT_KEPT])


def key_columns(schema: pa.Schema) -> list[str]:
    """The columns that are the row's key: of types that have equality.

    Raises DeclarationError if there is none but of other types.
    """
    fields = key_fields(schema)
    names = [field.name for field in fields if has_equality(field.type)]
    if fields and not names:
        raise DeclarationError(
            f"headwater.latest.enable needs keys of plain columns: {fields[0].name} is "
            f"{fields[0].type}; leave headwater.key.format empty for keys as bytes"
        )
    return names or [KEY]


def key_fields(schema: pa.Schema) -> list[pa.Field]:
    """All columns of the key."""
    found = [(field, source_of(field)) for field in schema]
    return [field for field, source in found if source is not None and source.part is Part.KEY]


def events(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that change a key: with a key, no message of Debezium, not its tombstones."""
    absent = pa.chunked_array([pa.array(np.ones(rows.num_rows, bool))])
    for name in keys:
        absent = pc.and_(absent, pc.is_null(rows.column(name)))
    keep = pc.invert(absent)
    for field in key_fields(rows.schema):
        if not has_equality(field.type):  # such a key is in quarantine
            keep = pc.and_(keep, pc.is_null(rows.column(field.name)))
    if OP in rows.schema.names:
        op = rows.column(OP)
        known = pc.is_in(op, value_set=pa.array(["c", "r", "u", "d"]))
        keep = pc.or_(pc.and_(keep, known), pc.fill_null(pc.equal(op, "t"), False))
    return rows.filter(keep)


def by_nulls(rows: pa.Table, keys: Sequence[str]) -> list[tuple[tuple[str, ...], pa.Table]]:
    """The rows by which of their key columns are null: a MERGE compares the others by `=`."""
    if len(keys) == 1:
        return [((), rows)]
    code = np.zeros(rows.num_rows, np.int64)
    for at, name in enumerate(keys):
        code |= rows.column(name).is_null().to_numpy().astype(np.int64) << at
    return [
        (
            tuple(name for at, name in enumerate(keys) if value >> at & 1),
            rows.filter(pa.array(code == value)),
        )
        for value in np.unique(code).tolist()
    ]


def _merge(
    rows: pa.Table,
    schema: pa.Schema,
    keys: Sequence[str],
    nulls: Sequence[str],
    growths: Sequence[Growth],
) -> Merge:
    conditions = [
        f"t.{quoted(name)} is null" if name in nulls else f"t.{quoted(name)} = s.{quoted(name)}"
        for name in keys
    ]
    names = [name for name in schema.names if name in rows.schema.names]
    cdc = OP in rows.schema.names
    return Merge(
        rows=rows,
        condition=" and ".join(conditions),
        newer=newer_condition(growths, has_lsn=LSN in rows.schema.names),
        deletes=deletes(rows.schema),
        columns={quoted(name): _value(schema.field(name), "t", cdc=cdc) for name in names},
        inserted={quoted(name): _value(schema.field(name), "", cdc=cdc) for name in names},
    )


def _value(field: pa.Field, old: str, *, cdc: bool) -> str:
    """SQL: the new value; the old one, or null, for Debezium's placeholder."""
    mark = placeholder(field.type) if cdc and source_of(field) is not None else None
    name = quoted(field.name)
    if mark is None:
        return f"s.{name}"
    text = f"'{mark}'" if isinstance(mark, str) else f"X'{mark.hex()}'"
    kept = f"t.{name}" if old else "null"
    return f"case when s.{name} = {text} then {kept} else s.{name} end"


def _without_placeholders(rows: pa.Table) -> pa.Table:
    """Nulls for values that Debezium did not send, where no earlier row has them."""
    if OP not in rows.schema.names:
        return rows
    for at, field in enumerate(rows.schema):
        mark = placeholder(field.type)
        if mark is not None and source_of(field) is not None:
            column = rows.column(at)
            unknown = pc.fill_null(pc.equal(column, mark), False)
            rows = rows.set_column(
                at, field, pc.if_else(unknown, pa.scalar(None, field.type), column)
            )
    return rows
