"""Append, read, roll, look up, truncate, retain: over memory files."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers, read_header
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

HUGE = 1 << 30


def append(log: UnifiedLog, view: memoryview, epoch: int = 0) -> int:
    return log.append_as_leader(view, epoch, 2000).base_offset


def offsets(log: UnifiedLog, start: int, upper: int = HUGE, max_bytes: int = HUGE) -> list[int]:
    part = log.read(start, max_bytes, upper, min_one=True)
    data = part.file.read_at(part.position, part.size_bytes)
    assert len(data) == part.size_bytes
    assert part.data in (None, data)
    return [h.base_offset for _, h in iter_headers(data)]


def refused(log: UnifiedLog, view: memoryview) -> ErrorCode:
    before = log.log_end_offset, log.size_bytes
    with pytest.raises(KafkaError) as caught:
        append(log, view)
    assert (log.log_end_offset, log.size_bytes) == before
    return caught.value.code


def test_offsets_and_epochs_are_given_by_the_leader() -> None:
    log = Box().log()
    assert [append(log, batch(3), 5), append(log, batch(2), 6)] == [0, 3]
    assert log.log_end_offset == 5
    assert offsets(log, 0) == [0, 3]
    assert offsets(log, 4) == [3]
    assert log.latest_epoch == 6
    assert log.end_offset_for_epoch(5) == (5, 3)
    assert log.end_offset_for_epoch(6) == (6, 5)
    assert log.end_offset_for_epoch(7) == (-1, -1)
    assert log.end_offset_for_epoch(1) == (1, 0)


def test_every_offset_is_found_whatever_the_index_interval() -> None:
    for interval in ("0", "100", "4096"):
        log = Box().log(index_interval_bytes=interval, segment_bytes="3000")
        starts = [append(log, batch(1 + i % 3, value=b"x" * (i % 50))) for i in range(200)]
        assert len(log.segments) > 3
        for offset in range(log.log_end_offset):
            holder = max(s for s in starts if s <= offset)
            assert offsets(log, offset)[0] == holder
            assert offsets(log, offset, max_bytes=1) == [holder]
            bounded = offsets(log, offset, upper=offset + 10)
            ends = [*starts[1:], log.log_end_offset]
            assert all(ends[starts.index(b)] <= offset + 10 for b in bounded)


def test_read_bounds() -> None:
    log = Box().log()
    append(log, batch(2))
    append(log, batch(2))
    assert log.read(4, 100, HUGE).size_bytes == 0
    assert log.read(2, 100, 2).size_bytes == 0
    assert offsets(log, 0, upper=2) == [0]
    assert log.read(0, 10, HUGE, min_one=False).size_bytes == 0
    for outside in (-1, 5):
        with pytest.raises(KafkaError) as caught:
            log.read(outside, 100, HUGE)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    append(log, batch(1))
    assert offsets(log, 4) == [4]


def test_small_slices_come_with_their_bytes() -> None:
    log = Box().log(index_interval_bytes="0")
    size = len(batch(value=b"x" * 1000))
    for _ in range(20):
        append(log, batch(value=b"x" * 1000))
    one = log.read(7, 1, HUGE)
    assert one.size_bytes == size
    assert one.data == one.file.read_at(one.position, size)
    large = log.read(7, HUGE, HUGE)
    assert large.size_bytes == 13 * size
    assert large.data is None


def test_bad_batches_are_refused() -> None:
    log = Box().log(max_message_bytes="1000")
    flipped = batch()
    flipped[-1] ^= 1
    assert refused(log, flipped) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log, batch()[:40]) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log, batch()[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log, batch(value=b"x" * 1000)) is ErrorCode.MESSAGE_TOO_LARGE
    old = batch()
    old[16] = 1
    assert refused(log, old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refused(log, memoryview(bytearray(bytes(batch()) * 2))) is ErrorCode.INVALID_RECORD
    assert refused(log, batch(base_offset=3)) is ErrorCode.INVALID_RECORD
    assert refused(log, batch(transactional=True)) is ErrorCode.INVALID_RECORD
    open_for_ever = batch(producer_id=1, epoch=0, sequence=0, transactional=True)
    assert refused(log, open_for_ever) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused(log, batch(timestamp=10**13)) is ErrorCode.INVALID_TIMESTAMP
    compacted = Box().log(cleanup_policy="compact")
    assert refused(compacted, batch(key=None)) is ErrorCode.INVALID_RECORD
    assert append(compacted, batch()) == 0


def test_log_append_time_and_codec_of_the_topic() -> None:
    log = Box().log(message_timestamp_type="LogAppendTime", compression_type="gzip")
    result = log.append_as_leader(batch(50, value=b"same" * 20), 0, 5000)
    assert result.append_time_ms == 5000
    part = log.read(0, HUGE, HUGE)
    header = read_header(part.file.read_at(part.position, part.size_bytes))
    assert (header.max_timestamp, header.is_log_append_time, header.compression) == (5000, True, 1)
    assert header.size_bytes < 1000


def test_timestamps_lead_to_offsets() -> None:
    log = Box().log(index_interval_bytes="100", segment_bytes="600")
    for i in range(30):
        append(log, batch(2, timestamp=1000 + 10 * i))
    for i in range(30):
        found = log.offset_for_timestamp(1000 + 10 * i + 1, HUGE)
        assert found is not None and (found.offset, found.timestamp) == (2 * i + 1, 1001 + 10 * i)
    assert log.offset_for_timestamp(99999, HUGE) is None
    assert log.offset_for_timestamp(1291, 59) is None
    newest = log.max_timestamp_offset(HUGE)
    assert newest is not None and newest.offset == 59
    newest = log.max_timestamp_offset(30)
    assert newest is not None and newest.offset == 29
    older = Box().log(index_interval_bytes="0", segment_bytes="600")
    for i in range(30):
        append(older, batch(2, timestamp=3000 - 10 * i))
    for start in range(1, 59):
        older.delete_records_before(start)
        newest = older.max_timestamp_offset(HUGE)
        expected = start if start % 2 else start + 1
        assert newest is not None and newest.offset == expected, "not one that is deleted"
    assert log.offset_at_bytes(0, 1) == 2
    assert log.offset_at_bytes(0, HUGE) == 60


def test_follower_keeps_offsets_and_epochs_and_leaves_out_a_torn_tail() -> None:
    log = Box().log()
    two = bytes(batch(2, base_offset=0, leader_epoch=3)) + bytes(
        batch(1, base_offset=2, leader_epoch=4)
    )
    log.append_as_follower(memoryview(two + two[:70]))
    assert (log.log_end_offset, log.epochs.entries) == (3, [(3, 0), (4, 2)])
    with pytest.raises(KafkaError):
        log.append_as_follower(memoryview(two))
    assert log.log_end_offset == 3


def test_truncation_cuts_log_indexes_epochs() -> None:
    log = Box().log(index_interval_bytes="100", segment_bytes="600")
    for i in range(40):
        append(log, batch(), i // 10)
    log.truncate_to(15)
    assert (log.log_end_offset, log.epochs.entries) == (15, [(0, 0), (1, 10)])
    assert append(log, batch(), 9) == 15
    assert offsets(log, 15) == [15]
    assert sum(len(offsets(log, s.base_offset)) for s in log.segments) == 16
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (100, 100, 1)
    assert append(log, batch()) == 100


def test_a_cut_forgets_the_times_of_what_is_gone() -> None:
    log = Box().log(index_interval_bytes="1")
    for timestamp in (1000, 1100, 1200, 9000, 9100, 9200, 9300):
        append(log, batch(timestamp=timestamp))
    log.truncate_to(3)
    for timestamp in (2000, 9900, 3000):
        append(log, batch(timestamp=timestamp))
    for timestamp, offset in ((1200, 2), (1300, 3), (9200, 4), (9900, 4)):
        found = log.offset_for_timestamp(timestamp, 100)
        assert found is not None and found.offset == offset
    assert log.offset_for_timestamp(9901, 100) is None


def test_retention_by_time_size_and_log_start() -> None:
    box = Box()
    log = box.log(segment_bytes="600", retention_ms="1000", file_delete_delay_ms="1000")
    for _ in range(40):
        append(log, batch(timestamp=1000))
    count = len(log.segments)
    assert log.retain(1500) == 0
    assert log.retain(3000, high_watermark=log.bases[2]) == 2
    assert log.log_start_offset == log.local_log_start_offset == log.bases[0] > 0
    assert log.retain(3000) == count - 2
    assert log.log_start_offset == log.log_end_offset == 40
    assert append(log, batch()) == 40
    log = box.log(topic="u", segment_bytes="600", retention_bytes="1300", retention_ms="-1")
    for _ in range(40):
        append(log, batch())
    assert log.retain(3000) > 0
    assert 1300 <= log.size_bytes < 1900
    log.delete_records_before(39)
    assert log.retain(3000) > 0
    assert log.log_start_offset == 39
    deleted = [n for n in box.files.names("/d/t-0") if n.endswith(".deleted")]
    assert deleted
    box.manager.remove_due_files()
    box.clock.advance(2000)
    box.manager.remove_due_files()
    assert not [n for n in box.files.names("/d/t-0") if n.endswith(".deleted")]


def test_with_tiering_only_what_is_tiered_goes_and_history_stays() -> None:
    log = Box().log(
        segment_bytes="600", remote_storage_enable="true", local_retention_ms="1", retention_ms="1"
    )
    for _ in range(40):
        append(log, batch())
    assert log.retain(10**6, None) == 0
    assert log.retain(10**6, log.bases[3]) == 3
    assert (log.log_start_offset, log.local_log_start_offset) == (0, log.bases[0])
    with pytest.raises(KafkaError):
        log.read(0, 100, HUGE)


def test_compacted_logs_are_never_shortened_by_age() -> None:
    log = Box().log(segment_bytes="600", cleanup_policy="compact", retention_ms="1")
    for _ in range(40):
        append(log, batch())
    assert log.retain(10**9) == 0


def test_segments_roll_by_age_and_full_index() -> None:
    log = Box().log(segment_ms="100")
    append(log, batch(timestamp=1000))
    append(log, batch(timestamp=1100))
    append(log, batch(timestamp=1101))
    assert log.bases == [0, 2]
    log = Box().log(index_interval_bytes="1", segment_index_bytes="36")
    for _ in range(9):
        append(log, batch())
    assert log.bases == [0, 5]
