"""Compacted batches as Arrow: empty batches, gaps, and timestamps that count from a delete
horizon."""

from __future__ import annotations

from headwater.columnar.decode import batches_to_arrow
from unit.log.compacting import batches, compact, compacted_log, records_batch, visible
from unit.log.harness import Box


def test_the_kernels_read_what_compaction_leaves() -> None:
    box = Box()
    log = compacted_log(box)
    for number in range(12):
        pairs = [(b"a", b"%d" % number), (b"t", None)]
        view = records_batch(pairs, 5000 + number, producer=(7, 0, 2 * number), codec=number % 5)
        log.append_as_leader(view, 0, 2000)
    log.append_as_leader(records_batch([(b"a", b"z"), (b"b", None)], 9000, codec=4), 0, 2000)
    log.roll(2000)
    compact(box)
    headers = [header for header, _ in batches(log)]
    assert 0 in [header.record_count for header in headers]
    assert any(header.delete_horizon_ms is not None for header in headers)
    data = b"".join(segment.file.read_at(0, 1 << 20) for segment in log.segments)
    table = batches_to_arrow(data, start_offset=0, end_offset=log.log_end_offset)
    rows = [
        (row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"])
        for row in table.to_pylist()
    ]
    assert rows == [(r.offset, r.timestamp, r.key, r.value) for r in visible(log)]
    assert len(rows) == 3
