"""Finds offsets by time and by size in the segments of a log."""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from headwater.records.batch import BatchHeader
from headwater.records.record import decode_batch
from headwater_broker.log.log_segment import LogSegment
from headwater_broker.log.results import TimestampAndOffset


class SegmentedLog(Protocol):
    """The segments of a log and its bounds."""

    segments: list[LogSegment]
    bases: list[int]
    log_end_offset: int
    local_log_start_offset: int

    def next_offset_of(self, index: int) -> int:
        """The end offset of segment number `index`."""
        ...


def offset_for_timestamp(
    log: SegmentedLog, timestamp: int, upper_offset: int
) -> TimestampAndOffset | None:
    """The first record in [local log start, upper) whose timestamp is >= `timestamp`."""
    for segment in log.segments:
        if segment.max_timestamp < timestamp:
            continue
        found = _in_segment(segment, timestamp, log.local_log_start_offset, upper_offset)
        if found is not None:
            return found
    return None


def _in_segment(
    segment: LogSegment, timestamp: int, start_offset: int, upper_offset: int
) -> TimestampAndOffset | None:
    from_offset = max(segment.time_index.floor(timestamp), start_offset)
    for position, header in segment.headers(segment.offset_index.floor(from_offset)):
        if header.base_offset >= upper_offset:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        found = _in_batch(segment, position, header, timestamp, start_offset, upper_offset)
        if found is not None:
            return found
    return None


def _in_batch(
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    timestamp: int,
    start_offset: int,
    upper_offset: int,
) -> TimestampAndOffset | None:
    is_whole = header.record_count == header.last_offset_delta + 1
    if (
        is_whole  # not compacted: the header has the timestamp of the first record
        and header.delete_horizon_ms is None
        and header.base_timestamp >= timestamp
        and header.base_offset >= start_offset
    ):
        stamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
        return TimestampAndOffset(header.base_offset, stamp, header.leader_epoch)
    view = segment.batch(position, header.size_bytes)
    for record in decode_batch(view, 0, header, start_offset):
        if record.timestamp >= timestamp and record.offset < upper_offset:
            return TimestampAndOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def max_timestamp_offset(log: SegmentedLog, upper_offset: int) -> TimestampAndOffset | None:
    """The first record below `upper_offset` with the largest timestamp of all."""
    largest = _largest_below(log, upper_offset)
    return offset_for_timestamp(log, largest, upper_offset) if largest >= 0 else None


def _largest_below(log: SegmentedLog, upper_offset: int) -> int:
    """The largest timestamp in whole batches of [local log start, upper).

    A segment is scanned only when its largest timestamp lies outside: the unreplicated tail is
    short, and one segment at most has the start.
    """
    start, largest = log.local_log_start_offset, -1
    for index, segment in enumerate(log.segments):
        if segment.base_offset >= upper_offset:
            break
        if segment.max_timestamp <= largest or log.next_offset_of(index) <= start:
            continue
        if start <= segment.max_timestamp_offset < upper_offset and segment.base_offset >= start:
            largest = segment.max_timestamp
            continue
        for position, header in segment.headers(segment.offset_index.floor(start)):
            if header.last_offset < start or header.max_timestamp <= largest:
                continue
            if header.last_offset >= upper_offset:
                break
            if header.base_offset >= start:
                largest = header.max_timestamp
                continue
            view = segment.batch(position, header.size_bytes)
            for record in decode_batch(view, 0, header, start):
                largest = max(largest, record.timestamp)
    return largest


def offset_at_bytes(log: SegmentedLog, start: int, max_bytes: int) -> int:
    """The end offset of the whole batches from `start` on within `max_bytes`, at least one batch.

    `start` itself when the log ends there. Sizes come from indexes and a short scan.
    """
    if start >= log.log_end_offset:
        return log.log_end_offset
    start = max(start, log.local_log_start_offset)
    left, end, is_first = max_bytes, start, True
    for index in range(bisect_right(log.bases, start) - 1, len(log.segments)):
        segment, following = log.segments[index], log.next_offset_of(index)
        found = segment.read(end, left, following, following, min_one=is_first)
        if found is None:
            continue
        if found.size_bytes == 0:
            return end
        stop = found.position + found.size_bytes
        if stop < segment.file.size_bytes:
            place = segment.locate(0, stop)
            return following if place is None else place.base_offset
        left, end, is_first = left - found.size_bytes, following, False
        if left <= 0:
            return end
    return end
