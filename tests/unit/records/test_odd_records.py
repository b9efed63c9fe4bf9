"""Records as no client of ours writes them: read as Java's clients read them, or refused."""

from __future__ import annotations

import struct

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import AT_CRC, HEADER_BYTES, LOG_OVERHEAD_BYTES, compute_crc
from headwater.records.builder import build_batch
from headwater.records.compression import Compression, compress, decompress
from headwater.records.record import Record, read_records
from headwater_broker.log.validation import UNPACKED_BYTES_MAX
from unit.log.harness import Box


def with_payload(payload: bytes) -> bytes:
    """A batch of one record, sealed around these bytes."""
    batch = bytearray(build_batch([(1000, None, None, ())])[:HEADER_BYTES]) + payload
    struct.pack_into(">i", batch, LOG_OVERHEAD_BYTES - 4, len(batch) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">I", batch, AT_CRC, compute_crc(memoryview(batch), 0, len(batch)))
    return bytes(batch)


def record(body: bytes) -> bytes:
    """With its length (under 64)."""
    return bytes([2 * len(body)]) + body


def test_any_negative_length_is_null() -> None:
    body = b"\0\0\0" + b"\x33" + b"\x19" + b"\0"
    assert list(read_records(with_payload(record(body)))) == [Record(0, 1000, None, None, [])]


def test_a_header_key_that_is_not_utf8_is_read_with_replacements() -> None:
    body = b"\0\0\0" + b"\1" + b"\1" + b"\2" + b"\4h\xff" + b"\2v"
    (found,) = read_records(with_payload(record(body)))
    assert found.headers == [("h\ufffd", b"v")]


def test_bytes_behind_the_last_record_are_refused() -> None:
    body = b"\0\0\0" + b"\1" + b"\1" + b"\0"
    assert len(list(read_records(with_payload(record(body))))) == 1
    with pytest.raises(KafkaError, match="1 bytes behind the last record"):
        list(read_records(with_payload(record(body) + b"\0")))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_small_batch_that_unpacks_to_much_is_refused_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, bytes(100_000))
    assert decompress(codec, packed, 100_000) == decompress(codec, packed) == bytes(100_000)
    with pytest.raises(KafkaError, match="more than 99999 bytes unpacked") as caught:
        decompress(codec, packed, 99_999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as caught:
        decompress(codec, packed[:-1] if codec != Compression.LZ4 else packed[1:], 200_000)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_compacted_topic_does_not_unpack_without_limit() -> None:
    log = Box().log(cleanup_policy="compact")
    bomb = build_batch([(1000, b"k", bytes(UNPACKED_BYTES_MAX), ())], compression=Compression.ZSTD)
    assert len(bomb) < 100_000
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(bomb), 0, 1000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
