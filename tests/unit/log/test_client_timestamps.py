"""Timestamps of clients' records: bounds for each record, and look-ups that find them."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import patch_max_timestamp, read_header
from headwater.records.builder import BatchBuilder
from headwater.records.compression import Compression
from headwater.records.record import check_batch
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def of_times(*times: int, codec: Compression = Compression.NONE) -> memoryview:
    builder = BatchBuilder()
    for time in times:
        builder.append(time, b"k", b"v")
    return memoryview(builder.build(compression=codec))


def claiming(view: memoryview, largest: int) -> memoryview:
    """The same batch, its header with another largest timestamp (and the right CRC)."""
    patch_max_timestamp(view, 0, len(view), largest)
    return view


def stored(log: UnifiedLog, offset: int) -> memoryview:
    found = log.read(offset, 1, 1 << 30)
    return memoryview(found.file.read_at(found.position, found.size_bytes))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("config", [{}, {"compression_type": "zstd"}])
def test_no_record_may_be_too_old(codec: Compression, config: dict[str, str]) -> None:
    log = Box().log(message_timestamp_before_max_ms=str(DAY_MS), **config)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(of_times(NOW_MS, 0, codec=codec), 0, NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert "record 1" in raised.value.detail
    with pytest.raises(KafkaError):
        log.append_as_leader(of_times(NOW_MS - DAY_MS - 1, NOW_MS, codec=codec), 0, NOW_MS)
    log.append_as_leader(of_times(NOW_MS, NOW_MS - DAY_MS, codec=codec), 0, NOW_MS)
    log.append_as_leader(of_times(-1, codec=codec), 0, NOW_MS)
    assert log.log_end_offset == 3


@pytest.mark.parametrize("said", [-1, 999])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("config", [{}, {"cleanup_policy": "compact"}])
def test_a_largest_timestamp_below_the_first_is_mended(
    said: int, codec: Compression, config: dict[str, str]
) -> None:
    log = Box().log(**config)
    log.append_as_leader(batch(timestamp=500), 0, 2000)
    log.append_as_leader(claiming(of_times(1000, 1700, 1200, codec=codec), said), 0, 2000)
    header = read_header(stored(log, 1))
    assert header.max_timestamp == log.active.max_timestamp == 1700
    check_batch(stored(log, 1), 0, header)
    found = log.offset_for_timestamp(1500, 4)
    assert found is not None
    assert (found.offset, found.timestamp) == (2, 1700)


def test_what_it_hides_must_not_lie_too_far_ahead() -> None:
    log = Box().log(message_timestamp_after_max_ms="1000")
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(claiming(of_times(NOW_MS, NOW_MS + DAY_MS), -1), 0, NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert log.log_end_offset == 0


def test_records_without_timestamps_are_taken_as_they_are() -> None:
    log = Box().log()
    view = of_times(-1, -1)
    before = bytes(view[21:])
    log.append_as_leader(view, 0, 2000)
    assert bytes(stored(log, 0)[21:]) == before
