"""The share coordinator's shard: records, snapshots, the log that a load reads, pruning."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from headwater.testing.clocks import ManualClock
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import LEADERSHIP_PROOF, Decision, Now, each
from headwater_broker.coordinator.share_state import record_schemas as schemas
from headwater_broker.coordinator.share_state.config import ShareCoordinatorConfig
from headwater_broker.coordinator.share_state.log_histories import load_histories
from headwater_broker.coordinator.share_state.records import (
    NewerShareRecordError,
    kind_of,
    read_key,
    snapshot_key,
    snapshot_record,
)
from headwater_broker.coordinator.share_state.shard import ShareStateShard
from headwater_broker.replica.share.ports import SharePartitionKey, ShareState
from share_persister import acknowledged, available
from unit.coordinator.memory_log import MemoryLog

TOPIC = UUID(int=77)
CONFIG = ShareCoordinatorConfig(updates_per_snapshot=3, cold_snapshot_interval_ms=1_000)


def share_partition(partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey("g", TOPIC, partition)


class Driven:
    """A shard whose decisions are replayed at once, at rising offsets."""

    def __init__(self) -> None:
        self.shard = ShareStateShard(CONFIG)
        self.clock = ManualClock()
        self.kinds: list[int] = []
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard.loaded(self.now())

    def now(self) -> Now:
        return Now(self.clock.now_ms(), self.clock.monotonic() * 1000)

    def replay(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.replay(len(self.log), -1, -1, record.key, record.value)
            self.log.append((record.key, record.value))
            self.kinds.append(kind_of(record.key))

    def write(self, key: SharePartitionKey, state: ShareState) -> None:
        self.replay(self.shard.write(key, state, self.now(), 1))

    def initialize(self, key: SharePartitionKey, epoch: int = 1, start: int = 0) -> None:
        self.replay(self.shard.initialize(key, epoch, start, self.now(), 1))

    def lead(self, key: SharePartitionKey, epoch: int = 0) -> None:
        self.replay(self.shard.read(key, epoch, self.now(), 1))


def test_a_snapshot_follows_so_many_updates() -> None:
    driven, key = Driven(), share_partition()
    driven.initialize(key)
    driven.lead(key)
    for offset in range(7):
        driven.write(key, ShareState(1, 0, -1, (acknowledged(offset, offset),)))
    assert driven.kinds == [0, 1, 1, 1, 0, 1, 1, 1, 0]
    known = driven.shard.states[key]
    assert (known.snapshot_epoch, known.updates) == (2, 0)
    assert known.batches == [acknowledged(0, 6)]


def test_a_newer_state_epoch_takes_a_snapshot() -> None:
    """An update has no state epoch: a successor would not learn of it."""
    driven, key = Driven(), share_partition()
    driven.initialize(key)
    driven.initialize(key, 5, 3)
    assert driven.kinds == [0, 0]
    assert driven.shard.states[key].state_epoch == 5


def test_a_read_writes_only_a_newer_leader_epoch() -> None:
    driven, key = Driven(), share_partition()
    driven.initialize(key)
    for epoch, records in ((4, 1), (4, 0), (5, 1)):
        decision = driven.shard.read(key, epoch, driven.now(), 9)
        assert len(decision.records) == records
        reply = decision.confirmations if records else decision.leader_replies
        assert reply == [(9, ShareState(1, epoch, 0))]
        driven.replay(decision)


def test_the_log_is_needed_from_the_oldest_snapshot_on() -> None:
    driven = Driven()
    cold, busy = share_partition(0), share_partition(1)
    driven.initialize(cold)
    driven.initialize(busy)
    driven.lead(busy)
    for offset in range(7):
        driven.write(busy, ShareState(1, 0, offset))
    assert driven.shard.oldest_needed() == 0
    assert driven.shard.records_in_vain() == 8
    driven.clock.advance(1_000)
    for decision in each(driven.shard.tick(driven.now())):
        driven.replay(decision)
    assert driven.kinds[-2:] == [0, 0]
    assert driven.shard.oldest_needed() == len(driven.log) - 2
    assert driven.shard.records_in_vain() == 0
    driven.clock.advance(1_000)  # nothing is in vain: no snapshot of what is still as it was
    assert not any(d.records for d in each(driven.shard.tick(driven.now())))
    driven.replay(driven.shard.delete(cold, driven.now(), 1))
    driven.replay(driven.shard.delete(busy, driven.now(), 1))
    assert driven.shard.oldest_needed() == len(driven.log)


def test_share_partitions_of_deleted_topics_get_tombstones() -> None:
    driven = Driven()
    other = SharePartitionKey("g", UUID(int=78), 0)
    for key in (share_partition(0), share_partition(1), other):
        driven.initialize(key)
    for decision in each(driven.shard.forget_topics(lambda t: t == TOPIC, driven.now(), 1)):
        driven.replay(decision)
    assert list(driven.shard.states) == [other]
    assert [read_key(key).partition for key, value in driven.log if value is None] == [0, 1]


def test_keys_are_those_of_kafka() -> None:
    """As Kafka's serde writes them: int16 kind, int16 length, group, uuid, int32 partition."""
    key = SharePartitionKey("gé", UUID(int=1), 2)
    assert snapshot_key(key) == b"\0\0\0\3g\xc3\xa9" + UUID(int=1).bytes + b"\0\0\0\2"
    assert read_key(snapshot_key(key)) == key


