"""Topic == table, provably: counts, an order-independent checksum, and the names of differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from headwater_tier.plan import TableLocation


@dataclass(frozen=True, slots=True)
class Digest:
    """Rows and checksum of a set of rows, in any order. Equal sets have equal digests.

    `checksum` is the sum modulo 2**64 of each row's 64-bit hash over partition, offset,
    timestamp in ms, key, value and headers (nulls differ from empty).
    """

    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition compared over [start_offset, end_offset); lists hold the first offsets only."""

    partition: int
    start_offset: int
    end_offset: int
    topic_digest: Digest
    table_digest: Digest
    missing: tuple[int, ...]
    doubled: tuple[int, ...]
    altered: tuple[int, ...]
    foreign: tuple[int, ...]
    """In the table but not in the topic."""

    @property
    def equal(self) -> bool:
        """True when nothing differs."""
        raise NotImplementedError


def digest(batches: Iterable[pa.RecordBatch], *, partition: int | None = None) -> Digest:
    """The digest of rows in the log table's or Kafka's columns (`headwater.columnar.schema`)."""
    raise NotImplementedError


def compare(
    partition: int,
    start_offset: int,
    end_offset: int,
    topic: Iterable[pa.RecordBatch],
    table: Iterable[pa.RecordBatch],
) -> PartitionReport:
    """Compare one partition's rows: `topic` in offset order, `table` in any order."""
    raise NotImplementedError


def table_rows(
    location: TableLocation, partition: int, start_offset: int, end_offset: int
) -> Iterable[pa.RecordBatch]:
    """The partition's live rows of the table, unchecked and in any order: what is really there."""
    raise NotImplementedError
