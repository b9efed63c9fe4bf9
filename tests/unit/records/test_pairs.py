"""The quick reader of keys and values says what the reader of whole records says."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import AT_CRC, HEADER_BYTES, compute_crc
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.records.pairs import Latest, fold_latest
from headwater.records.record import read_records

BLOBS = st.none() | st.binary(max_size=4) | st.binary(min_size=60, max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
ROWS = st.lists(st.tuples(BLOBS, BLOBS, HEADERS, st.integers(0, 10**6)), min_size=1, max_size=6)


def batch_of(
    rows: list[tuple[bytes | None, bytes | None]], base: int = 0, *, control: bool = False
) -> bytes:
    builder = BatchBuilder()
    for key, value in rows:
        builder.append(1000, key, value)
    return bytes(builder.build(base_offset=base, control=control))


def resealed(batch: bytearray) -> bytes:
    """With the CRC of what it holds now."""
    crc = compute_crc(memoryview(batch), 0, len(batch))
    struct.pack_into(">I", batch, AT_CRC, crc)
    return bytes(batch)


@given(st.lists(st.tuples(ROWS, st.sampled_from([0, 1, 2, 3, 4]), st.booleans()), max_size=5))
def test_it_agrees_with_the_reader_of_records(
    batches: list[tuple[list[tuple[bytes, bytes, list[tuple[str, bytes]], int]], int, bool]],
) -> None:
    log, end = b"", 0
    for rows, codec, control in batches:
        builder = BatchBuilder()
        for key, value, headers, later in rows:
            builder.append(1000 + later, key, value, headers)
        log += builder.build(compression=Compression(codec), base_offset=end, control=control)
        end += len(rows)
    wanted: Latest = {}
    count = 0
    for record in read_records(log):
        if record.key is not None:
            wanted.pop(record.key, None)
            wanted[record.key] = record.value
        count += 1
    found: Latest = {}
    assert fold_latest(log, found) == (end if batches else None, count)
    assert list(found.items()) == list(wanted.items())


def test_a_cut_off_last_batch_is_left_for_the_next_read() -> None:
    first, second = batch_of([(b"a", b"1")]), batch_of([(b"b", b"2")], 1)
    for cut in range(1, len(second)):
        latest: Latest = {}
        assert fold_latest(first + second[:cut], latest) == (1, 1)
        assert latest == {b"a": b"1"}
    assert fold_latest(first[:-1], {}) == (None, 0)


def test_a_flipped_bit_is_refused_by_the_offset_of_its_batch() -> None:
    batch = bytearray(batch_of([(b"a", b"1")], 7))
    batch[-3] ^= 1
    with pytest.raises(KafkaError, match="offset 7: CRC") as refused:
        fold_latest(bytes(batch), {})
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("at", range(HEADER_BYTES, HEADER_BYTES + 8))
@pytest.mark.parametrize("to", [0x00, 0x7F, 0x80, 0xFF])
def test_nonsense_behind_a_right_crc_is_refused_like_there(at: int, to: int) -> None:
    batch = bytearray(batch_of([(b"k", b"v")], 700))
    batch[at] = to
    nonsense = resealed(batch)
    latest: Latest = {}
    try:
        wanted = {record.key: record.value for record in read_records(nonsense)}
    except KafkaError:
        with pytest.raises(KafkaError, match="offset 700") as refused:
            fold_latest(nonsense, latest)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    else:
        fold_latest(nonsense, latest)
        assert latest == {key: value for key, value in wanted.items() if key is not None}


def test_a_batch_that_says_it_is_smaller_than_its_header_is_refused() -> None:
    batch = bytearray(batch_of([(b"a", b"1")], 7))
    struct.pack_into(">i", batch, 8, 20)
    with pytest.raises(KafkaError, match="offset 7: 32 bytes"):
        fold_latest(bytes(batch), {})


def test_an_old_format_is_named() -> None:
    batch = bytearray(batch_of([(b"a", b"1")], 7))
    batch[16] = 1
    with pytest.raises(KafkaError, match="magic 1") as refused:
        fold_latest(bytes(batch), {})
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
