"""The aborted transactions in a response to a read_committed fetch, from the segments' indexes.

`UnifiedLog.last_stable_offset` is how far such a fetch reads.
"""

from __future__ import annotations

from bisect import bisect_right

from headwater_broker.log.offset_lookup import SegmentedLog
from headwater_broker.log.results import LogSlice
from headwater_broker.log.transaction_index import AbortedTransaction


def overlapping(log: SegmentedLog, start: int, upper: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of aborted transactions that overlap [start, upper), by first
    offset."""
    found: list[AbortedTransaction] = []
    segments = log.segments
    for at in range(max(bisect_right(log.bases, start) - 1, 0), len(segments)):
        index = segments[at].txn_index
        if not index.is_empty and index.collect(start, upper, found):
            break
    return sorted(((a.producer_id, a.first_offset) for a in found), key=lambda pair: pair[1])


def in_slice(log: SegmentedLog, start: int, part: LogSlice, stable: int) -> list[tuple[int, int]]:
    """As `overlapping` for the records of a slice that was read from `start` on, below
    the last stable offset `stable`. The offset index bounds where the slice ends: an index of
    thousands of aborted transactions must not be sent with each of its slices."""
    at = max(bisect_right(log.bases, part.first_offset) - 1, 0)
    segment, upper = log.segments[at], log.next_offset_of(at)
    end = part.position + part.size_bytes
    if segment.file is not part.file:
        upper = stable
    elif end < segment.file.size_bytes:
        upper = segment.offset_index.ceiling_offset(end) or upper
    return overlapping(log, start, min(upper, stable))
