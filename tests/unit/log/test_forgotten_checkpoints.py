"""A deleted and recreated topic: checkpoints of the old one do not apply to the new one."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from headwater_broker.log.checkpoint_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
)
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

NEW_ID = UUID(int=8)
ALL = 1 << 20
FILES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)


def older(box: Box) -> UnifiedLog:
    """Nine records, the first seven deleted (DeleteRecords), five of them compacted before."""
    log = box.log()
    for _ in range(9):
        log.append_as_leader(batch(), 0, 2000)
    log.fsync_now()
    log.delete_records_before(7)
    log.first_dirty_offset = 5
    box.manager.checkpoint_all()
    assert [box.files.read(f"/d/{name}")[4:] for name in FILES] == [
        b"t 0 9\n", b"t 0 9\n", b"t 0 7\n", b"t 0 5\n"
    ]  # fmt: skip
    return log


def gone(box: Box, log: UnifiedLog) -> None:
    box.manager.delete(log)


def gone_and_a_second_later(box: Box, log: UnifiedLog) -> None:
    box.manager.delete(log)
    box.manager.maintain_files()


def found_as_another_topics(box: Box, log: UnifiedLog) -> None:
    assert box.manager.logs["t", 0] is log  # `get_or_create` will set it aside


def gone_and_the_broker_too(box: Box, log: UnifiedLog) -> None:
    box.manager.delete(log)
    box.files.crash(tear=ALL)
    box.open_manager()


@pytest.mark.parametrize(
    "end", [gone, gone_and_a_second_later, found_as_another_topics, gone_and_the_broker_too]
)
@pytest.mark.parametrize("records", [0, 4, 20])
@pytest.mark.parametrize("stop", ["clean", "killed", "killed after the next checkpoints"])
def test_all_records_of_the_new_topic_are_there_after_a_restart(
    end: Callable[[Box, UnifiedLog], None], records: int, stop: str
) -> None:
    box = Box()
    end(box, older(box))
    new = box.log(topic_id=NEW_ID)
    for _ in range(records):
        new.append_as_leader(batch(), 0, 2000)
    if stop == "killed after the next checkpoints":
        box.manager.checkpoint_log_starts()
    again = box.restart() if stop == "clean" else box.crash(tear=ALL)
    assert again.topic_id == NEW_ID
    assert (again.log_start_offset, again.log_end_offset) == (0, records)
    assert not [name for name in box.files.names("/d/t-0") if name.endswith(".deleted")]


def test_no_checkpoint_tells_of_a_deleted_log_a_second_later() -> None:
    box = Box()
    gone_and_a_second_later(box, older(box))
    assert [decode_offsets(box.files.read(f"/d/{name}")) for name in FILES] == [{}, {}, {}, {}]
    log = box.log(topic_id=NEW_ID)
    for _ in range(20):
        log.append_as_leader(batch(), 0, 2000)
    again = box.crash(tear=ALL)
    assert (again.recovery_point, again.first_dirty_offset) == (0, 0)


def test_a_damaged_checkpoint_is_written_anew_though_nothing_is_to_be_told() -> None:
    box = Box()
    box.log()
    box.manager.close(5)
    box.files.write_atomic(f"/d/{LOG_STARTS}", b"0\n2\nt 0")
    box.open_manager()
    box.manager.checkpoint_log_starts()
    assert box.files.read(f"/d/{LOG_STARTS}") == b"0\n0\n"
