"""Replicas move between the data folders of one broker: whole, while written, after any crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers, patch_base_offset
from headwater_broker.log.cleaner import LogCleaner
from headwater_broker.log.compaction_job import CleanJob, CleanResult, clean
from headwater_broker.log.future_logs import (
    FutureCase,
    FutureFacts,
    judge_future,
    parse_future_name,
)
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.alter_log_dirs import AlterLogDirsManager, MoveSizes
from headwater_broker.replica.loop_steps import begin_epoch, run_now
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.replication_quota import UNLIMITED, ReplicationQuotas
from unit.log.compacting import end_transaction, records_batch
from unit.log.harness import TOPIC_ID, Box, batch
from unit.log.test_segment_swap import PowerLoss, StoppingFiles

KEY = ("t", 0)
HUGE = 1 << 30
SMALL = {"segment_bytes": "700", "index_interval_bytes": "200"}


WHOLE_MOVES = MoveSizes()


class Mover:
    """A box with two folders, its one replica hosted in /a, and its moves."""

    def __init__(self, box: Box, sizes: MoveSizes = WHOLE_MOVES) -> None:
        self.box = box
        self.told: list[UUID] = []
        self.answer = ErrorCode.NONE
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.control_lock = asyncio.Lock()
        self.between: Callable[[], None] = lambda: None
        """Called while the disk is at work, as other turns of the loop are."""
        self.host()
        self.quotas = ReplicationQuotas(1, box.clock, Windows(), Windows())
        self.moves = AlterLogDirsManager(
            box.manager,
            SimpleNamespace(  # type: ignore[arg-type]
                partitions=self.partitions, quotas=self.quotas, control_lock=self.control_lock
            ),
            box.clock,
            off_loop=self._off_loop,
            assign=lambda *args: self.assign(*args),
            sizes=sizes,
        )

    def host(self) -> None:
        for key, log in self.box.manager.logs.items():
            self.partitions[key] = Partition(
                log, 1, self.box.clock, ReplicationConfig(), high_watermark=0,
                propose=lambda partition: None,
            )  # fmt: skip

    async def _off_loop(self, job: Callable[[], None]) -> None:
        job()
        self.between()

    async def assign(self, topic_id: UUID, partition: int, directory: UUID, ms: int) -> ErrorCode:
        assert (topic_id, partition, ms > 0) == (TOPIC_ID, 0, True)
        self.told.append(directory)
        self.between()
        return self.answer

    @property
    def log(self) -> UnifiedLog:
        return self.partitions[KEY].log

    async def run(self) -> None:
        """Until nothing can be done any more."""
        self.moves.tick()
        await self.moves.settle()

    async def move(self, path: str) -> None:
        await self.moves.alter(*KEY, path)
        await self.run()


def box_of(files: StoppingFiles | None = None) -> Box:
    box = Box(dirs=("/a", "/b"))
    if files is not None:
        box.files = files
        box.manager.close()
        box.open_manager()
    return box


def written(
    count: int = 60,
    files: StoppingFiles | None = None,
    sizes: MoveSizes = WHOLE_MOVES,
    **settings: str,
) -> Mover:
    box = box_of(files)
    log = box.log(**SMALL, **settings)
    assert log.path == "/a/t-0"
    for number in range(count):
        log.append_as_leader(batch(1 + number % 3), number // 20, 2000)
    return Mover(box, sizes)


def everything(log: UnifiedLog) -> list[tuple[int, int, int]]:
    found, at = [], log.local_log_start_offset
    while at < log.log_end_offset:
        part = log.read(at, HUGE, HUGE)
        if not part.size_bytes:
            break
        for _, header in iter_headers(part.file.read_at(part.position, part.size_bytes)):
            found.append((header.base_offset, header.leader_epoch, header.crc))
            at = header.next_offset
    return found


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def identity(manager: LogManager, path: str) -> UUID:
    return manager.futures.directory(path).directory_id


def test_the_table_of_what_is_found_at_start() -> None:
    found = {
        (c, t, o): judge_future(FutureFacts(bool(c), bool(t), bool(o)))
        for c in (0, 1) for t in (0, 1) for o in (0, 1)
    }  # fmt: skip
    assert {case for (c, _, _), case in found.items() if c} == {FutureCase.A_RESUME}
    assert found[0, 1, 0] is found[0, 1, 1] is FutureCase.B_REPLACE
    assert (found[0, 0, 0], found[0, 0, 1]) == (FutureCase.C_WAIT, FutureCase.D_ASIDE)
    assert parse_future_name("a.b-c-3.0f-future") == (("a.b-c", 3), "0f")
    assert parse_future_name("t-0-future") is parse_future_name("t-0.0f-delete") is None


def test_a_move_takes_all_and_the_old_folder_goes() -> None:
    async def story() -> None:
        mover = written()
        before, old = everything(mover.log), mover.log
        old.delete_records_before(5)
        await mover.move("/b")
        log, manager = mover.log, mover.box.manager
        assert log.path == "/b/t-0" and manager.logs[KEY] is log and log is not old
        assert everything(log) == [row for row in before if row[0] >= 3]
        assert log.epochs.entries == old.epochs.entries
        assert (log.log_start_offset, log.log_end_offset) == (5, old.log_end_offset)
        assert mover.told == [log.directory_id] == [identity(manager, "/b")]
        assert not manager.futures.logs and old.is_closed
        mover.box.clock.advance(120_000)
        manager.remove_due_files()
        manager.remove_due_files()
        mover.box.clock.advance(120_000)
        manager.remove_due_files()
        assert not [name for name in mover.box.files.names("/a") if name.startswith("t-0")]
        log.append_as_leader(batch(), 3, 2000)
        again = mover.box.crash(tear=HUGE)
        assert again.path == "/b/t-0" and again.log_start_offset == 5
        assert [row[:2] for row in everything(again)][-1] == (old.log_end_offset, 3)

    run(story())


def test_what_is_written_cut_and_deleted_meanwhile_reaches_the_copy() -> None:
    async def story(seed: int) -> int:
        mover = written(200, sizes=MoveSizes(slice_bytes=300, final_bytes=400))
        entropy, turns, epoch = mover.box.entropy, 0, 30

        def busy() -> None:
            nonlocal turns, epoch
            turns += 1
            log = mover.log
            if turns > 60:
                return
            what = int(entropy.uniform(0, 10))
            if what < 6:
                log.append_as_leader(batch(1 + what), epoch, 2000)
            elif what == 6:
                epoch += 1
                log.truncate_to(int(entropy.uniform(log.log_start_offset, log.log_end_offset)))
            elif what == 7:
                span = log.log_end_offset - log.log_start_offset
                log.delete_records_before(log.log_start_offset + span // 9)
            elif what == 8:
                log.retain(2000, None, high_watermark=log.log_end_offset)
            elif turns % 3 == 0:
                log.truncate_fully_and_start_at(log.log_end_offset + 7)

        mover.between = busy
        for _ in range(seed):
            entropy.uniform(0, 1)
        await mover.moves.alter(*KEY, "/b")
        old = mover.log
        while mover.log is old:
            await mover.run()
        assert everything(mover.log) == everything(old)
        assert mover.log.epochs.entries == old.epochs.entries
        assert (mover.log.log_start_offset, mover.log.log_end_offset) == (
            old.log_start_offset,
            old.log_end_offset,
        )
        return turns

    assert sum(asyncio.run(story(seed)) for seed in range(60)) > 600


def test_producers_and_aborted_transactions_move_too() -> None:
    async def story() -> None:
        mover = written(0)
        log = mover.log
        view = records_batch([(b"t", b"1")], producer=(7, 0, 0), transactional=True)
        log.append_as_leader(view, 0, 3000, origin=AppendOrigin.COORDINATOR)
        for _ in range(30):
            log.append_as_leader(batch(), 0, 2000)
        log.delete_records_before(20)
        log.retain(2000, None, high_watermark=log.log_end_offset)
        assert log.bases[0] > 0
        end_transaction(log, 7, 0, commit=False)
        aborted = log.aborted_transactions(0, HUGE)
        assert aborted == [(7, 0)]
        await mover.move("/b")
        for moved in (mover.log, mover.box.crash(tear=HUGE)):
            assert moved.path == "/b/t-0"
            assert moved.aborted_transactions(0, HUGE) == aborted
            assert 7 in moved.producers.entries

    run(story())


def test_a_log_that_ends_in_a_hole_is_no_log_without_gaps_in_its_new_folder() -> None:
    """What is written behind the hole would be taken for the rest of a loss."""

    async def story() -> None:
        mover = written(0)
        for offset in (0, 1, 9):
            data = memoryview(bytearray(batch()))
            patch_base_offset(data, 0, offset, 0)
            mover.log.append_as_follower(data)
        mover.log.truncate_to(7)
        await mover.move("/b")
        moved = mover.log
        moved.roll(2000)
        moved.append_as_leader(batch(), 1, 2000)
        mover.box.files.remove(f"/b/t-0/{0:020d}.index")  # so that the segment is read at start
        moved = mover.box.crash(tear=HUGE)
        assert moved.path == "/b/t-0"
        assert [base for base, *_ in everything(moved)] == [0, 1, 7]

    run(story())


def steps_of_a_move() -> int:
    files = StoppingFiles()
    mover = written(30, files)
    files.left = HUGE
    run(mover.move("/b"))
    assert mover.log.path == "/b/t-0"
    return HUGE - files.left


@pytest.mark.parametrize("is_torn", [False, True], ids=["process", "power"])
def test_a_crash_at_any_step_leaves_one_log_with_all_and_the_move_ends(is_torn: bool) -> None:
    steps = steps_of_a_move()
    assert steps > 10
    resumed = 0
    for step in range(steps):
        files = StoppingFiles()
        mover = written(30, files)
        mover.log.fsync_now()
        mover.box.manager.checkpoint_recovery_points()
        mover.log.delete_records_before(4)
        mover.box.manager.checkpoint_log_starts()
        before = everything(mover.log)
        files.left = step
        with pytest.raises(PowerLoss):
            run(mover.move("/b"))
        files.left = None
        log = mover.box.crash(tear=0 if is_torn else HUGE)
        assert everything(log) == before, step
        current = [
            path for path in ("/a", "/b") if "t-0" in mover.box.files.names(path)
        ]  # fmt: skip
        assert current == [log.path[:2]], step
        assert not any(n.endswith("-stray") for p in ("/a", "/b") for n in files.names(p)), step
        again = Mover(mover.box)
        is_left = bool(mover.box.manager.futures.logs)
        resumed += is_left
        run(again.run())
        assert everything(again.log) == before
        assert (again.log.path == "/b/t-0") is (is_left or log.path == "/b/t-0")
    assert resumed > steps // 2


def test_kafkas_errors_and_a_folder_remembered() -> None:
    async def story() -> None:
        mover = written(3)
        manager = mover.box.manager

        async def code(path: str, topic: str = "t") -> ErrorCode:
            with pytest.raises(KafkaError) as caught:
                await mover.moves.alter(topic, 0, path)
            return caught.value.code

        assert await code("/c") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await code("/a", "u") is ErrorCode.REPLICA_NOT_AVAILABLE
        assert await code("/a", "v") is ErrorCode.REPLICA_NOT_AVAILABLE
        assert await code("/a", "x") is ErrorCode.REPLICA_NOT_AVAILABLE
        placed = {name: mover.box.log(topic=name).path[:2] for name in ("u", "v", "x")}
        assert set(placed.values()) == {"/a"}
        manager.delete(manager.logs["x", 0])
        assert mover.box.log(topic="x").path == "/b/x-0", "a folder is remembered once"
        long = "l" * 220
        mover.partitions[long, 0] = Partition(
            mover.box.log(topic=long), 1, mover.box.clock, ReplicationConfig(),
            high_watermark=0, propose=lambda partition: None,
        )  # fmt: skip
        other = "/a" if mover.partitions[long, 0].log.path[:2] == "/b" else "/b"
        assert await code(other, long) is ErrorCode.INVALID_TOPIC_EXCEPTION
        await mover.moves.alter(*KEY, "/a")
        assert not manager.futures.logs, "it is there already"
        mover.box.files.failing_prefix = "/b"
        assert await code("/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.offline_directories == ["/b"]
        assert await code("/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert mover.log.append_as_leader(batch(), 3, 2000).base_offset > 0

    run(story())


def test_another_target_ends_the_first_move_and_deletion_ends_both() -> None:
    async def story() -> None:
        mover = written(5)
        mover.answer = ErrorCode.STALE_BROKER_EPOCH
        await mover.move("/b")
        futures = mover.box.manager.futures.logs
        assert mover.log.path == "/a/t-0" and list(futures) == [KEY], "the controller refused"
        await mover.moves.alter(*KEY, "/a")
        assert not futures
        await mover.move("/b")
        assert list(futures) == [KEY]
        mover.box.manager.delete(mover.box.manager.logs[KEY])
        assert not futures
        kept = [n for p in ("/a", "/b") for n in mover.box.files.names(p) if n.startswith("t-0")]
        assert kept and all(name.endswith("-delete") for name in kept)
        mover.box.files.crash(tear=HUGE)
        assert not mover.box.open_manager().logs

    run(story())


def test_a_copy_that_ends_after_it_was_told_is_taken_back() -> None:
    async def story() -> None:
        mover = written(5)
        manager = mover.box.manager
        told = mover.assign

        async def fail_after(*args: Any) -> ErrorCode:
            code = await told(*args)
            manager.futures.drop(KEY)
            return code

        mover.assign = fail_after  # type: ignore[method-assign]
        await mover.move("/b")
        await mover.run()
        assert mover.told == [identity(manager, "/b"), identity(manager, "/a")]
        assert mover.log.path == "/a/t-0"

    run(story())


@pytest.mark.parametrize("answer", [ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH])
def test_no_other_folder_is_told_than_the_one_that_the_controller_was_told_of(
    answer: ErrorCode,
) -> None:
    async def story() -> None:
        mover = written(5)
        mover.answer = answer
        futures, told = mover.box.manager.futures, identity(mover.box.manager, "/b")
        meanwhile: list[bool] = []
        mover.between = lambda: meanwhile.append(futures.folder_of(mover.log) == told)
        await mover.move("/b")
        assert meanwhile[-1] and not meanwhile[0]
        assert (futures.folder_of(mover.log) == told) is (answer is ErrorCode.NONE)
        assert mover.log.directory_id == futures.folder_of(mover.log)

    run(story())


def test_a_move_does_not_end_while_an_epoch_is_written_into_the_folder_that_it_leaves() -> None:
    """The write would make the folder anew: a log could not be moved back there."""

    async def story() -> None:
        mover = written(5)
        log = mover.log
        steps = begin_epoch(log, 7)
        async with mover.control_lock:
            write = next(steps)
            await mover.move("/b")
            assert mover.log is log
            assert write is not None
            write()
            run_now(steps)
        await mover.run()
        assert mover.log.path == "/b/t-0"
        assert mover.log.epochs.latest == 7
        assert "t-0" not in mover.box.files.names("/a")

    run(story())


@pytest.mark.parametrize("failing", ["/a", "/b"])
def test_a_disk_that_fails_during_a_move_takes_only_its_own_log(failing: str) -> None:
    async def story() -> None:
        mover = written(20)
        manager, log = mover.box.manager, mover.log
        mover.answer = ErrorCode.STALE_BROKER_EPOCH
        await mover.move("/b")
        assert manager.futures.logs
        log.append_as_leader(batch(), 3, 2000)
        mover.box.files.failing_prefix = failing
        await mover.run()
        assert not manager.futures.logs
        assert manager.offline_directories == [failing]
        assert (KEY in manager.logs) is (failing == "/b")
        assert log.is_closed is (failing == "/a")
        mover.box.files.failing_prefix = None
        mover.box.files.crash(tear=HUGE)
        manager = mover.box.open_manager()
        assert list(manager.logs) == list(manager.futures.logs) == [KEY], "both are there again"

    run(story())


def test_a_copy_obeys_its_rate() -> None:
    async def story() -> None:
        mover = written(200)
        mover.quotas.set_rates(UNLIMITED, UNLIMITED, 1000)
        size, spent_s = mover.log.size_bytes, 0
        await mover.moves.alter(*KEY, "/b")
        while mover.log.path != "/b/t-0":
            mover.log.append_as_leader(batch(), 30, 2000)
            await mover.run()
            mover.box.clock.advance(1000)
            spent_s += 1
        assert size / 1000 - 11 < spent_s < size / 1000 + 11

    run(story())


def test_a_log_that_is_copied_is_not_compacted() -> None:
    async def story() -> None:
        mover = written(20, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        mover.answer = ErrorCode.STALE_BROKER_EPOCH
        await mover.move("/b")
        assert await compacted(mover) == 0
        mover.answer = ErrorCode.NONE
        await mover.run()
        assert mover.log.path == "/b/t-0"
        assert await compacted(mover) > 0

    async def compacted(mover: Mover) -> int:
        cleaner = directory_cleaner(mover)
        await cleaner.run()
        return cleaner.meter.runs

    run(story())


def directory_cleaner(mover: Mover) -> LogCleaner:
    async def work(job: CleanJob) -> CleanResult:
        return clean(mover.box.files, job, lambda size: None)

    return LogCleaner(mover.box.manager, work, mover.box.clock)
