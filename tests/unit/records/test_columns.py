"""A batch that is encoded as columns has the bytes of one that is encoded record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.records.batch import read_header
from headwater.records.builder import BatchBuilder
from headwater.records.columns import BatchColumns
from headwater.records.record import decode_columns, read_records

BLOBS = st.binary(max_size=200) | st.integers(7900, 8300).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
PLAIN = st.lists(st.tuples(st.integers(0, 9000), st.binary(max_size=200)), min_size=1)
ANY = st.lists(
    st.tuples(st.integers(-5, 10_000), st.none() | BLOBS, st.none() | BLOBS, HEADERS), min_size=1
)


def both(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    builder, columns = BatchBuilder(), BatchColumns()
    for index, row in enumerate(rows):
        assert builder.append(*row) == columns.append(*row) == index
    assert columns.builder().build() == builder.build()
    found = [tuple(record)[1:] for record in read_records(builder.build())]
    assert found == rows


@given(ANY)
def test_any_records_are_encoded_alike(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    both(rows)


@given(PLAIN, st.booleans())
def test_plain_records_are_encoded_alike(rows: list[tuple[int, bytes]], has_keys: bool) -> None:
    both([(time, value[:3] if has_keys else None, value, []) for time, value in rows])


@pytest.mark.parametrize("size", [0, 63, 64, 100])
@pytest.mark.parametrize("run", [8, 63, 64, 100])
def test_runs_of_one_size_and_time_are_encoded_alike(size: int, run: int) -> None:
    for count in {5, 63, 64, 65, 3 * run}:
        times = [1_000 + 70 * (n // run) for n in range(count)]
        both([(time, None, bytes([n % 251]) * size, []) for n, time in enumerate(times)])


def test_times_that_fall_within_a_batch_are_encoded_alike() -> None:
    both([(1_000 + n // 50 % 3, None, b"%3d" % (n % 999), []) for n in range(600)])


def test_more_records_than_the_table_has_varints_are_encoded_alike() -> None:
    both([(n, None, b"v", []) for n in range(9000)])


def test_reading_may_begin_within_a_batch() -> None:
    builder = BatchBuilder()
    for n in range(100):
        builder.append(n, b"%d" % n, b"v%d" % n)
    data = bytes(builder.build(base_offset=1000))
    header, payload = read_header(data), data[61:]
    whole = decode_columns(payload, header)
    assert whole[0] == list(range(1000, 1100))
    assert decode_columns(payload, header, 1070) == tuple(column[70:] for column in whole)
