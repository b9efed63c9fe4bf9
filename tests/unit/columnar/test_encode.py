"""Arrow to record batches: tiered history is restored; produced rows are read back as sent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.columnar.decode import batches_to_arrow
from headwater.columnar.encode import EncodedBatch, arrow_to_batches, encode_rows, warm_up
from headwater.columnar.schema import HEADERS, LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater.records.batch import compute_crc, read_header
from headwater.records.record import read_records

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BLOB = st.none() | st.binary(max_size=120)
HEADER = st.fixed_dictionaries(
    {"key": st.text(max_size=6), "value": st.none() | st.binary(max_size=9)}
)
HEADER_LIST = st.none() | st.lists(HEADER, min_size=1, max_size=3)
ROW = st.tuples(
    st.integers(1, 5),  # step from the row before
    st.sampled_from([-1, 0, 5, 1700000000000]),
    st.integers(0, 1),
    BLOB,
    BLOB,
    HEADER_LIST,
    st.integers(0, 1),
)


def log_rows(rows: Any, start: int = 0) -> pa.RecordBatch:
    out = []
    offset = start - 1
    for step, time_ms, kind, key, value, headers, epoch in rows:
        offset += step
        out.append(
            {
                "partition": 2, "offset": offset, "timestamp": time_ms * 1000,
                "timestamp_type": kind, "key": key, "value": value, "headers": headers,
                "leader_epoch": epoch, "timestamp_raw": None, "headers_raw": None,
            }
        )  # fmt: skip
    times = pa.array([row.pop("timestamp") for row in out], pa.int64())
    plain = pa.RecordBatch.from_pylist(
        out, schema=LOG_TABLE_SCHEMA.remove(LOG_TABLE_SCHEMA.get_field_index("timestamp"))
    )
    arrays = {name: plain.column(name) for name in plain.schema.names}
    arrays["timestamp"] = times.view(LOG_TABLE_SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays(
        [arrays[name] for name in LOG_TABLE_COLUMNS], schema=LOG_TABLE_SCHEMA
    )


def check_cover(batches: list[EncodedBatch], start: int, end: int) -> bytes:
    at = start
    for batch in batches:
        header = read_header(batch.data)
        assert header.crc == compute_crc(batch.data, 0, len(batch.data))
        assert header.size_bytes == len(batch.data)
        assert (header.base_offset, header.next_offset) == (batch.base_offset, batch.next_offset)
        assert header.record_count == batch.record_count
        assert header.base_offset == at
        at = header.next_offset
    assert at == end
    return b"".join(bytes(batch.data) for batch in batches)


@given(
    st.lists(ROW, max_size=40), st.integers(0, 3), st.integers(1, 4), st.sampled_from([100, 900])
)
@SLOW
def test_rebuilt_history_is_what_it_was(rows: Any, lead: int, tail: int, size: int) -> None:
    arrow = log_rows(rows, start=50)
    last = arrow.column("offset")[-1].as_py() if rows else 50
    start, end = 50 - lead, last + tail
    batches = arrow_to_batches(arrow, start_offset=start, end_offset=end, batch_bytes_max=size)
    data = check_cover(batches, start, end)
    back = batches_to_arrow(
        data, start_offset=start, end_offset=end, partition=2, columns=LOG_TABLE_COLUMNS
    )
    assert back.cast(LOG_TABLE_SCHEMA).equals(arrow)


def test_rows_of_a_slice_and_of_gaps_wider_than_a_batch() -> None:
    rows = [(1, 7, 0, b"k", b"a", None, 3), (1 << 33, 8, 0, None, b"", None, 3)]
    arrow = log_rows([(1, 1, 0, b"x", b"y", None, 0), *rows]).slice(1)
    end = (1 << 33) + 2 + (1 << 32)
    data = check_cover(arrow_to_batches(arrow, start_offset=0, end_offset=end), 0, end)
    assert [(r.offset, r.key, r.value) for r in read_records(data)] == [
        (1, b"k", b"a"),
        (1 + (1 << 33), None, b""),
    ]


def test_a_wide_gap_is_in_batches_without_records() -> None:
    """Members of a share group would have to acknowledge each offset of a batch with records."""
    wide = 100_000_000
    arrow = log_rows([(1, 7, 0, None, b"a", None, 3), (wide, 8, 0, None, b"b", None, 3)])
    end = 2 * wide
    start = int(arrow.column("offset")[0].as_py())
    second = int(arrow.column("offset")[1].as_py())
    assert second - start >= wide - 1
    batches = arrow_to_batches(arrow, start_offset=start, end_offset=end)
    check_cover(batches, start, end)
    found = [(b.base_offset, b.next_offset, b.record_count) for b in batches]
    assert found == [
        (start, start + 1, 1), (start + 1, second, 0), (second, second + 1, 1),
        (second + 1, end, 0),
    ]  # fmt: skip


def test_thousands_of_wide_gaps_are_passed_part_by_part() -> None:
    count, step = 2_000, 3_000_000
    arrow = log_rows([(step, 7, 0, None, b"a", None, 3)] * count, start=1 - step)
    end = (count - 1) * step + 1
    batches = arrow_to_batches(arrow, start_offset=0, end_offset=end)
    check_cover(batches, 0, end)
    assert [b.first_row for b in batches if b.record_count] == list(range(count))


def test_raw_headers_and_raw_timestamps_come_back() -> None:
    arrow = log_rows([(1, 5, 0, None, b"v", None, 0)] * 2)
    arrow = arrow.set_column(
        8, LOG_TABLE_SCHEMA.field("timestamp_raw"), pa.array([None, (1 << 63) - 1], pa.int64())
    )
    raw = b"\x02\x06\xffaa\x021"
    arrow = arrow.set_column(
        9, LOG_TABLE_SCHEMA.field("headers_raw"), pa.array([raw, None], pa.binary())
    )
    batches = arrow_to_batches(arrow, start_offset=0, end_offset=2)
    back = batches_to_arrow(
        check_cover(batches, 0, 2), start_offset=0, end_offset=2, columns=LOG_TABLE_COLUMNS
    )
    assert back.column("timestamp_raw").to_pylist() == [None, (1 << 63) - 1]
    assert back.column("headers_raw").to_pylist() == [raw, None]


def test_rows_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match="not within"):
        arrow_to_batches(log_rows([(1, 1, 0, None, None, None, 0)]), start_offset=1, end_offset=2)


@given(
    st.lists(st.tuples(BLOB, BLOB, HEADER_LIST), min_size=1, max_size=30),
    st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"]),
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.integers(70, 500),
)
@SLOW
def test_produced_rows_read_back(rows: Any, codec: str | None, kind: Any, size: int) -> None:
    sequence = (1 << 31) - 3
    batches = encode_rows(
        key=pa.array([r[0] for r in rows], kind),
        value=pa.array([r[1] for r in rows], kind),
        headers=pa.array([r[2] for r in rows], HEADERS),
        timestamps_ms=1234,
        compression=codec,
        batch_bytes_max=size,
        producer_id=9,
        producer_epoch=1,
        base_sequence=sequence,
        transactional=True,
    )
    got = []
    for batch in batches:
        header = read_header(batch.data)
        assert header.crc == compute_crc(batch.data, 0, len(batch.data))
        assert (header.base_offset, header.producer_id, header.producer_epoch) == (0, 9, 1)
        assert header.base_sequence == (sequence + len(got)) % (1 << 31)
        assert batch.first_row == len(got)
        assert header.is_transactional and header.max_timestamp == 1234
        got += [(r.key, r.value, list(r.headers)) for r in read_records(batch.data)]
    assert got == [
        (k, v, [(h["key"], h["value"]) for h in headers or []]) for k, v, headers in rows
    ]


def test_strings_chunks_absent_columns_and_row_limit() -> None:
    value = pa.chunked_array([["a", "b"], ["c", None]])
    batches = encode_rows(
        key=None, value=value, timestamps_ms=pa.array([3, 1, 2, None]), rows_max=3
    )
    records = [r for b in batches for r in read_records(b.data)]
    assert [r.value for r in records] == [b"a", b"b", b"c", None]
    assert [r.timestamp for r in records] == [3, 1, 2, -1]
    assert [b.max_timestamp for b in batches] == [3, -1]
    assert encode_rows(key=None, value=None, timestamps_ms=1) == []
    warm_up()
