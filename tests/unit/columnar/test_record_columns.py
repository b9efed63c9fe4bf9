"""numpy decodes a batch's records as the loop in `headwater.records` does, errors included."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.columnar import record_columns
from headwater.records import record
from headwater.records.batch import HEADER_BYTES, BatchHeader, read_header
from headwater.records.builder import BatchBuilder
from headwater.records.varint import encode_varint

BLOBS = st.none() | st.binary(max_size=200) | st.integers(7900, 8300).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
TIMES = st.integers(-5, 10_000) | st.integers(0, 2**50)
ROWS = st.lists(st.tuples(TIMES, BLOBS, BLOBS, HEADERS), min_size=1, max_size=8)
Rows = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def payload_of(rows: Rows, base_offset: int = 1000) -> tuple[bytes, BatchHeader]:
    """The records of as many rows as numpy takes on."""
    builder = BatchBuilder()
    for number in range(max(len(rows), record_columns.ROWS_MIN)):
        builder.append(*rows[number % len(rows)])
    data = bytes(builder.build(base_offset=base_offset))
    return data[HEADER_BYTES:], read_header(data)


@given(ROWS, st.integers(0, 1300))
def test_any_records_are_decoded_alike(rows: Rows, start: int) -> None:
    payload, header = payload_of(rows)
    found = record_columns.decode_columns(payload, header, start)
    assert found == record.decode_columns(payload, header, start)
    assert {type(cell) for cell in (*found[0], *found[1])} <= {int}


def test_numpy_itself_decodes_what_is_usual() -> None:
    keyed: Rows = [
        (number * 7, b"k" * number, None if number % 3 else b"v", []) for number in range(90)
    ]
    headed: Rows = [(0, None, b"v" * 300, [("h", b"1"), ("h", None)]), (1, b"", b"", [])]
    for rows in (keyed, headed):
        payload, header = payload_of(rows)
        assert record_columns.columns_by_numpy(payload, header) == record.decode_columns(
            payload, header
        )


def test_the_log_append_time_is_the_time_of_each_record() -> None:
    payload, header = payload_of([(5, None, b"v", []), (9, None, b"v", [])])
    header = header._replace(attributes=header.attributes | 0x08, max_timestamp=77)
    assert set(record_columns.columns_by_numpy(payload, header)[1]) == {77}


@given(st.data())
def test_bad_records_raise_alike(data: st.DataObject) -> None:
    payload, header = payload_of([(0, b"key", b"v" * 70, [("h", b"1")]), (3, None, b"v", [])])
    at = data.draw(st.integers(0, len(payload) - 1))
    byte = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from((0, 1, 5)))
    bad = (payload[:at] + bytes((byte,)) + payload[at + 1 :])[: len(payload) - cut]
    outcomes: list[tuple[str, object]] = []
    for decode in (record.decode_columns, record_columns.decode_columns):
        try:
            outcomes.append(("columns", decode(bad, header, 0)))
        except (ValueError, IndexError) as error:
            outcomes.append((type(error).__name__, str(error)))
    assert outcomes[0] == outcomes[1]


def test_a_size_of_many_bytes_is_left_to_the_loop() -> None:
    payload, header = payload_of([(0, None, b"v", [])])
    endless = encode_varint(-(2**62)) + payload[1:]
    with pytest.raises(ValueError, match="record of"):
        record_columns.decode_columns(endless, header)


def test_the_headers_of_records_without_any_are_one_list_that_stays_empty() -> None:
    payload, header = payload_of([(0, None, b"v", [])])
    for decode in (record.decode_columns, record_columns.decode_columns):
        (first, *others) = decode(payload, header, 0)[4]
        assert first == [] and all(one is first for one in others)
        changes: tuple[Callable[[Any], object], ...] = (
            lambda rows: rows.append(("h", b"1")),
            lambda rows: rows.extend([("h", b"1")]),
            lambda rows: rows.insert(0, ("h", b"1")),
            lambda rows: rows.__iadd__([("h", b"1")]),
            lambda rows: rows.__setitem__(slice(0, 0), [("h", b"1")]),
        )
        for change in changes:
            with pytest.raises(TypeError, match="are shared: copy them"):
                change(first)
        assert pickle.loads(pickle.dumps(first)) == copy.deepcopy(first) == first == []
