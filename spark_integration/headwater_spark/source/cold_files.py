"""The data files of one version of a log table, selected per split and sent to its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater_spark.source.input_partitions import Split
from headwater_tier.delta import LiveFile, Snapshot
from headwater_tier.table_names import TableLocation


@dataclass(frozen=True, slots=True)
class ColdFiles:
    """The live files of one table version and the tiered offsets per partition. Picklable."""

    location: TableLocation
    version: int
    ranges: Mapping[int, tuple[int, int]]
    """Partition -> [start, end) of its tiered offsets."""
    files: tuple[LiveFile, ...]

    def range_of(self, partition: int) -> tuple[int, int]:
        """The partition's tiered offsets; (0, 0) when there are none."""
        return self.ranges.get(partition, (0, 0))

    def overlapping(self, split: Split) -> ColdFiles:
        """Only the files that may hold rows of the split."""
        files = tuple(f for f in self.files if _may_hold(f, split))
        return ColdFiles(self.location, self.version, {}, files)

    def holes(self, split: Split) -> int:
        """The offsets of the split that have no row, at least; 0 if a file does not say its
        rows."""
        rows = [f.rows for f in self.files if _may_hold(f, split)]
        return 0 if None in rows else max(0, split.offsets - sum(n or 0 for n in rows))


def cold_files(location: TableLocation, snapshot: Snapshot) -> ColdFiles:
    """The files and ranges of a checked snapshot."""
    ranges = {p: (snapshot.starts.get(p, 0), end) for p, end in snapshot.ends.items()}
    return ColdFiles(location, snapshot.version, ranges, tuple(snapshot.files))


def _may_hold(file: LiveFile, split: Split) -> bool:
    """False only if the file's statistics exclude the split's rows."""
    low, high = file.min_partition, file.max_partition
    if low is not None and high is not None and not low <= split.partition <= high:
        return False
    first, last = file.min_offset, file.max_offset
    if first is None or last is None:
        return True
    return first < split.end_offset and last >= split.start_offset
