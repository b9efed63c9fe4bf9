"""The ledger of a world: committed batches, replies to clients, records read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from headwater.records.batch import HEADER_BYTES, read_header
from headwater_broker.log.unified_log import UnifiedLog

Key = tuple[str, int]


class Batch(NamedTuple):
    """The identity of a batch in a log: offsets, leader epoch, content."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    base_sequence: int


class Acked(NamedTuple):
    """A batch that was acked."""

    base_offset: int
    values: tuple[bytes, ...]
    producer: str


@dataclass(slots=True)
class AdminLedger:
    """The admin's requests and their outcomes."""

    counts: dict[str, int] = field(default_factory=dict)
    """Requests with a known outcome, by kind."""
    partitions: int = 0
    """The least number of partitions that its topic has."""
    gone: set[UUID] = field(default_factory=set)
    """Ids of deleted topics."""
    configs: set[str] = field(default_factory=set)
    """Requested config values."""
    is_configured: bool = False
    """Whether one of them is in effect."""


class Ledger:
    """The ledger of one partition."""

    def __init__(self, topic: str, index: int) -> None:
        self.key: Key = (topic, index)
        self.committed: list[Batch] = []
        """All batches that were below the high watermark of any replica, in order."""
        self.bases: list[int] = []
        self.epochs: list[int] = []
        """Per committed batch, the leader epoch in which it was first committed."""
        self.acked: list[Acked] = []
        self.acked_end = 0
        self.leaders: dict[int, int] = {}
        """Leader epoch -> broker."""
        self.read: dict[int, bytes] = {}
        """Offset -> value, as read by consumers."""

    @property
    def end(self) -> int:
        """The offset after the last committed one."""
        return self.committed[-1].last_offset + 1 if self.committed else 0

    def at(self, offset: int) -> Batch | None:
        """The committed batch with this offset."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0 or self.committed[index].last_offset < offset:
            return None
        return self.committed[index]

    def before(self, leader_epoch: int) -> list[Batch]:
        """The batches committed before a leader epoch: its leader was elected from replicas that
        have them. (A leader that learns of its epoch late, when others lead, need not have more.)
        """
        count = len(self.epochs)
        while count and self.epochs[count - 1] >= leader_epoch:
            count -= 1
        return self.committed[:count]

    def commit(self, batch: Batch, leader_epoch: int) -> None:
        """Add a committed batch."""
        self.epochs.append(leader_epoch)
        self.committed.append(batch)
        self.bases.append(batch.base_offset)


class Cursor:
    """Reads a log's batches in order, across calls. It reads the memory behind the files, which has
    no side effect."""

    __slots__ = ("_base", "_position", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self._base = -1
        self._position = 0

    def read(self, log: UnifiedLog, upper: int) -> Iterator[Batch]:
        """The batches after the cursor that end below `upper`."""
        bases = log.bases
        index = max(bisect_right(bases, self.offset) - 1, 0)
        for number in range(index, len(bases)):
            segment = log.segments[number]
            data = segment.file.data  # type: ignore[attr-defined]
            at = self._position if segment.base_offset == self._base else 0
            while len(data) - at >= HEADER_BYTES:
                header = read_header(data, at)
                if header.next_offset > upper:
                    return
                at += header.size_bytes
                if header.next_offset <= self.offset:
                    continue
                self._base, self._position = segment.base_offset, at
                self.offset = header.next_offset
                yield Batch(
                    header.base_offset, header.last_offset, header.leader_epoch, header.crc,
                    header.producer_id, header.base_sequence,
                )  # fmt: skip


def batches(log: UnifiedLog, upper: int) -> list[Batch]:
    """All batches that end below `upper`."""
    return list(Cursor().read(log, upper))
