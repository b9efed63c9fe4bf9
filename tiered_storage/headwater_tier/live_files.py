"""The live files of a table's version, from the add actions that deltalake gives as Arrow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater_tier.commit_fence import FileFacts

CHUNKS_MAX = 64
"""Of the table of add actions: each commit makes another."""
_BOUNDS = ("partition", "offset")
_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("modification_time", pa.int64()),
        ("num_records", pa.int64()),
        *((f"{side}.{name}", pa.int64()) for name in _BOUNDS for side in ("min", "max")),
    ]
)
"""What is used of add actions."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One file of a snapshot. `path` is relative to the table; missing statistics are None."""

    path: str
    size_bytes: int
    rows: int | None
    modified_ms: int
    min_partition: int | None
    max_partition: int | None
    min_offset: int | None
    max_offset: int | None


class Sized(Protocol):
    """A file of any table."""

    @property
    def size_bytes(self) -> int:
        """Its size."""


FileT = TypeVar("FileT", bound=Sized)


def first_within(files: Sequence[FileT], bytes_target: int) -> tuple[FileT, ...]:
    """As many of the first files as fit into one of this size: one at least, if there is any."""
    chosen: list[FileT] = []
    size_bytes = 0
    for live in files:
        if chosen and size_bytes + live.size_bytes > bytes_target:
            break
        chosen.append(live)
        size_bytes += live.size_bytes
    return tuple(chosen)


class LiveFiles(Sequence[LiveFile]):
    """The files of a version, made from deltalake's table when they are looked at: a commit needs
    only their sums, which Arrow computes a hundred times faster."""

    def __init__(self, adds: pa.Table) -> None:
        """`adds`: flattened add actions."""
        self._adds = adds
        self._made: tuple[LiveFile, ...] | None = None

    @classmethod
    def none(cls) -> LiveFiles:
        """Of a table without files."""
        return cls(_COLUMNS.empty_table())

    def __len__(self) -> int:
        return int(self._adds.num_rows)

    @overload
    def __getitem__(self, at: int) -> LiveFile: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[LiveFile]: ...

    def __getitem__(self, at: int | slice) -> LiveFile | Sequence[LiveFile]:
        return self._all()[at]

    def __iter__(self) -> Iterator[LiveFile]:
        return iter(self._all())

    def _all(self) -> tuple[LiveFile, ...]:
        made = self._made
        if made is None:  # two threads may make it at the same time: the same values
            made = self._made = tuple(_live_files(self._adds))
        return made

    def after(self, adds: Sequence[FileFacts], removes: Iterable[LiveFile]) -> LiveFiles:
        """The files after a commit with these."""
        known = _used(self._adds)
        gone = {path for live in removes for path in (live.path, quote(live.path))}
        if gone:
            is_gone = pc.is_in(known.column("path"), value_set=pa.array(sorted(gone)))
            known = known.filter(pc.invert(is_gone))
        if adds:
            known = pa.concat_tables([known, _added(adds)])
        if known.column(0).num_chunks > CHUNKS_MAX:
            known = known.combine_chunks()
        return LiveFiles(known)

    def path(self, at: int) -> str:
        """The path of one file."""
        return unquote(self._adds.column("path")[at].as_py())

    def numbers(self, column: str, absent: int) -> NDArray[np.int64]:
        """A column of every file; `absent` where a file does not have it."""
        if column not in self._adds.column_names:
            return np.full(len(self), absent, np.int64)
        known = pc.fill_null(self._adds.column(column).cast(pa.int64()), absent)
        return np.asarray(known.to_numpy(), np.int64)

    def total(self, column: str) -> int:
        """The sum of a column; nulls count as 0."""
        if column not in self._adds.column_names:
            return 0
        return int(pc.sum(self._adds.column(column)).as_py() or 0)

    def first_without_rows(self) -> str | None:
        """The path of a file without a row count; None if each has one."""
        if not len(self):
            return None
        if "num_records" not in self._adds.column_names:
            return self[0].path
        missing = pc.is_null(self._adds.column("num_records"))
        at = pc.index(missing, True).as_py()
        return None if at < 0 else self[at].path

    def partitions(self) -> set[int]:
        """The partitions at the bounds of the files' statistics."""
        names = [n for n in ("min.partition", "max.partition") if n in self._adds.column_names]
        return {p for name in names for p in pc.unique(self._adds.column(name)).to_pylist()} - {
            None
        }


def _used(adds: pa.Table) -> pa.Table:
    """The columns that are used, in types of ours."""
    if adds.schema.equals(_COLUMNS):
        return adds
    columns = []
    for field in _COLUMNS:
        if field.name not in adds.column_names:
            columns.append(pa.nulls(adds.num_rows, field.type))
            continue
        column = adds.column(field.name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz))
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=_COLUMNS)


def _added(adds: Sequence[FileFacts]) -> pa.Table:
    rows = []
    for facts in adds:
        row = {
            "path": facts.path,
            "size_bytes": facts.size_bytes,
            "modification_time": facts.written_ms,
            "num_records": facts.rows,
        }
        for name, stats in facts.stats:
            if name in _BOUNDS:
                row |= {f"min.{name}": stats.minimum, f"max.{name}": stats.maximum}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=_COLUMNS)


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


def _milliseconds(time: Any) -> int:
    return time if isinstance(time, int) else int(time.timestamp() * 1000)
