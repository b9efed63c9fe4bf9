"""Recovery after crashes, clean stops, identities, failing folders."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.records.batch import iter_headers
from headwater.system_files import SystemFiles
from headwater.testing.memory_files import MemoryFile
from headwater_broker.log.checkpoint_files import CLEAN_SHUTDOWN
from headwater_broker.log.producer_state_manager import Producers
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import TOPIC_ID, Box, batch

HUGE = 1 << 30


def everything(log: UnifiedLog) -> list[int]:
    found, at = [], log.local_log_start_offset
    while at < log.log_end_offset:
        part = log.read(at, HUGE, HUGE)
        for _, header in iter_headers(part.file.read_at(part.position, part.size_bytes)):
            assert header.base_offset == at, "a hole"
            found.append(header.base_offset)
            at = header.next_offset
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_loses_at_most_what_was_not_synced(seed: int) -> None:
    box = Box(seed)
    log = box.log(segment_bytes="900", index_interval_bytes="200")
    synced = 0
    for round_ in range(3):
        for i in range(15 + seed % 7):
            log.append_as_leader(batch(1 + i % 2), round_, 2000)
            if i == seed % 5:
                log.fsync_now()
                box.manager.checkpoint_recovery_points()
                synced = log.log_end_offset
        log = box.crash()
        assert synced <= log.log_end_offset
        found = everything(log)
        assert found == sorted(set(found))
        assert found[0] == 0
        again = box.crash(tear=1 << 30)
        assert (again.log_end_offset, everything(again)) == (log.log_end_offset, found)
        log = again
        synced = log.log_end_offset


def test_a_clean_stop_needs_no_recovery_and_its_mark_counts_once() -> None:
    box = Box()
    log = box.log(segment_bytes="600")
    for i in range(30):
        log.append_as_leader(batch(), i // 10, 2000)
    log.delete_records_before(4)
    kept = everything(log)
    log = box.restart()
    assert (everything(log), log.recovered) == (kept, [])
    assert (log.log_start_offset, log.latest_epoch) == (4, 2)
    assert box.manager.clean_broker_epoch == 5
    assert box.manager.high_watermark_checkpoint(log) == 30
    box.crash(tear=1 << 30)
    assert box.manager.clean_broker_epoch == -1


def test_damage_in_the_middle_cuts_there_and_says_so() -> None:
    box = Box()
    log = box.log(segment_bytes="600")
    for _ in range(30):
        log.append_as_leader(batch(), 0, 2000)
    data = box.files.content(f"/d/t-0/{log.bases[2]:020d}.log")
    data[100] ^= 1
    log = box.crash(tear=1 << 30)
    assert log.log_end_offset < 30
    assert any("CRC" in note for note in log.recovered)
    assert log.append_as_leader(batch(), 1, 2000).base_offset == log.log_end_offset - 1


def nine_checkpointed() -> tuple[Box, UnifiedLog]:
    """A log of nine records, durable, and its recovery point on disk says so."""
    box = Box()
    log = box.log()
    for _ in range(9):
        log.append_as_leader(batch(), 0, 2000)
    log.fsync_now()
    box.manager.checkpoint_recovery_points()
    return box, log


def test_a_recovery_point_is_never_beyond_what_is_left() -> None:
    """What is written there next would be trusted after the next crash."""
    box, log = nine_checkpointed()
    data = box.files.content(f"/d/t-0/{0:020d}.log")
    data[5 * len(batch()) + 70] ^= 1
    log = box.crash()
    assert (log.log_end_offset, log.recovery_point) == (5, 5)


def test_missing_indexes_are_rebuilt() -> None:
    box = Box()
    log = box.log(segment_bytes="600", index_interval_bytes="1")
    for _ in range(30):
        log.append_as_leader(batch(), 0, 2000)
    box.manager.close()
    for name in box.files.names("/d/t-0"):
        if name.endswith("index"):
            box.files.remove(f"/d/t-0/{name}")
    box.open_manager({"index.interval.bytes": "1"})
    log = box.manager.logs["t", 0]
    assert everything(log) == list(range(30))
    assert len(log.segments[0].offset_index) > 2


def test_a_folder_of_another_topic_id_is_set_aside() -> None:
    box = Box()
    box.log().append_as_leader(batch(), 0, 2000)
    log = box.log(topic_id=UUID(int=8))
    assert log.log_end_offset == 0
    assert any(name.endswith("-stray") for name in box.files.names("/d"))
    assert box.crash().topic_id == UUID(int=8)


def test_deletion_renames_now_and_removes_later() -> None:
    box = Box()
    box.log().append_as_leader(batch(), 0, 2000)
    box.manager.delete(box.manager.logs["t", 0])
    assert box.manager.get("t", 0) is None
    assert [n for n in box.files.names("/d") if n.endswith("-delete")]
    box.manager.remove_due_files()
    box.clock.advance(59_999)
    box.manager.remove_due_files()
    assert [n for n in box.files.names("/d") if n.endswith("-delete")], "file.delete.delay.ms"
    box.clock.advance(2)
    box.manager.remove_due_files()
    assert not [n for n in box.files.names("/d") if n.endswith("-delete")]
    assert box.log().log_end_offset == 0


def test_a_failing_folder_takes_only_its_logs_offline() -> None:
    box = Box(dirs=("/a", "/b"))
    logs = [box.log(topic=name) for name in ("t", "u")]
    assert {log.path[:2] for log in logs} == {"/a", "/b"}
    assert len(box.manager.directory_ids) == 2
    lost: list[str] = []
    box.manager.on_offline.append(lambda folder, gone: lost.extend(log.topic for log in gone))
    box.files.failing_prefix = logs[0].path
    with pytest.raises(KafkaError) as caught:
        logs[0].append_as_leader(batch(), 0, 2000)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (lost, list(box.manager.logs)) == (["t"], [("u", 0)])
    with pytest.raises(KafkaError):
        config = logs[0].config
        box.manager.get_or_create("t", TOPIC_ID, 0, config, is_new=False)
    logs[1].append_as_leader(batch(), 0, 2000)


def test_folders_know_their_broker_and_are_locked() -> None:
    box = Box()
    with pytest.raises(UsageError, match="in use"):
        box.open_manager()
    box.files.crash()
    for key in ("node.id", "broker.id"):
        content = f"version=1\n{key}=2\ncluster.id=c\n".encode()
        box.files.write_atomic("/d/meta.properties", content)
        with pytest.raises(UsageError, match=rf"{key} 2"):
            box.open_manager()
        box.files.crash()


def test_flush_messages_and_flush_ms_move_the_recovery_point() -> None:
    box = Box()
    log = box.log(flush_messages="3", flush_ms="1000")
    for _ in range(4):
        log.append_as_leader(batch(), 0, box.clock.now_ms())
    assert log.recovery_point == 3
    box.clock.advance(999)
    box.manager.flush_due()
    box.manager.flush_due()
    assert log.recovery_point == 3
    box.clock.advance(2)
    box.manager.flush_due()
    box.manager.checkpoint_recovery_points()
    assert log.recovery_point == 4
    assert box.files.read("/d/recovery-point-offset-checkpoint") == b"0\n1\nt 0 4\n"
    box.manager.checkpoint_high_watermarks()
    assert box.files.read("/d/replication-offset-checkpoint") == b"0\n1\nt 0 4\n"


def test_an_error_met_off_the_loop_waits_for_the_next_tick() -> None:
    box = Box(dirs=("/a", "/b"))
    logs = [box.log(topic=name, flush_ms="1000") for name in ("t", "u")]
    for log in logs:
        log.append_as_leader(batch(), 0, box.clock.now_ms())
    box.clock.advance(1000)
    box.files.failing_prefix = logs[0].path
    box.manager.flush_due()
    assert ("t", 0) in box.manager.logs  # the offloaded job only noted it
    box.manager.maintain_files()
    assert list(box.manager.logs) == [("u", 0)]


def test_a_failed_fsync_of_a_rolled_segment_and_a_cut_need_no_flush_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box(dirs=("/a", "/b"))
    logs = [box.log(topic=name) for name in ("t", "u")]
    for log in logs:
        for _ in range(3):
            log.append_as_leader(batch(), 0, 2000)
        log.fsync_now()
    box.manager.checkpoint_recovery_points()
    logs[1].truncate_to(1)
    fsync = MemoryFile.fsync

    def refuse(self: MemoryFile) -> None:
        if self.path.startswith(logs[0].path) and self.path.endswith(".log"):
            raise OSError(errno.EIO, "injected", self.path)
        fsync(self)

    monkeypatch.setattr(MemoryFile, "fsync", refuse)
    logs[0].roll(2000)
    assert box.manager.offline_directories == []
    box.manager.maintain_files()
    assert box.manager.offline_directories == [logs[0].path[:2]]
    points = box.files.read(f"{logs[1].path[:2]}/recovery-point-offset-checkpoint")
    assert points.endswith(b"u 0 1\n")


def test_silent_producers_are_forgotten_by_a_tick_of_their_own() -> None:
    box = Box()
    log = box.log()
    now_ms = box.clock.now_ms()
    view = batch(producer_id=7, epoch=0, sequence=0, timestamp=now_ms)
    log.append_as_leader(view, 0, now_ms)
    box.clock.advance(86_400_000 - 1)
    box.manager.expire_producers()
    assert 7 in log.producers.entries
    box.clock.advance(1)
    box.manager.retain_all()
    assert 7 in log.producers.entries
    box.manager.expire_producers()
    assert not log.producers.entries


def test_a_producer_of_old_records_is_not_forgotten_amid_its_batches() -> None:
    """A backfill: a batch that is sent again would be appended twice."""
    box = Box()
    log = box.log()
    now_ms = box.clock.now_ms()
    old_ms = now_ms - 9 * 86_400_000
    for sequence in range(2):
        view = batch(producer_id=7, epoch=0, sequence=sequence, timestamp=old_ms)
        log.append_as_leader(view, 0, now_ms)
        box.manager.expire_producers()
    log = box.restart()
    box.manager.expire_producers()
    again = batch(producer_id=7, epoch=0, sequence=1, timestamp=old_ms)
    assert log.append_as_leader(again, 0, now_ms).duplicate
    box.manager.expire_producers()
    assert not log.producers.entries, "it has written nothing since the last sweep"


@pytest.mark.parametrize("known", [True, False], ids=["by their batches", "by a replay"])
def test_producers_that_write_behind_a_truncation_are_not_forgotten(known: bool) -> None:
    box = Box()
    log = box.log()
    now_ms = box.clock.now_ms()
    for sequence in range(9):
        view = batch(producer_id=7, epoch=0, sequence=sequence, timestamp=1000)
        log.append_as_leader(view, 0, now_ms)
    box.manager.expire_producers()
    log.truncate_to(6 if known else 2)
    sequence, found = log.log_end_offset, []
    for _ in range(2):
        view = batch(producer_id=7, epoch=0, sequence=sequence, timestamp=1000)
        found.append(log.append_as_leader(view, 0, now_ms).duplicate)
        box.manager.expire_producers()
    assert found == [False, True]


def test_when_producers_expire_may_change_while_the_broker_runs() -> None:
    box = Box()
    log = box.log()
    now_ms = box.clock.now_ms()
    log.append_as_leader(batch(producer_id=7, epoch=0, sequence=0, timestamp=now_ms), 0, now_ms)
    box.clock.advance(1000)
    box.manager.set_broker_properties({"producer.id.expiration.ms": "1001"})
    box.manager.expire_producers()
    assert 7 in log.producers.entries
    box.manager.set_broker_properties({"producer.id.expiration.ms": "1000"})
    box.manager.expire_producers()
    assert not log.producers.entries


def test_new_logs_go_to_the_folder_with_the_fewest() -> None:
    box = Box(dirs=("/a", "/b", "/c"))
    folders = [box.log(topic=f"t{number}").path[:2] for number in range(7)]
    assert sorted(folders[:3]) == sorted(folders[3:6]) == ["/a", "/b", "/c"]
    gone = folders[0]
    box.manager.delete(box.manager.logs["t0", 0])
    box.manager.delete(box.manager.logs["t3", 0])
    assert [box.log(topic=name).path[:2] for name in ("x", "y")].count(gone) >= 1
    box.files.failing_prefix = "/b"
    with pytest.raises(KafkaError):
        next(log for log in box.manager.logs.values() if log.path[:2] == "/b").append_as_leader(
            batch(), 0, 2000
        )
    assert box.manager.offline_directories == ["/b"]
    after = {box.log(topic=f"n{number}").path[:2] for number in range(4)}
    assert after == {"/a", "/c"}


def test_a_folder_that_fails_at_start_leaves_the_others() -> None:
    box = Box(dirs=("/a", "/b"))
    for name in ("t", "u"):
        box.log(topic=name).append_as_leader(batch(), 0, 2000)
    kept = next(log for log in box.manager.logs.values() if log.path[:2] == "/b")
    box.manager.close()
    box.files.failing_prefix = "/a"
    box.open_manager()
    assert list(box.manager.logs) == [(kept.topic, 0)]
    assert box.manager.offline_directories == ["/a"]
    assert len(box.manager.directory_ids) == 1
    box.manager.logs[kept.topic, 0].append_as_leader(batch(), 0, 2000)
    box.manager.checkpoint_recovery_points()
    box.manager.checkpoint_high_watermarks()


def test_a_folder_that_is_full_at_start_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a crash left has to be written anew there: leader epochs that were cut with the log."""
    box = Box(dirs=("/a", "/b"))
    for name in ("t", "u"):
        for epoch in range(5):
            box.log(topic=name).append_as_leader(batch(), epoch, 2000)
    paths = {log.path: key for key, log in box.manager.logs.items()}
    write = box.files.write_atomic

    def fill_up(path: str, data: bytes) -> None:
        if path.startswith("/a/"):
            raise OSError(errno.ENOSPC, "no space left on device", path)
        write(path, data)

    monkeypatch.setattr(box.files, "write_atomic", fill_up)
    box.files.crash(tear=0)
    box.open_manager()
    assert box.manager.offline_directories == ["/a"]
    assert list(box.manager.logs) == [key for path, key in paths.items() if path[:2] == "/b"]