def test_records_of_a_newer_broker_end_the_load() -> None:
    shard = ShareStateShard(CONFIG)
    with pytest.raises(NewerShareRecordError, match="version 1"):
        shard.replay(0, -1, -1, snapshot_key(share_partition()), b"\0\1")
    shard.replay(1, -1, -1, b"\0\x63unknown kind", b"")
    shard.replay(2, -1, -1, LEADERSHIP_PROOF.key, LEADERSHIP_PROOF.value)
    assert not shard.states


def test_an_update_of_a_deleted_partition_is_skipped() -> None:
    """Its snapshot was pruned; its tombstone follows."""
    driven, key = Driven(), share_partition()
    driven.initialize(key)
    driven.lead(key)
    _, (update, value) = driven.log
    shard = ShareStateShard(CONFIG)
    shard.replay(1, -1, -1, update, value)
    shard.replay(2, -1, -1, snapshot_record(key, None).key, None)
    assert not shard.states


def test_a_successor_loads_what_is_left_of_the_log() -> None:
    async def story() -> None:
        log, clock = MemoryLog(), ManualClock()
        runtimes = [
            CoordinatorRuntime(
                "__share_group_state",
                lambda _p: ShareStateShard(CONFIG),
                log,
                clock,
                load=load_histories,
            )
            for _ in range(2)
        ]
        first, second = runtimes
        await lead(first)
        keys = [share_partition(n) for n in range(3)]
        for key in keys:
            await first.run(0, lambda s, now, t, key=key: s.initialize(key, 1, 0, now, t))  # type: ignore[misc]
        await first.run(0, lambda s, now, t: s.read(keys[1], 2, now, t))
        for offset in range(6):
            change = ShareState(1, 2, -1, (acknowledged(offset, offset), available(20, 21)))
            await first.run(0, lambda s, now, t, c=change: s.write(keys[1], c, now, t))  # type: ignore[misc]
        await first.run(0, lambda s, now, t: s.delete(keys[0], now, t))
        shard = first.shard(0)
        assert shard.is_settled(log.high_watermark)
        log.delete_before(0, 0, shard.oldest_needed())
        assert log.start == 2
        await lead(second)
        assert second.shard(0).states == shard.states
        assert second.shard(0).oldest_needed() == shard.oldest_needed()
        for runtime in runtimes:
            await runtime.close()

    async def lead(runtime: CoordinatorRuntime[ShareStateShard]) -> None:
        runtime.on_leader(0, 0)
        while runtime.is_loading:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(story(), 30))


def test_what_is_not_committed_prunes_nothing() -> None:
    driven = Driven()
    driven.initialize(share_partition())
    assert not driven.shard.is_settled(0)
    assert driven.shard.is_settled(1)


def test_a_snapshot_value_is_kafkas() -> None:
    value = schemas.ShareSnapshotValue(
        snapshot_epoch=0, state_epoch=1, leader_epoch=2, start_offset=3,
        create_timestamp=4, write_timestamp=5, state_batches=(),
    )  # fmt: skip
    record = snapshot_record(share_partition(), value)
    assert record.value == (
        b"\0\0" + b"\0\0\0\0" + b"\0\0\0\1" + b"\0\0\0\2" + (3).to_bytes(8, "big")
        + (4).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"\1" + b"\0"
    )  # fmt: skip
