"""A topic's record batches in memory, for the tier tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.records.batch import iter_headers, patch_base_offset
from headwater.records.builder import BatchBuilder
from headwater_tier.data_files import Fetched
from headwater_tier.offset_ranges import PartitionBounds
from headwater_tier.table_names import TableLocation, table_uri

TOPIC_ID = UUID("99bee4b5-4c90-44ba-843a-cb88c0a1dadf")


class FixedClock:
    """A clock that does not advance."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return self.at_ms / 1000


class CountingEntropy:
    """UUIDs 1, 2, 3, ..."""

    def __init__(self, first: int = 1) -> None:
        self.next = first

    def uuid(self) -> UUID:
        self.next += 1
        return UUID(int=self.next - 1)

    def uniform(self, low: float, high: float) -> float:
        return low

    def randbytes(self, size: int) -> bytes:
        return bytes(size)


def location_at(folder: Path, topic: str = "flights", topic_id: UUID = TOPIC_ID) -> TableLocation:
    return TableLocation(table_uri(str(folder), topic, topic_id), topic, topic_id)


class MemoryLog:
    """Partitions of batches; `fetch` is the fetch function for `tier_range`."""

    def __init__(self) -> None:
        self.partitions: dict[int, bytearray] = {}
        self.next: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.fetch_bytes = 4096

    def append(
        self, partition: int, rows: Sequence[tuple[Any, ...]], *, gap: int = 0, **build: Any
    ) -> None:
        """One batch of (timestamp, key, value[, headers]) rows, `gap` offsets further on."""
        builder = BatchBuilder()
        for row in rows:
            builder.append(*row)
        epoch = build.pop("leader_epoch", 0)
        data = builder.build(**build)
        base = self.next.get(partition, 0) + gap
        patch_base_offset(memoryview(data), 0, base, epoch)
        self.partitions.setdefault(partition, bytearray()).extend(data)
        self.next[partition] = base + len(rows)

    def fill(self, partition: int, count: int, size: int = 20, per_batch: int = 10) -> None:
        """Append `count` records whose values have partition and offset."""
        done = 0
        while done < count:
            base = self.next.get(partition, 0)
            offsets = range(base, base + min(per_batch, count - done))
            batch = [
                (1_000 + o, b"k%d" % (o % 7), (b"%d:%d:" % (partition, o)).ljust(size, b"."))
                for o in offsets
            ]
            self.append(partition, batch)
            done += len(batch)

    def fetch(self, partition: int, offset: int) -> Fetched:
        data = self.partitions[partition]
        for at, header in iter_headers(bytes(data)):
            if header.next_offset > offset:
                return Fetched(bytes(data[at : at + self.fetch_bytes + header.size_bytes]))
        return Fetched(b"")

    def bounds(self) -> dict[int, PartitionBounds]:
        return {p: PartitionBounds(self.starts.get(p, 0), end) for p, end in self.next.items()}