def test_a_start_without_descriptors_for_all_logs_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are not open would be made anew: empty, in the other folder, and in their ISR."""
    box = Box(dirs=("/a", "/b"))
    for name in ("t", "u", "v"):
        box.log(topic=name).append_as_leader(batch(), 0, 2000)
    box.manager.close(5)
    held = box.files.names("/a"), box.files.names("/b")
    opened = box.files.open

    def refuse(path: str, **_: object) -> MemoryFile:
        if path.startswith("/a/v-0/"):
            raise OSError(errno.EMFILE, "too many open files", path)
        return opened(path)

    with monkeypatch.context() as patch, pytest.raises(UsageError, match="ulimit -n"):
        patch.setattr(box.files, "open", refuse)
        box.open_manager()
    assert (box.files.names("/a"), box.files.names("/b")) == held
    box.files.crash(tear=HUGE)  # the end of that process: nothing is locked
    box.open_manager()
    assert [log.log_end_offset for log in box.manager.logs.values()] == [1, 1, 1]
    assert box.manager.clean_broker_epoch == 5


def test_a_truncation_lowers_the_recovery_point_on_disk_at_the_next_tick() -> None:
    box, log = nine_checkpointed()
    path = "/d/recovery-point-offset-checkpoint"
    assert box.files.read(path).endswith(b"t 0 9\n")
    log.truncate_to(4)
    box.manager.maintain_files()
    assert box.files.read(path).endswith(b"t 0 4\n")
    log.truncate_fully_and_start_at(2)
    box.manager.maintain_files()
    assert box.files.read(path).endswith(b"t 0 2\n")


def test_a_truncation_lowers_the_log_start_on_disk_at_the_next_tick() -> None:
    """Else the log would be put away after a crash: its end lies below the start on disk."""
    box, log = nine_checkpointed()
    log.delete_records_before(7)
    box.manager.checkpoint_log_starts()
    log.truncate_to(4)
    box.manager.maintain_files()
    log.append_as_leader(batch(), 0, 2000)
    log.fsync_now()
    log = box.crash()
    assert (log.log_start_offset, everything(log)) == (4, [4])


def test_too_many_open_files_are_no_fault_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box()
    log = box.log()
    log.append_as_leader(batch(), 0, 2000)

    def refuse(path: str, **_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(box.files, "open", refuse)
        with pytest.raises(KafkaError) as raised:
            box.log(topic="another")
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert box.manager.offline_directories == []
    log.append_as_leader(batch(), 0, 2000)
    assert everything(log) == [0, 1]
    assert everything(box.log(topic="another")) == []


def test_a_log_that_lack_of_descriptors_keeps_from_closing_costs_its_folder_the_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of it was synced: after a loss of power the mark would have its tail trusted."""
    box = Box(dirs=("/a", "/b"))
    logs = [box.log(topic=name) for name in ("t", "u")]
    for log in logs:
        log.append_as_leader(batch(producer_id=1, epoch=0, sequence=0), 0, 2000)

    def none_left(offset: int, producers: Producers) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(logs[0].snapshots, "write", none_left)
    box.manager.close(5)
    held, other = (log.path.rpartition("/")[0] for log in logs)
    assert ".kafka_cleanshutdown" not in box.files.names(held)
    assert ".kafka_cleanshutdown" in box.files.names(other)


