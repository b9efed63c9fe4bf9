"""The places where records are counted: a log, what a group has committed of it, a Delta table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.admin.client import EARLIEST, LATEST, Admin
from headwater.client.consumer import Consumer
from headwater.client.frames import read_ranges
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater_tier.table_names import TableLocation
from headwater_tier.verify import TableScan

Timestamps = npt.NDArray[np.int64]
Chunk = tuple[int, Timestamps, int]
"""(partition, timestamps in ms, the position after them)."""
NO_TIME_MS = -1


class Place(Protocol):
    """One place."""

    @property
    def has_own_offsets(self) -> bool:
        """True for a copy whose offsets are not those of the log."""
        ...

    def ends(self) -> dict[int, int]:
        """partition -> the offset up to which its records are there now."""
        ...

    def read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Chunk]:
        """The timestamps of the records between two positions of each partition."""
        ...


class LogPlace:
    """A topic, up to its last stable offset, or up to what a group has committed."""

    def __init__(
        self,
        admin: Admin,
        consumer: Consumer,
        topic: str,
        clock: Clock,
        group: str = "",
        *,
        has_own_offsets: bool = False,
    ) -> None:
        """`consumer` is in no group and reads committed records; places of a cluster share it."""
        self.has_own_offsets = has_own_offsets
        self._admin = admin
        self._consumer = consumer
        self._topic = topic
        self._clock = clock
        self._group = group

    def starts(self) -> dict[int, int]:
        """partition -> the first offset that is left."""
        return self._offsets(EARLIEST)

    def first_times(self) -> dict[int, int]:
        """partition -> the timestamp (ms) of its first record, of those whose head is deleted."""
        starts, found = self.starts(), {}
        for partition, start in starts.items():
            if start > 0 and (end := self.ends().get(partition, 0)) > start:
                _, times, _ = next(self.read({partition: start}, {partition: end}))
                found[partition] = int(times[0]) if len(times) else NO_TIME_MS
        return found

    def ends(self) -> dict[int, int]:
        """See Place. A partition that the group has committed nothing of is not in it."""
        if not self._group:
            return self._offsets(LATEST)
        committed = self._admin.list_group_offsets(self._group)
        return {tp.partition: at.offset for tp, at in committed.items()
                if tp.topic == self._topic and at.offset >= 0}  # fmt: skip

    def read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Chunk]:
        """See Place."""
        left = {
            TopicPartition(self._topic, p): end for p, end in ends.items() if starts.get(p, 0) < end
        }
        begins = {place: starts.get(place.partition, 0) for place in left}
        for batch in read_ranges(self._consumer, begins, left, self._clock):
            yield from _chunks(batch)
        for place, end in left.items():
            yield place.partition, np.empty(0, np.int64), end

    def _offsets(self, at: int) -> dict[int, int]:
        (description,) = self._admin.describe_topics([self._topic]).values()
        wanted = {TopicPartition(self._topic, p.partition): at for p in description.partitions}
        found = self._admin.list_offsets(wanted, isolation_level="read_committed")
        return {tp.partition: row.offset for tp, row in found.items()}


class TablePlace:
    """The topic's Delta table."""

    has_own_offsets = False

    def __init__(self, location: TableLocation) -> None:
        self._location = location

    def ends(self) -> dict[int, int]:
        """See Place."""
        return dict(TableScan(self._location).snapshot.ends)

    def read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Chunk]:
        """See Place."""
        scan = TableScan(self._location)
        for partition, end in ends.items():
            for batch in scan.rows(partition, starts.get(partition, 0), end):
                yield partition, _milliseconds(batch.column("timestamp")), end


def _chunks(batch: pa.RecordBatch) -> Iterator[Chunk]:
    partitions, offsets = np.asarray(batch.column("partition")), np.asarray(batch.column("offset"))
    times = _milliseconds(batch.column("timestamp"))
    for partition in np.unique(partitions):
        mine = partitions == partition
        yield int(partition), times[mine], int(offsets[mine].max()) + 1


def _milliseconds(column: pa.Array) -> Timestamps:
    """A time that the column cannot hold (before year 1, after 9999) counts as none."""
    found = pc.cast(column, pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    return np.asarray(found.fill_null(NO_TIME_MS), dtype=np.int64)
