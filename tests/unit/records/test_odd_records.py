"""Unusual records: read as Java's clients read them, or refused."""

from __future__ import annotations

import struct

import pytest

from headwater.columnar.decode import decode_batches
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.records.batch import AT_CRC, HEADER_BYTES, LOG_OVERHEAD_BYTES, compute_crc
from headwater.records.builder import build_batch
from headwater.records.compression import (
    UNPACKED_BYTES_MAX as READERS_MAX,
)
from headwater.records.compression import (
    UNPACKED_VARIABLE,
    Compression,
    compress,
    decompress,
    unpacked_limit,
)
from headwater.records.record import Record, read_records
from headwater.records.varint import INT64_MAX, INT64_MIN, encode_varint
from headwater_broker.log.log_validator import UNPACKED_BYTES_MAX
from unit.log.harness import Box


def with_payload(payload: bytes) -> bytes:
    """A batch of one record with these bytes."""
    batch = bytearray(build_batch([(1000, None, None, ())])[:HEADER_BYTES]) + payload
    struct.pack_into(">i", batch, LOG_OVERHEAD_BYTES - 4, len(batch) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">I", batch, AT_CRC, compute_crc(memoryview(batch), 0, len(batch)))
    return bytes(batch)


def record(body: bytes) -> bytes:
    """A record with its length (under 64)."""
    return bytes([2 * len(body)]) + body


def test_any_negative_length_is_null() -> None:
    body = b"\0\0\0" + b"\x33" + b"\x19" + b"\0"
    assert list(read_records(with_payload(record(body)))) == [Record(0, 1000, None, None, [])]


def test_a_header_key_that_is_not_utf8_is_read_with_replacements() -> None:
    body = b"\0\0\0" + b"\1" + b"\1" + b"\2" + b"\4h\xff" + b"\2v"
    (found,) = read_records(with_payload(record(body)))
    assert found.headers == [("h\ufffd", b"v")]


@pytest.mark.parametrize("delta", [INT64_MAX, INT64_MAX - 999, INT64_MIN, INT64_MIN + 1])
def test_a_time_beyond_64_bits_is_what_java_makes_of_it(delta: int) -> None:
    body = b"\0" + encode_varint(delta) + b"\0\1\1\0"
    batch = with_payload(record(body))
    (found,) = read_records(batch)
    assert found.timestamp == (1000 + delta if delta < 0 else 1000 + delta - (1 << 64))
    columns = ("offset", "timestamp_raw")
    decoded = decode_batches(batch, start_offset=0, end_offset=1, columns=columns)
    assert decoded.chunks[0].column("timestamp_raw").to_pylist() == [found.timestamp]


def test_bytes_behind_the_last_record_are_refused() -> None:
    body = b"\0\0\0" + b"\1" + b"\1" + b"\0"
    assert len(list(read_records(with_payload(record(body))))) == 1
    with pytest.raises(KafkaError, match="1 bytes behind the last record"):
        list(read_records(with_payload(record(body) + b"\0")))


CODECS = [codec for codec in Compression if codec]


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_batch_that_unpacks_to_much_is_refused_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, bytes(100_000))
    assert decompress(codec, packed, 100_000) == decompress(codec, packed) == bytes(100_000)
    with pytest.raises(KafkaError, match="more than 99999 bytes unpacked: send") as caught:
        decompress(codec, packed, 99_999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as caught:
        decompress(codec, packed[:-1] if codec != Compression.LZ4 else packed[1:], 200_000)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("limit", [1_000_000, 999_999])
def test_readers_unpack_up_to_the_setting(
    codec: Compression, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more than the first output buffer, as for a batch that compresses well."""
    monkeypatch.setenv(UNPACKED_VARIABLE, str(limit))
    packed = compress(codec, bytes(1_000_000))
    if limit == 1_000_000:
        assert decompress(codec, packed) == bytes(1_000_000)
        return
    with pytest.raises(
        KafkaError, match=f"more than 999999 bytes unpacked: raise {UNPACKED_VARIABLE}"
    ):
        decompress(codec, packed)


def test_raw_snappy_is_not_believed_to_hold_what_it_claims() -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), 1 << 20)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_setting_is_a_number_of_bytes() -> None:
    assert unpacked_limit({}) == READERS_MAX
    assert unpacked_limit({UNPACKED_VARIABLE: "5"}) == 5
    for wrong in ("", "0", "-1", "64m", str((1 << 30) + 1)):
        with pytest.raises(UsageError, match="bytes from 1 to 1073741824"):
            unpacked_limit({UNPACKED_VARIABLE: wrong})


def test_a_compacted_topic_does_not_unpack_without_limit() -> None:
    log = Box().log(cleanup_policy="compact")
    bomb = build_batch([(1000, b"k", bytes(UNPACKED_BYTES_MAX), ())], compression=Compression.ZSTD)
    assert len(bomb) < 100_000
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(bomb), 0, 1000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
