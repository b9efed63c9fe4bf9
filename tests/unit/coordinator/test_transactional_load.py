"""A group coordinator loads TxnOffsetCommits of a real log as their transactions ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        self.live = GroupShard(GroupConfig())
        """The shard of the coordinator that appends."""

    def commit(
        self, offset: int | None, producer_id: int = -1, partition: tuple[str, int] = T
    ) -> None:
        """An offset of t-0: a plain commit (None: its tombstone), or one within the producer's
        transaction."""
        value = None
        if offset is not None:
            value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=2000)
        record = offset_record(GROUP, *partition, value)
        self.live.replay(
            self.log.log_end_offset, producer_id, min(producer_id, 0), record.key, record.value
        )
        builder = BatchBuilder()
        builder.append(2000, record.key, record.value)
        is_open = producer_id >= 0
        batch = builder.build(
            producer_id=producer_id, producer_epoch=0 if is_open else -1, transactional=is_open
        )
        self._append(batch)

    def end(self, kind: ControlType, producer_id: int) -> None:
        """The marker."""
        self.live.replay_end_transaction(producer_id, 0, commit=kind is ControlType.COMMIT)
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


PARTITIONS = st.sampled_from([("t", 0), ("t", 1)])
PRODUCERS = st.sampled_from([5, 6])
STEPS = st.one_of(
    st.tuples(st.just("commit"), PARTITIONS, st.just(-1)),
    st.tuples(st.just("delete"), PARTITIONS, st.just(-1)),
    st.tuples(st.just("transact"), PARTITIONS, PRODUCERS),
    st.tuples(st.sampled_from([ControlType.COMMIT, ControlType.ABORT]), st.just(T), PRODUCERS),
    st.tuples(st.just("compact"), st.just(T), st.just(-1)),
)


def state_of(shard: GroupShard) -> dict[str, Any]:
    """What clients can see of the offsets, now and if every open transaction committed."""
    rows = {name: dict(group.offsets) for name, group in shard.groups.items()}
    return {"offsets": rows, "pending": set(shard.pending_offsets(GROUP))}


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_a_successor_has_the_state_of_its_predecessor_after_any_history(steps: list[Any]) -> None:
    offsets = OffsetsLog()
    for number, (step, partition, producer_id) in enumerate(steps):
        if step == "compact":
            compact(offsets.box)
        elif isinstance(step, ControlType):
            offsets.end(step, producer_id)
        else:
            offsets.commit(None if step == "delete" else number, producer_id, partition)
    successor = offsets.loaded()
    assert state_of(successor) == state_of(offsets.live)
    for producer_id in (5, 6):
        successor.replay_end_transaction(producer_id, 0, commit=True)
        offsets.live.replay_end_transaction(producer_id, 0, commit=True)
        assert state_of(successor) == state_of(offsets.live)