@pytest.mark.parametrize("name", ["t-00", "t-1-", "t-²", "-3"])
def test_folders_that_are_no_logs_are_left_alone(name: str) -> None:
    box = Box()
    box.log().append_as_leader(batch(), 0, 2000)
    metadata = box.files.read("/d/t-0/partition.metadata")
    box.files.write_atomic(f"/d/{name}/partition.metadata", metadata)
    log = box.restart()
    assert log.path == "/d/t-0" and log.log_end_offset == 1
    assert list(box.manager.logs) == [("t", 0)]
    assert {"t-0", name} <= set(box.files.names("/d"))


def test_that_the_clean_mark_is_used_up_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure must not bring it back: records that were not synced would be trusted."""
    box = Box(dirs=(str(tmp_path),))
    box.files = SystemFiles()  # type: ignore[assignment]
    box.open_manager()
    box.log().append_as_leader(batch(), 0, 2000)
    box.manager.close(5)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    names_when_synced: list[set[str]] = []

    def sync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path):
            names_when_synced.append({path.name for path in tmp_path.iterdir()})

    monkeypatch.setattr(os, "fsync", sync)
    box.open_manager()
    assert names_when_synced and CLEAN_SHUTDOWN not in names_when_synced[-1]
    assert not list(tmp_path.glob(f"{CLEAN_SHUTDOWN}*"))
