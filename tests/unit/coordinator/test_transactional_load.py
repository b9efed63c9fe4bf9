"""A group coordinator loads TxnOffsetCommits of a real log as their transactions ended."""

from __future__ import annotations

import asyncio

import pytest

from headwater.records.builder import BatchBuilder
from headwater.records.control import ControlType, build_marker
from headwater.system import SystemClock
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.records import OffsetCommitValue, offset_record
from headwater_broker.coordinator.group.shard import GroupShard
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.unified_log import UnifiedLog
from unit.coordinator.test_compacted_load import OnDisk
from unit.log.compacting import compact, compacted_log
from unit.log.harness import Box

GROUP = "g"
T = ("t", 0)


class OffsetsLog:
    """A partition of __consumer_offsets on a disk in memory."""

    def __init__(self) -> None:
        self.box = Box()
        self.log: UnifiedLog = compacted_log(self.box)

    def commit(self, offset: int, producer_id: int = -1) -> None:
        """An offset of t-0: a plain commit, or one within the producer's transaction."""
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=2000)
        record = offset_record(GROUP, *T, value)
        builder = BatchBuilder()
        builder.append(2000, record.key, record.value)
        is_open = producer_id >= 0
        batch = builder.build(
            producer_id=producer_id, producer_epoch=0 if is_open else -1, transactional=is_open
        )
        self._append(batch)

    def end(self, kind: ControlType, producer_id: int) -> None:
        """The marker."""
        self._append(
            build_marker(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=2000
            )
        )

    def _append(self, batch: bytearray) -> None:
        self.log.append_as_leader(memoryview(batch), 0, 2000, origin=AppendOrigin.COORDINATOR)

    def loaded(self) -> GroupShard:
        """The shard that a coordinator makes of the log."""
        shards: list[GroupShard] = []

        def make(partition: int) -> GroupShard:
            shards.append(GroupShard(GroupConfig()))
            return shards[-1]

        async def load() -> None:
            runtime = CoordinatorRuntime("offsets", make, OnDisk(self.log), SystemClock())
            runtime.on_leader(0, 0)
            while not runtime.is_ready(0):
                await asyncio.sleep(0)
            await runtime.close()

        asyncio.run(asyncio.wait_for(load(), 30))
        return shards[-1]


def committed(shard: GroupShard) -> int:
    group = shard.groups.get(GROUP)
    return -1 if group is None or T not in group.offsets else group.offsets[T].offset


def test_an_aborted_offset_is_not_loaded() -> None:
    offsets = OffsetsLog()
    offsets.commit(9, producer_id=5)
    offsets.end(ControlType.ABORT, 5)
    assert committed(offsets.loaded()) == -1
    offsets.commit(3)
    offsets.commit(10, producer_id=5)
    offsets.end(ControlType.ABORT, 5)
    shard = offsets.loaded()
    assert committed(shard) == 3 and not shard.pending_offsets(GROUP)


def test_a_committed_offset_is_loaded() -> None:
    offsets = OffsetsLog()
    offsets.commit(3)
    offsets.commit(9, producer_id=5)
    offsets.end(ControlType.COMMIT, 5)
    shard = offsets.loaded()
    assert committed(shard) == 9 and not shard.pending_offsets(GROUP)


@pytest.mark.parametrize(("commit", "wanted"), [(True, 9), (False, 3)])
def test_an_open_offset_is_loaded_as_pending(*, commit: bool, wanted: int) -> None:
    offsets = OffsetsLog()
    offsets.commit(3)
    offsets.commit(9, producer_id=5)
    shard = offsets.loaded()
    assert committed(shard) == 3 and shard.pending_offsets(GROUP) == {T}
    shard.replay_end_transaction(5, 0, commit=commit)
    assert committed(shard) == wanted


def test_a_later_plain_commit_wins_over_an_earlier_transaction() -> None:
    offsets = OffsetsLog()
    offsets.commit(9, producer_id=5)
    offsets.commit(4)
    shard = offsets.loaded()
    assert committed(shard) == 4 and shard.pending_offsets(GROUP) == {T}
    shard.replay_end_transaction(5, 0, commit=True)
    assert committed(shard) == 4 and not shard.pending_offsets(GROUP)
    offsets.end(ControlType.COMMIT, 5)
    assert committed(offsets.loaded()) == 4


def test_the_same_is_loaded_after_compaction() -> None:
    offsets = OffsetsLog()
    for offset in range(20):
        producer_id = offset % 3
        offsets.commit(100 + offset, producer_id=producer_id)
        if offset % 4:
            kind = ControlType.COMMIT if offset % 2 else ControlType.ABORT
            offsets.end(kind, producer_id)
    before = offsets.loaded()
    assert before.pending_offsets(GROUP) == set() and committed(before) == 119
    for _ in range(3):
        offsets.log.first_dirty_offset = 0
        compact(offsets.box)
        offsets.box.clock.advance(2000)
        after = offsets.loaded()
        assert (after.groups, after.pending_offsets(GROUP)) == (before.groups, set())
