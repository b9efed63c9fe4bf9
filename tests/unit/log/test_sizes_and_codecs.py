"""The size limit of a batch, before and after the topic's codec, and the codecs."""

from __future__ import annotations

from random import Random

import pytest

from headwater.errors import ErrorCode
from headwater.records.batch import AT_CRC, compute_crc, read_header
from headwater.records.record import decode_batch
from unit.log.compacting import records_batch
from unit.log.harness import Box, batch
from unit.log.test_unified_log import append, refused

GZIP = 1


def packed(value: bytes = b"same" * 500) -> memoryview:
    """Small in gzip, two kilobytes without."""
    return records_batch([(b"k", value)], codec=GZIP)


def with_codec(codec: int) -> memoryview:
    """A batch whose header names this codec."""
    data = batch()
    data[22] = codec
    data[AT_CRC : AT_CRC + 4] = compute_crc(data, 0, len(data)).to_bytes(4, "big")
    return data


def test_a_batch_larger_than_a_segment_may_be_and_one_larger_than_the_topic_allows() -> None:
    log = Box().log(segment_bytes="500", max_message_bytes="1000")
    assert refused(log, batch(value=b"x" * 600)) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert refused(log, batch(value=b"x" * 1000)) is ErrorCode.MESSAGE_TOO_LARGE
    assert append(log, batch(value=b"x" * 300)) == 0


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_message_bytes": "1000"}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"segment_bytes": "1000"}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_what_the_topics_codec_makes_too_large_is_refused(
    limits: dict[str, str], code: ErrorCode
) -> None:
    log = Box().log(compression_type="uncompressed", **limits)
    assert len(packed()) < 1000
    assert refused(log, packed()) is code
    assert append(log, packed(b"same" * 100)) == 0


@pytest.mark.parametrize(
    ("codec", "fast", "small"), [("gzip", "1", "9"), ("lz4", "9", "12"), ("zstd", "-100", "19")]
)
def test_the_topics_level_is_the_one_that_its_codec_packs_with(
    codec: str, fast: str, small: str
) -> None:
    words = Random(7).choices([b"cat", b"dog", b"horse", b"mouse", b"elephant"], k=3000)
    value = b" ".join(words)

    def stored(level: str) -> int:
        log = Box().log(**{"compression_type": codec, f"compression_{codec}_level": level})
        append(log, records_batch([(b"k", value)]))
        part = log.read(0, 1 << 20, 1)
        data = memoryview(part.file.read_at(part.position, part.size_bytes))
        [record] = decode_batch(data, 0, read_header(data))
        assert bytes(record.value or b"") == value
        return len(data)

    assert stored(small) < stored(fast) < len(value)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_there_is_not_is_refused(codec: int) -> None:
    log = Box().log()
    assert refused(log, with_codec(codec)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert append(log, batch()) == 0
