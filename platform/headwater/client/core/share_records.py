"""Records that a ShareFetch response has acquired for this member. Pure.

A response holds whole batches; which of their offsets are this member's say its acquired ranges.
Acquired offsets without a record (compacted away, or control records) are gaps, and acknowledged as
such.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.client.share_values import ShareRecord
from headwater.records.batch import iter_headers
from headwater.records.record import check_batch, decode_batch


class AcquiredRange(NamedTuple):
    """Offsets, first to last, and how often they have been delivered."""

    first: int
    last: int
    delivery_count: int


class Acquired(NamedTuple):
    """One partition of one response: batches, and what is this member's of them."""

    topic: str
    partition: int
    records: memoryview
    ranges: tuple[AcquiredRange, ...]

    @property
    def offsets(self) -> int:
        """Acquired offsets, gaps included."""
        return sum(r.last - r.first + 1 for r in self.ranges)


class Decoded(NamedTuple):
    """The offsets of an Acquired: those with records, and the others as (first, last)."""

    records: list[ShareRecord]
    gaps: list[tuple[int, int]]
    unread: list[tuple[int, int]]
    """Behind the last whole batch: the response ends before them."""


def decode_acquired(acquired: Acquired, *, check_crcs: bool) -> Decoded:
    """The records in order, and what is none. Raises KafkaError for a batch that cannot be read."""
    ranges = sorted(acquired.ranges)
    rows: list[ShareRecord] = []
    view, at, end = acquired.records, 0, -1
    for start, header in iter_headers(view):
        end = header.last_offset
        while at < len(ranges) and ranges[at].last < header.base_offset:
            at += 1
        if at == len(ranges):
            break
        if header.is_control or ranges[at].first > header.last_offset:
            continue
        if check_crcs:
            check_batch(view, start, header)
        kind = 1 if header.is_log_append_time else 0
        inside = at
        for offset, timestamp, key, value, headers in decode_batch(view, start, header):
            while inside < len(ranges) and ranges[inside].last < offset:
                inside += 1
            if inside == len(ranges):
                break
            if offset < ranges[inside].first:
                continue
            record = ShareRecord(
                acquired.topic,
                acquired.partition,
                offset,
                timestamp,
                kind,
                key,
                value,
                headers,
                header.leader_epoch,
            )
            record.delivery_count = ranges[inside].delivery_count
            rows.append(record)
    without = _without_record(ranges, [row.offset for row in rows])
    gaps = [(first, min(last, end)) for first, last in without if first <= end]
    unread = [(max(first, end + 1), last) for first, last in without if last > end]
    return Decoded(rows, gaps, unread)


def _without_record(
    ranges: Sequence[AcquiredRange], offsets: Sequence[int]
) -> list[tuple[int, int]]:
    """The offsets of the ranges that no record has."""
    gaps: list[tuple[int, int]] = []
    at = 0
    for first, last, _ in ranges:
        expected = first
        while at < len(offsets) and offsets[at] <= last:
            if offsets[at] > expected:
                gaps.append((expected, offsets[at] - 1))
            expected = offsets[at] + 1
            at += 1
        if expected <= last:
            gaps.append((expected, last))
    return gaps
