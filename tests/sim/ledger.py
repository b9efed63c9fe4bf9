"""What the world knows to be true: what was committed, what clients were told, what they sent."""

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
    """What identifies a batch in a log: its place, its writer's epoch, its content."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    base_sequence: int


class Acked(NamedTuple):
    """A produce that was answered without an error."""

    base_offset: int
    values: tuple[bytes, ...]
    producer: str


@dataclass(slots=True)
class Told:
    """What the admin asked for, and was told."""

    counts: dict[str, int] = field(default_factory=dict)
    """Requests with a known outcome, by kind."""
    partitions: int = 0
    """So many its topic has at least."""
    gone: set[UUID] = field(default_factory=set)
    """Ids of deleted topics."""
    configs: set[str] = field(default_factory=set)
    """Values that were asked for."""
    is_configured: bool = False
    """One of them is in force."""


class Ledger:
    """Of one partition."""

    def __init__(self, topic: str, index: int) -> None:
        self.key: Key = (topic, index)
        self.committed: list[Batch] = []
        """Everything that any replica ever called committed, in order."""
        self.bases: list[int] = []
        self.epochs: list[int] = []
        """Per committed batch: the leader epoch in which it was first called committed."""
        self.acked: list[Acked] = []
        self.acked_end = 0
        self.leaders: dict[int, int] = {}
        """Leader epoch -> broker."""
        self.read: dict[int, bytes] = {}
        """Offset -> value, as consumers saw them."""

    @property
    def end(self) -> int:
        """The committed end: one after the last committed offset."""
        return self.committed[-1].last_offset + 1 if self.committed else 0

    def at(self, offset: int) -> Batch | None:
        """The committed batch that holds an offset."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0 or self.committed[index].last_offset < offset:
            return None
        return self.committed[index]

    def before(self, leader_epoch: int) -> list[Batch]:
        """What was committed before an epoch: its leader was chosen among those who hold it. (One
        that hears of its epoch late, when others lead, need not hold more.)"""
        count = len(self.epochs)
        while count and self.epochs[count - 1] >= leader_epoch:
            count -= 1
        return self.committed[:count]

    def commit(self, batch: Batch, leader_epoch: int) -> None:
        """One more is committed."""
        self.epochs.append(leader_epoch)
        self.committed.append(batch)
        self.bases.append(batch.base_offset)


class Cursor:
    """Reads a log's batches in order, across calls; sees the memory behind the files, so that
    looking has no side effect."""

    __slots__ = ("_base", "_position", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self._base = -1
        self._position = 0

    def read(self, log: UnifiedLog, upper: int) -> Iterator[Batch]:
        """The batches from the cursor on that end below `upper`."""
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
