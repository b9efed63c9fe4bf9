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


def test_records_have_the_time_that_was_read_in_their_millisecond() -> None:
    columns = BatchColumns()
    for index, now_s in enumerate([5.0001, 5.0004, 5.0012, 5.0011, 5.01]):
        if now_s >= columns.until_s:
            columns.tick(index, now_s)
        columns.values.append(b"v")
    columns.append(77, None, b"v")
    columns.tick(6, 5.02)
    columns.values.append(b"v")
    times = [record.timestamp for record in read_records(bytes(columns.builder().build()))]
    assert times == [5000, 5000, 5001, 5001, 5010, 77, 5020]


def test_a_time_whose_record_was_not_added_is_forgotten() -> None:
    columns = BatchColumns()
    for index in range(20):
        columns.stamp(index, 5)
        columns.stamp(index, 6 + index // 10)
        columns.values.append(b"v")
    columns.stamp(20, 9)
    times = [record.timestamp for record in read_records(bytes(columns.builder().build()))]
    assert times == [6] * 10 + [7] * 10


def test_the_only_record_has_its_own_time() -> None:
    columns = BatchColumns()
    columns.append(5, b"k", b"v")
    assert columns.single() == (5, b"k", b"v")
    columns.stamp(1, 9)
    assert columns.single() == (5, b"k", b"v")
