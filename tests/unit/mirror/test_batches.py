"""Batches on their way: which pass as they are, which are rebuilt, which are left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode, KafkaError
from headwater.mirror.core.batches import Piece, pieces_of
from headwater.mirror.core.offset_translation import Run
from headwater.records.batch import (
    HEADER_BYTES,
    patch_append_time,
    patch_base_offset,
    read_header,
)
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.records.control import ControlType, build_marker
from headwater.records.filter import payload_of, rebuild, spans
from headwater.records.record import check_batch, decode_batch

Rows = list[tuple[int, bytes | None, bytes | None]]


def batch(
    base: int,
    *values: bytes,
    codec: int = Compression.NONE,
    producer_id: int = -1,
    transactional: bool = False,
) -> bytearray:
    builder = BatchBuilder()
    for n, value in enumerate(values):
        builder.append(1000 + n, b"k", value, [("h", None)])
    return builder.build(
        compression=codec, base_offset=base, leader_epoch=7, producer_id=producer_id,
        producer_epoch=0, base_sequence=3, transactional=transactional,
    )  # fmt: skip


def marker(offset: int, kind: ControlType, producer_id: int) -> bytearray:
    made = build_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    patch_base_offset(memoryview(made), 0, offset, 7)
    return made


def pieces(
    log: bytes | bytearray, start: int = 0, aborted: tuple[int, int] | None = None
) -> list[Piece]:
    return list(pieces_of(memoryview(log), start, [] if aborted is None else [aborted]))


def rows(stamped: bytearray) -> Rows:
    view = memoryview(stamped)
    header = read_header(view)
    check_batch(view, 0, header)
    return [(r.timestamp, r.key, r.value) for r in decode_batch(view, 0, header)]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_passes_with_the_same_payload_and_another_producer(codec: Compression) -> None:
    original = batch(40, *[b"value"] * 50, codec=codec)
    (piece,) = pieces(original)
    stamped = piece.stamped(11, 2, 99)
    header = read_header(stamped)
    assert stamped[HEADER_BYTES:] == original[HEADER_BYTES:]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 99)
    assert (header.base_offset, header.leader_epoch, header.is_transactional) == (0, -1, True)
    assert header.compression == codec
    assert rows(stamped) == rows(original)
    assert (piece.next_offset, piece.records, piece.leader_epoch) == (90, 50, 7)
    assert piece.runs(1000) == [Run(40, 1000, 50)]


def test_markers_and_aborted_transactions_give_a_position_only() -> None:
    log = (
        batch(0, b"open", producer_id=5, transactional=True)
        + batch(1, b"plain")
        + batch(2, b"kept", producer_id=6, transactional=True)
        + marker(3, ControlType.ABORT, 5)
        + marker(4, ControlType.COMMIT, 6)
        + batch(5, b"later", producer_id=5, transactional=True)
    )
    found = pieces(log, aborted=(5, 0))
    assert [p.next_offset for p in found] == [1, 2, 3, 4, 5, 6]
    assert [p.records for p in found] == [0, 1, 1, 0, 0, 1]


def compacted(original: bytearray, kept: list[int], horizon: int | None = None) -> bytearray:
    view = memoryview(original)
    header, payload = read_header(view), payload_of(view)
    records = spans(payload, header)
    return rebuild(header, payload, [records[n] for n in kept], horizon)


@given(st.sets(st.integers(0, 9), min_size=1), st.integers(0, 12), st.sampled_from(Compression))
def test_a_compacted_batch_is_rebuilt_and_each_record_keeps_its_place(
    kept: set[int], start: int, codec: Compression
) -> None:
    log = compacted(batch(100, *(b"v%d" % n for n in range(10)), codec=codec), sorted(kept))
    (piece,) = pieces(log, 100 + start)
    wanted = [n for n in sorted(kept) if n >= start]
    assert piece.records == len(wanted)
    assert piece.next_offset == 110
    if not wanted:
        return
    stamped = piece.stamped(1, 0, 0)
    header = read_header(stamped)
    assert header.record_count == header.last_offset_delta + 1 == len(wanted)
    assert header.compression == codec
    assert rows(stamped) == [(1000 + n, b"k", b"v%d" % n) for n in wanted]
    places = {r.source + n: r.target + n for r in piece.runs(500) for n in range(r.length)}
    assert places == {100 + n: 500 + at for at, n in enumerate(wanted)}


def test_log_append_time_becomes_each_records_time() -> None:
    log = batch(0, b"a", b"b")
    patch_append_time(memoryview(log), 0, len(log), 5555)
    (piece,) = pieces(log)
    stamped = piece.stamped(1, 0, 0)
    assert not read_header(stamped).is_log_append_time
    assert rows(stamped) == [(5555, b"k", b"a"), (5555, b"k", b"b")]


def test_a_delete_horizon_is_not_handed_on_and_timestamps_stay() -> None:
    log = compacted(batch(0, b"a", b"b"), [0, 1], horizon=777_000)
    assert read_header(log).delete_horizon_ms == 777_000
    (piece,) = pieces(log)
    stamped = piece.stamped(1, 0, 0)
    assert read_header(stamped).delete_horizon_ms is None
    assert rows(stamped) == [(1000, b"k", b"a"), (1001, b"k", b"b")]


def test_a_batch_that_begins_before_the_position_gives_its_later_records() -> None:
    (piece,) = pieces(batch(10, b"a", b"b", b"c"), start=11)
    assert (piece.records, piece.offsets) == (2, (11, 12))
    (behind,) = pieces(batch(10, b"a", b"b", b"c"), start=13)
    assert behind == Piece(13, 7)


def test_a_corrupt_batch_is_refused_before_a_new_crc_would_hide_it() -> None:
    log = batch(10, b"a")
    log[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        pieces(log)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert "offset 10" in str(caught.value)
