"""Index entries are written after the log; a failed write assigns no offset twice."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers
from headwater.testing.memory_files import MemoryFile
from headwater_broker.log.index import OFFSET_ENTRY, TIME_ENTRY
from headwater_broker.log.index_flusher import LOGS_PER_FLUSH
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

Append = Callable[[UnifiedLog], object]


def as_leader(log: UnifiedLog) -> object:
    return log.append_as_leader(batch(), 0, 2000)


def as_follower(log: UnifiedLog) -> object:
    return log.append_as_follower(batch(base_offset=log.log_end_offset, leader_epoch=0))


def offsets(log: UnifiedLog) -> list[int]:
    data = b"".join(s.file.read_at(0, s.file.size_bytes) for s in log.segments)
    return [header.base_offset for _, header in iter_headers(data)]


def refuse_indexes(patch: pytest.MonkeyPatch, number: int) -> None:
    append = MemoryFile.append

    def refuse(self: MemoryFile, view: memoryview | bytes) -> None:
        if self.path.endswith("index"):
            raise OSError(number, "injected", self.path)
        append(self, view)

    patch.setattr(MemoryFile, "append", refuse)


def until_refused(log: UnifiedLog, append: Append) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        for _ in range(1000):
            append(log)
    return raised.value


@pytest.mark.parametrize("append", [as_leader, as_follower])
def test_an_index_that_cannot_be_written_takes_the_folder_offline(
    monkeypatch: pytest.MonkeyPatch, append: Append
) -> None:
    box = Box()
    log = box.log(index_interval_bytes="0")
    refuse_indexes(monkeypatch, errno.ENOSPC)
    assert until_refused(log, append).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert box.manager.offline_directories == ["/d"]
    assert log.is_closed


@pytest.mark.parametrize("append", [as_leader, as_follower])
def test_entries_of_the_open_segment_are_in_the_files_within_a_tick(append: Append) -> None:
    box = Box()
    log = box.log(index_interval_bytes="0")
    for _ in range(3):
        append(log)
    box.manager.maintain_files()
    entries = [OFFSET_ENTRY.pack(n, n * len(batch())) for n in (1, 2)]
    assert box.files.read(f"{log.path}/{0:020d}.index") == b"".join(entries)
    assert box.files.read(f"{log.path}/{0:020d}.timeindex") == TIME_ENTRY.pack(1000, 0)
    for _ in range(200):  # enough entries to be written without a tick, and some more
        append(log)
    box.manager.maintain_files()
    assert len(box.files.read(f"{log.path}/{0:020d}.index")) == OFFSET_ENTRY.size * 202


def test_the_logs_that_wait_longest_for_their_indexes_are_first() -> None:
    box = Box()
    logs = [box.log(topic=f"t{n}", index_interval_bytes="0") for n in range(LOGS_PER_FLUSH + 1)]
    for log in logs:
        as_leader(log)
        as_leader(log)

    def written() -> list[bool]:
        return [len(box.files.read(f"{log.path}/{0:020d}.index")) > 0 for log in logs]

    box.manager.maintain_files()
    assert written() == [True] * LOGS_PER_FLUSH + [False]
    as_leader(logs[0])
    box.manager.maintain_files()
    assert all(written())


def test_an_index_that_cannot_be_written_at_a_tick_takes_the_folder_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    log = box.log(index_interval_bytes="0")
    refuse_indexes(monkeypatch, errno.EIO)
    as_leader(log)
    as_leader(log)
    box.manager.maintain_files()
    assert box.manager.offline_directories == ["/d"]


def test_a_deleted_log_leaves_no_index_behind() -> None:
    box = Box()
    log = box.log(index_interval_bytes="0")
    as_leader(log)
    as_leader(log)
    box.manager.delete(log)
    box.manager.maintain_files()
    assert f"{log.topic}-{log.partition}" not in box.files.names("/d")


@pytest.mark.parametrize("append", [as_leader, as_follower])
def test_lack_of_descriptors_for_an_index_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, append: Append
) -> None:
    box = Box()
    log = box.log(index_interval_bytes="0")
    with monkeypatch.context() as patch:
        refuse_indexes(patch, errno.EMFILE)
        for _ in range(300):
            append(log)
    append(log)
    assert offsets(log) == list(range(301))
    assert log.log_end_offset == 301
    assert box.manager.offline_directories == []
    log = box.restart()
    assert log.recovered == []
    assert offsets(log) == list(range(301))
    assert len(log.active.offset_index) == 300


def test_a_cut_that_met_no_descriptor_is_made_by_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    log = box.log(index_interval_bytes="0")
    for _ in range(10):
        as_follower(log)

    def refuse(path: str, **_: object) -> None:
        raise OSError(errno.EMFILE, "injected", path)

    with monkeypatch.context() as patch, pytest.raises(KafkaError):
        patch.setattr(box.files, "open", refuse)
        log.truncate_to(5)
    assert offsets(log) == list(range(log.log_end_offset)), "what there is can be read"
    log.truncate_to(5)
    for _ in range(5):
        log.append_as_follower(batch(2, base_offset=log.log_end_offset, leader_epoch=1))
    assert log.log_end_offset == 15
    for offset in range(15):
        found = log.read(offset, 1, 15)
        assert found.first_offset == (offset if offset < 5 else offset - (offset - 5) % 2)
    log = box.restart()
    assert log.recovered == []
    assert offsets(log) == [0, 1, 2, 3, 4, 5, 7, 9, 11, 13]
