"""Batches that numpy and Arrow encode hold what the builder of records makes of the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.columnar.produce import produced_batches
from headwater.records.batch import read_header
from headwater.records.builder import BatchBuilder
from headwater.records.record import read_records

BLOB = st.none() | st.binary(max_size=90) | st.integers(8100, 8300).map(bytes)
ROWS = st.lists(st.tuples(BLOB, BLOB, st.integers(-(2**62), 2**62)), min_size=1, max_size=200)


@given(ROWS, st.sampled_from([100, 3000, 1 << 20]), st.booleans(), st.booleans())
def test_batches_are_those_of_the_builder(
    rows: list[tuple[bytes | None, bytes | None, int]], limit: int, has_keys: bool, has_times: bool
) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    built = list(
        produced_batches(
            key=pa.array(keys, pa.binary()) if has_keys else None,
            value=pa.array(values, pa.large_binary()),
            timestamps_ms=pa.array(times, pa.int64()) if has_times else 7,
            compression=None,
            batch_bytes_max=limit,
        )
    )
    at = 0
    for data, count in built:
        builder = BatchBuilder()
        for row in range(at, at + count):
            key = keys[row] if has_keys else None
            builder.append(times[row] if has_times else 7, key, values[row])
        assert data == builder.build()
        assert count == 1 or len(data) <= limit
        at += count
    assert at == len(rows)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, 8200])
@pytest.mark.parametrize("limit", [100, 9_000, 1 << 20])
def test_values_of_one_size_are_encoded_alike(size: int, limit: int) -> None:
    values = [bytes([n % 251]) * size for n in range(200 if size == 8200 else 9_000)]
    made = list(
        produced_batches(
            key=None,
            value=pa.array([b"other", *values], pa.binary()).slice(1),
            timestamps_ms=7,
            compression=None,
            batch_bytes_max=limit,
        )
    )
    at = 0
    for data, count in made:
        builder = BatchBuilder()
        for value in values[at : at + count]:
            builder.append(7, None, value)
        assert data == builder.build()
        assert count == 1 or len(data) <= limit
        at += count
    assert at == len(values)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_slices_of_text_are_encoded_and_compressed(codec: str) -> None:
    words = pa.array([f"w{n}" for n in range(100)], pa.string()).slice(10, 50)
    ((data, count),) = produced_batches(
        key=words, value=words, timestamps_ms=5, compression=codec, batch_bytes_max=1 << 20
    )
    assert read_header(data).compression
    found = [(r.offset, r.timestamp, r.key, r.value) for r in read_records(bytes(data))]
    assert found == [(n, 5, b"w%d" % (n + 10), b"w%d" % (n + 10)) for n in range(50)]
    assert count == 50


def test_no_rows_are_no_batches() -> None:
    empty = pa.array([], pa.binary())
    made = produced_batches(
        key=None, value=empty, timestamps_ms=5, compression=None, batch_bytes_max=100
    )
    assert list(made) == []
