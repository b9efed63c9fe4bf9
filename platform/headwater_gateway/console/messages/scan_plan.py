"""The offsets that a scan reads, and the order of the rows shown. Pure.

Offsets are no counts: compaction and transaction markers leave gaps. Newest first therefore reads
windows that grow, each forward, and its rows are merged from the back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.client.values import ConsumerRecord
from headwater_gateway.console.messages.jobs import Rendered
from headwater_gateway.console.offset_spans import Span

WINDOW_OFFSETS_MAX = 100_000
"""Of one window, over all partitions."""
FILTERED_WINDOW_OFFSETS = 4_000
GROWTH = 5
CHUNK_RECORDS_MAX = 2_000
CHUNK_BYTES_MAX = 8 * 1024 * 1024


def window(
    ends: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], offsets: int
) -> list[Span]:
    """The last offsets below `ends`, of all partitions together about `offsets`."""
    size = max(1, min(offsets, WINDOW_OFFSETS_MAX) // max(1, len(ends)))
    spans = (Span(p, max(bounds[p][0], end - size), end) for p, end in sorted(ends.items()))
    return [span for span in spans if span.end > span.start]


def newest_spans(
    ends: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], offsets: int
) -> list[Span]:
    """The last offsets of all partitions, `offsets` together: what a small one lacks, the others
    have more."""
    spans, left = [], offsets
    by_size = sorted(ends.items(), key=lambda item: item[1] - bounds[item[0]][0])
    for at, (partition, end) in enumerate(by_size):
        share = left // (len(by_size) - at)
        start = max(bounds[partition][0], end - share)
        spans.append(Span(partition, start, end))
        left -= end - start
    return sorted(spans, key=lambda span: span.partition)


def short_of(
    starts: Mapping[int, int],
    bounds: Mapping[int, tuple[int, int]],
    found: Iterable[Rendered],
    rows: int,
) -> dict[int, int]:
    """The partitions of a window that have fewer than `rows` rows so far, though offsets are left:
    a gap may hide newer rows than those of other partitions. By their starts."""
    counts = Counter(row.partition for row in found)
    return {p: at for p, at in starts.items() if at > bounds[p][0] and counts[p] < rows}


def newest_first(rows: Iterable[Rendered]) -> Iterator[Rendered]:
    """Rows of several partitions from the back: of the last ones of each, the one with the latest
    timestamp. Within a partition the order is that of offsets, whatever its timestamps are."""
    by_partition: dict[int, list[Rendered]] = {}
    for row in rows:
        by_partition.setdefault(row.partition, []).append(row)
    for found in by_partition.values():
        found.sort(key=lambda row: row.offset)
    heads = [(-found[-1].timestamp, partition) for partition, found in by_partition.items()]
    heapq.heapify(heads)
    while heads:
        _, partition = heapq.heappop(heads)
        found = by_partition[partition]
        yield found.pop()
        if found:
            heapq.heappush(heads, (-found[-1].timestamp, partition))


def chunks(records: Sequence[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Records in chunks that a worker takes at once."""
    chunk: list[ConsumerRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(chunk) >= CHUNK_RECORDS_MAX or size >= CHUNK_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def cursor_after(
    cursor: Mapping[int, int], records: Sequence[ConsumerRecord], last: Rendered | None
) -> dict[int, int]:
    """The first offsets of the next page, once `records` have been shown up to the row `last`;
    None: all of them."""
    moved = dict(cursor)
    for record in records:
        moved[record.partition] = record.offset + 1
        if last is not None and (record.partition, record.offset) == (last.partition, last.offset):
            break
    return moved


def cursor_before(
    spans: Sequence[Span], shown: Sequence[Rendered], *, is_whole: bool
) -> dict[int, int]:
    """The exclusive ends of the next page of newest first, once `shown` of a window has been shown.
    `is_whole`: all of the window."""
    if is_whole:
        return {span.partition: span.start for span in spans}
    ends = {span.partition: span.end for span in spans}
    for row in shown:
        ends[row.partition] = min(ends[row.partition], row.offset)
    return ends
