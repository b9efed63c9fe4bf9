"""Record batches to Arrow, with the plain Python codec as oracle."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.columnar.decode import (
    CorruptRecordsError,
    batches_to_arrow,
    decode_batches,
    warm_up,
)
from headwater.columnar.schema import KAFKA_SCHEMA, LOG_TABLE_COLUMNS, LOG_TABLE_SCHEMA
from headwater.records.batch import patch_append_time, patch_base_offset
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.records.control import ControlType, build_marker
from headwater.records.record import read_records

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BLOB = st.none() | st.binary(max_size=200)
HEADER = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20))
TIMES = st.integers(-1, 1 << 42) | st.sampled_from([-1, 0, 253402300800000, 9223372036854775])
RECORD = st.tuples(TIMES, BLOB, BLOB, st.lists(HEADER, max_size=3))
RECORDS = st.lists(RECORD, min_size=1, max_size=40)


def batch_at(base: int, records: Any, compression: int = 0, epoch: int = 0, **more: Any) -> bytes:
    builder = BatchBuilder()
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    data = bytearray(builder.build(compression=Compression(compression), **more))
    patch_base_offset(memoryview(data), 0, base, epoch)
    return bytes(data)


def rows_of(data: bytes, **given_: Any) -> list[dict[str, Any]]:
    span: dict[str, Any] = {"start_offset": 0, "end_offset": 1 << 62, **given_}
    return list(batches_to_arrow(data, **span).to_pylist())


@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from(range(5)))
@SLOW
def test_equals_the_python_codec(groups: Any, codec: int) -> None:
    data, base = b"", 7
    for group in groups:
        data += batch_at(base, group, codec)
        base += len(group) + 3
    arrow = batches_to_arrow(
        data, start_offset=0, end_offset=base, topic="t", partition=4, columns=LOG_TABLE_COLUMNS
    )
    assert arrow.schema.names == list(LOG_TABLE_COLUMNS)
    arrow.validate(full=True)
    times = arrow.column("timestamp").cast("int64").to_pylist()
    offsets = arrow.column("offset").to_pylist()
    keys, values = arrow.column("key").to_pylist(), arrow.column("value").to_pylist()
    headers = arrow.column("headers").to_pylist()
    expected = list(read_records(data))
    assert len(expected) == arrow.num_rows
    for i, record in enumerate(expected):
        assert (offsets[i], keys[i], values[i]) == (record.offset, record.key, record.value)
        assert times[i] == record.timestamp * 1000
        pairs = None if not headers[i] else [(h["key"], h["value"]) for h in headers[i]]
        assert pairs == (list(record.headers) or None)


def test_schema_is_sparks() -> None:
    data = batch_at(0, [(5, b"k", b"v", [])])
    arrow = batches_to_arrow(data, start_offset=0, end_offset=1, topic="t", partition=3)
    assert arrow.schema == KAFKA_SCHEMA
    row = arrow.to_pylist()[0]
    assert (row["topic"], row["partition"], row["timestampType"], row["headers"]) == (
        "t",
        3,
        0,
        None,
    )
    empty = batches_to_arrow(b"", start_offset=0, end_offset=1)
    assert empty.schema == KAFKA_SCHEMA and empty.num_rows == 0


def test_offsets_outside_are_cut_and_next_offset_is_told() -> None:
    data = batch_at(10, [(1, b"k", bytes([i]), []) for i in range(10)])
    decoded = decode_batches(data, start_offset=13, end_offset=17)
    assert decoded.chunks[0].column("offset").to_pylist() == [13, 14, 15, 16]
    assert decoded.next_offset == 17
    assert decode_batches(data, start_offset=13, end_offset=99).next_offset == 20
    assert decode_batches(data[:-1], start_offset=13, end_offset=99).next_offset == 13
    assert decode_batches(data + data[:40], start_offset=13, end_offset=99).next_offset == 20


def test_append_time_is_the_batchs_for_all() -> None:
    data = bytearray(batch_at(0, [(1, None, b"a", []), (2, None, b"b", [])]))
    patch_append_time(memoryview(data), 0, len(data), 777)
    arrow = batches_to_arrow(data, start_offset=0, end_offset=9)
    assert arrow.column("timestampType").to_pylist() == [1, 1]
    assert arrow.column("timestamp").cast("int64").to_pylist() == [777000, 777000]


def test_control_and_aborted_batches_are_skipped() -> None:
    def of(base: int, pid: int, value: bytes) -> bytes:
        return batch_at(
            base, [(1, None, value, [])], producer_id=pid, producer_epoch=0, base_sequence=0,
            transactional=True,
        )  # fmt: skip

    def marker(base: int, pid: int, kind: ControlType) -> bytes:
        data = build_marker(
            kind, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        patch_base_offset(memoryview(data), 0, base, 0)
        return bytes(data)

    data = (
        of(0, 5, b"aborted") + of(1, 6, b"kept") + marker(2, 5, ControlType.ABORT)
        + of(3, 5, b"second") + marker(4, 5, ControlType.COMMIT) + marker(5, 6, ControlType.COMMIT)
    )  # fmt: skip
    decoded = decode_batches(data, start_offset=0, end_offset=99, aborted=[(5, 0)])
    assert [v for c in decoded.chunks for v in c.column("value").to_pylist()] == [
        b"kept",
        b"second",
    ]
    assert decoded.next_offset == 6
    assert [r["value"] for r in rows_of(data)] == [b"aborted", b"kept", b"second"]


def test_only_the_columns_asked_for() -> None:
    data = batch_at(0, [(1, b"k", b"v", [("h", b"1")])])
    arrow = batches_to_arrow(data, start_offset=0, end_offset=1, columns=["value"])
    assert arrow.to_pydict() == {"value": [b"v"]}
    with pytest.raises(ValueError, match="unknown columns"):
        batches_to_arrow(data, start_offset=0, end_offset=1, columns=["values"])


def test_headers_whose_keys_are_not_utf8() -> None:
    data = bytearray(batch_at(0, [(1, None, b"v", [("aaa", b"1")]), (1, None, b"w", [])]))
    at = data.index(b"aaa")
    data[at] = 0xFF
    span = {"start_offset": 0, "end_offset": 9, "check_crc": False}
    assert batches_to_arrow(data, columns=["headers"], **span).to_pydict() == {
        "headers": [[{"key": "?aa", "value": b"1"}], None]
    }
    raw = batches_to_arrow(data, columns=["headers", "headers_raw"], **span).to_pydict()
    assert raw == {"headers": [None, None], "headers_raw": [b"\x02\x06\xffaa\x021", None]}


@pytest.mark.parametrize("timestamp", [9223372036854776, -9223372036854776, (1 << 63) - 1])
def test_timestamps_beyond_microseconds_stay_whole(timestamp: int) -> None:
    data = batch_at(0, [(timestamp, None, b"v", []), (timestamp, None, b"w", [])])
    columns = ["timestamp", "timestamp_raw"]
    arrow = batches_to_arrow(data, start_offset=0, end_offset=9, columns=columns)
    assert arrow.column("timestamp").null_count == 2
    assert arrow.column("timestamp_raw").to_pylist() == [timestamp, timestamp]


def test_corruption_is_named() -> None:
    data = bytearray(batch_at(40, [(1, b"k", b"v" * 20, [])]))
    data[-3] ^= 1
    with pytest.raises(CorruptRecordsError, match="offset 40 has CRC"):
        rows_of(bytes(data))
    data[16] = 1
    with pytest.raises(CorruptRecordsError, match="not of format v2"):
        rows_of(bytes(data))
    data[16] = 2
    data[8:12] = struct.pack(">i", 3)
    with pytest.raises(CorruptRecordsError, match="too small"):
        rows_of(bytes(data))


@given(st.integers(61, 200), st.integers(0, 255), st.sampled_from([0, 0, 3]))
@SLOW
def test_no_flipped_byte_reads_out_of_bounds(at: int, value: int, codec: int) -> None:
    records = [(1, b"key", b"v" * 9, [("h", b"x")]) for _ in range(6)]
    data = bytearray(batch_at(0, records, codec))
    data[min(at, len(data) - 1)] = value
    try:
        batches_to_arrow(
            data, start_offset=0, end_offset=99, columns=LOG_TABLE_COLUMNS, check_crc=False
        ).validate(full=True)
    except CorruptRecordsError:
        pass


def test_a_count_that_cannot_be_is_refused() -> None:
    data = bytearray(batch_at(0, [(1, b"k", b"v", [])]))
    data[57:61] = struct.pack(">i", 1 << 30)
    with pytest.raises(CorruptRecordsError, match="more records"):
        batches_to_arrow(data, start_offset=0, end_offset=9, check_crc=False)
    data[57:61] = struct.pack(">i", 2)
    with pytest.raises(CorruptRecordsError):
        batches_to_arrow(data, start_offset=0, end_offset=9, check_crc=False)


@pytest.mark.parametrize("codec", [0, 4])
def test_chunks_stay_below_their_limit(codec: int) -> None:
    data = b"".join(batch_at(i * 5, [(1, None, bytes(50), [])] * 5, codec) for i in range(20))
    decoded = decode_batches(data, start_offset=0, end_offset=100, chunk_bytes_max=700)
    assert len(decoded.chunks) > 5
    assert [o for c in decoded.chunks for o in c.column("offset").to_pylist()] == list(range(100))


def test_warm_up_runs_and_log_schema_has_not_null_keys() -> None:
    warm_up()
    assert not LOG_TABLE_SCHEMA.field("offset").nullable
