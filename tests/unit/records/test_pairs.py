"""The fast reader of keys and values agrees with the reader of whole records."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import AT_CRC, HEADER_BYTES, compute_crc, patch_base_offset
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.records.control import ControlType, build_marker
from headwater.records.pairs import LatestRecords
from headwater.records.record import read_records

BLOBS = st.none() | st.binary(max_size=4) | st.binary(min_size=60, max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
ROWS = st.lists(st.tuples(BLOBS, BLOBS, HEADERS, st.integers(0, 10**6)), min_size=1, max_size=6)


def batch_of(
    rows: list[tuple[bytes | None, bytes | None]], base: int = 0, **producer: Any
) -> bytes:
    builder = BatchBuilder()
    for key, value in rows:
        builder.append(1000, key, value)
    return bytes(builder.build(base_offset=base, **producer))


def latest_of(*batches: bytes) -> LatestRecords:
    latest = LatestRecords()
    for batch in batches:
        latest.add(batch)
    return latest


def values_of(latest: LatestRecords) -> dict[bytes, bytes | None]:
    return {key: value for key, (_, value) in latest.rows.items()}


def resealed(batch: bytearray) -> bytes:
    """The batch with a new CRC."""
    crc = compute_crc(memoryview(batch), 0, len(batch))
    struct.pack_into(">I", batch, AT_CRC, crc)
    return bytes(batch)


@given(st.lists(st.tuples(ROWS, st.sampled_from([0, 1, 2, 3, 4])), max_size=5))
def test_it_agrees_with_the_reader_of_records(
    batches: list[tuple[list[tuple[bytes, bytes, list[tuple[str, bytes]], int]], int]],
) -> None:
    log, end = b"", 0
    for rows, codec in batches:
        builder = BatchBuilder()
        for key, value, headers, later in rows:
            builder.append(1000 + later, key, value, headers)
        log += builder.build(compression=Compression(codec), base_offset=end)
        end += len(rows)
    wanted: dict[bytes, tuple[int, bytes | None]] = {}
    count = 0
    for record in read_records(log):
        if record.key is not None:
            wanted.pop(record.key, None)
            wanted[record.key] = (record.offset, record.value)
        count += 1
    found = LatestRecords()
    assert found.add(log) == (end if batches else None, count)
    assert list(found.rows.items()) == list(wanted.items())


def test_a_cut_off_last_batch_is_left_for_the_next_read() -> None:
    first, second = batch_of([(b"a", b"1")]), batch_of([(b"b", b"2")], 1)
    for cut in range(1, len(second)):
        latest = LatestRecords()
        assert latest.add(first + second[:cut]) == (1, 1)
        assert values_of(latest) == {b"a": b"1"}
    assert LatestRecords().add(first[:-1]) == (None, 0)


def written(base: int, *rows: tuple[bytes, bytes | None], pid: int = 7, epoch: int = 0) -> bytes:
    """Records of an open transaction."""
    return batch_of(list(rows), base, producer_id=pid, producer_epoch=epoch, transactional=True)


def marker(base: int, kind: ControlType, pid: int = 7, epoch: int = 0) -> bytes:
    batch = build_marker(
        kind, producer_id=pid, producer_epoch=epoch, coordinator_epoch=1, timestamp=1000
    )
    patch_base_offset(memoryview(batch), 0, base, 0)
    return resealed(batch)


def test_a_transaction_counts_from_its_commit_on() -> None:
    latest = latest_of(written(0, (b"a", b"1"), (b"b", b"2")))
    assert values_of(latest) == {}
    assert list(latest.pending()) == [(7, 0, b"a", 0, b"1"), (7, 0, b"b", 1, b"2")]
    assert latest.add(marker(2, ControlType.COMMIT, epoch=1)) == (3, 0)
    assert latest.rows == {b"a": (0, b"1"), b"b": (1, b"2")}
    assert list(latest.pending()) == []


def test_an_aborted_transaction_never_counts() -> None:
    latest = latest_of(
        batch_of([(b"a", b"old")]),
        written(1, (b"a", b"1")),
        written(2, (b"b", b"2"), pid=8),
        marker(3, ControlType.ABORT),
    )
    assert values_of(latest) == {b"a": b"old"}
    assert [key for _, _, key, _, _ in latest.pending()] == [b"b"], "another producer's stays open"
    latest.add(written(4, (b"a", b"next")) + marker(5, ControlType.COMMIT))
    assert values_of(latest) == {b"a": b"next"}


def test_the_higher_offset_wins_whenever_the_marker_comes() -> None:
    first, second = written(0, (b"a", b"first")), written(1, (b"a", b"second"), pid=8)
    plain, commit = batch_of([(b"a", b"plain")], 2), ControlType.COMMIT
    latest = latest_of(first, second, marker(2, commit, pid=8), marker(3, commit))
    assert latest.rows == {b"a": (1, b"second")}
    latest = latest_of(first, second, plain)
    assert [at for *_, at, _ in latest.pending()] == [0, 1], "neither wins, both are open"
    latest.add(marker(3, commit) + marker(4, commit, pid=8))
    assert latest.rows == {b"a": (2, b"plain")}
    latest = latest_of(first, batch_of([(b"a", None)], 1), marker(2, commit))
    assert latest.rows == {b"a": (1, None)}, "a tombstone, too"


def test_control_records_of_other_kinds_end_nothing() -> None:
    other = batch_of([(b"\0\0\0\x09", b"")], 1, producer_id=7, producer_epoch=0, control=True)
    latest = latest_of(written(0, (b"a", b"1")), other)
    assert [key for _, _, key, _, _ in latest.pending()] == [b"a"]
    emptied = bytearray(marker(2, ControlType.COMMIT))[:HEADER_BYTES]
    struct.pack_into(">i", emptied, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", emptied, 57, 0)
    assert latest.add(resealed(emptied)) == (3, 0), "what compaction leaves of a marker"


def test_a_flipped_bit_is_refused_by_the_offset_of_its_batch() -> None:
    batch = bytearray(batch_of([(b"a", b"1")], 7))
    batch[-3] ^= 1
    with pytest.raises(KafkaError, match="offset 7: CRC") as refused:
        LatestRecords().add(bytes(batch))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("at", range(HEADER_BYTES, HEADER_BYTES + 8))
@pytest.mark.parametrize("to", [0x00, 0x7F, 0x80, 0xFF])
def test_nonsense_behind_a_right_crc_is_refused_like_there(at: int, to: int) -> None:
    batch = bytearray(batch_of([(b"k", b"v")], 700))
    batch[at] = to
    nonsense = resealed(batch)
    latest = LatestRecords()
    try:
        wanted = {record.key: record.value for record in read_records(nonsense)}
    except KafkaError:
        with pytest.raises(KafkaError, match="offset 700") as refused:
            latest.add(nonsense)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    else:
        latest.add(nonsense)
        assert values_of(latest) == {k: v for k, v in wanted.items() if k is not None}


def test_a_batch_that_says_it_is_smaller_than_its_header_is_refused() -> None:
    batch = bytearray(batch_of([(b"a", b"1")], 7))
    struct.pack_into(">i", batch, 8, 20)
    with pytest.raises(KafkaError, match="offset 7: 32 bytes"):
        LatestRecords().add(bytes(batch))


def test_an_old_format_is_named() -> None:
    batch = bytearray(batch_of([(b"a", b"1")], 7))
    batch[16] = 1
    with pytest.raises(KafkaError, match="magic 1") as refused:
        LatestRecords().add(bytes(batch))
    assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
