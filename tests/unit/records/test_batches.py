"""Records and batches: round trips, readers of other clients as oracle, invalid bytes."""

from __future__ import annotations

import struct

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.records.batch import read_header
from headwater.records.builder import BatchBuilder, build_batch, build_single, stamp_producer
from headwater.records.compression import Compression, compress, decompress
from headwater.records.control import ControlType, build_marker, parse_marker, read_end_marker
from headwater.records.record import read_records
from headwater.records.varint import encode_varint, read_varint

BLOBS = st.none() | st.binary(max_size=40)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(
    st.tuples(st.integers(-1, 2**45), BLOBS, BLOBS, st.lists(st.tuples(NAMES, BLOBS), max_size=3)),
    min_size=1,
    max_size=12,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varint_round_trip(value: int) -> None:
    data = encode_varint(value)
    assert read_varint(data, 0) == (value, len(data))


def test_varint_longer_than_ten_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="10 bytes"):
        read_varint(b"\xff" * 11, 0)


@given(ROWS, st.sampled_from(list(Compression)))
def test_batch_round_trip(rows: list, codec: Compression) -> None:
    batch = build_batch(rows, compression=codec, base_offset=70)
    found = list(read_records(batch))
    assert [tuple(r)[1:] for r in found] == [(t, k, v, h) for t, k, v, h in rows]
    assert [r.offset for r in found] == list(range(70, 70 + len(rows)))


@given(ROWS, st.sampled_from(list(Compression)))
def test_aiokafka_reads_our_batches(rows: list, codec: Compression) -> None:
    theirs = DefaultRecordBatch(bytearray(build_batch(rows, compression=codec)))
    assert theirs.validate_crc()
    found = [(r.timestamp, r.key, r.value, r.headers) for r in theirs]
    assert found == [(t, k, v, h) for t, k, v, h in rows]


@pytest.mark.parametrize("codec", list(Compression))
def test_we_read_aiokafkas_batches(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000_000,
    )
    for n in range(50):
        builder.append(n, timestamp=n, key=None, value=b"v" * n, headers=[("h", b"x")])
    found = list(read_records(bytes(builder.build())))
    assert [(r.timestamp, r.value) for r in found] == [(n, b"v" * n) for n in range(50)]


@given(
    st.integers(-1, 2**45),
    BLOBS | st.binary(min_size=8_100, max_size=8_200),
    BLOBS | st.binary(min_size=8_100, max_size=8_200),
    st.none() | st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 32767)),
)
def test_a_batch_of_one_record_is_the_builders(
    timestamp: int, key: bytes | None, value: bytes | None, producer: tuple[int, int] | None
) -> None:
    builder = BatchBuilder()
    builder.append(timestamp, key, value)
    if producer is None:
        assert build_single(timestamp, key, value) == builder.build()
        return
    numbered = builder.build(producer_id=producer[0], producer_epoch=producer[1], base_sequence=9)
    assert build_single(timestamp, key, value, *producer, base_sequence=9) == numbered
    wanted = builder.build(producer_id=producer[0], producer_epoch=producer[1], transactional=True)
    assert build_single(timestamp, key, value, *producer, transactional=True) == wanted


def test_long_records_and_many_of_them() -> None:
    rows = [(n, b"k" * (n % 3), b"v" * (n * 17 % 20_000), ()) for n in range(9_000)]
    found = list(read_records(build_batch(rows)))
    assert [(r.timestamp, r.key, r.value) for r in found] == [(t, k, v) for t, k, v, _ in rows]


def test_raw_snappy_is_read() -> None:
    data = b"flight" * 1000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert bytes(compress(Compression.SNAPPY, data))[:8] == b"\x82SNAPPY\x00"


def test_lz4_blocks_are_independent() -> None:
    framed = compress(Compression.LZ4, b"flight" * 50_000)
    assert framed[4] & 0x20, "Java's reader refuses linked blocks (KIP-57)"


@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_broken_payload_is_corrupt(codec: Compression) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, b"\x82SNAPPY\x00" + b"\xff" * 30)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(5, b"")
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(UsageError, match="lz5"):
        Compression.parse("lz5")


def test_bad_crc_and_old_magic_are_refused() -> None:
    batch = build_batch([(1, None, b"v", ())])
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        list(read_records(batch))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    batch[16] = 1
    with pytest.raises(KafkaError) as caught:
        list(read_records(batch))
    assert caught.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_stamped_producer_keeps_the_crc_right() -> None:
    builder = BatchBuilder()
    builder.append(5, b"k", b"v")
    batch = builder.build()
    stamp_producer(batch, 77, 3, 12)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert len(list(read_records(batch))) == 1


def test_marker_round_trip_and_hidden_by_default() -> None:
    batch = build_marker(
        ControlType.ABORT, producer_id=4, producer_epoch=1, coordinator_epoch=9, timestamp=1
    )
    assert list(read_records(batch)) == []
    (record,) = read_records(batch, with_control=True)
    assert parse_marker(record) == (ControlType.ABORT, 9)
    assert read_header(batch).is_control
    assert read_header(batch).is_transactional


@given(
    st.sampled_from([ControlType.COMMIT, ControlType.ABORT]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 32767),
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**62),
)
def test_a_marker_is_the_builders_batch_and_is_read_in_place(
    kind: ControlType, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int
) -> None:
    builder = BatchBuilder()
    value = struct.pack(">hi", 0, coordinator_epoch)
    builder.append(timestamp, struct.pack(">hh", 0, kind), value)
    batch = builder.build(
        producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )
    marker = build_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
    )
    assert marker == batch
    view = memoryview(marker)
    assert read_end_marker(view, read_header(view)) == (kind, coordinator_epoch)


def test_a_marker_of_another_form_is_read_as_a_record() -> None:
    """Kafka's later versions of the value have more fields; other control records have other
    types."""
    for key, value, found in (
        (struct.pack(">hh", 0, 1), struct.pack(">hi", 1, 5) + b"\0", (ControlType.COMMIT, 5)),
        (struct.pack(">hh", 0, 7), struct.pack(">hi", 0, 5), (ControlType.UNKNOWN, 5)),
    ):
        builder = BatchBuilder()
        builder.append(1, key, value)
        view = memoryview(builder.build(producer_id=1, transactional=True, control=True))
        assert read_end_marker(view, read_header(view)) == found


def test_golden_batch() -> None:
    """A batch in the published format, byte by byte."""
    batch = build_batch([(1, b"k", b"v", [("h", None)])])
    assert struct.unpack_from(">qiib", batch) == (0, len(batch) - 12, -1, 2)
    assert bytes(batch[57:]).hex() == "00000001" + "16" + "000000" + "026b" + "0276" + "02026801"
