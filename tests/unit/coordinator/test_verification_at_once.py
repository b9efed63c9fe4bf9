"""Verification by a look at the shard, where this broker has the only replica of its log."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.test_runtime import Sums, add, loaded, play

HELD, OTHER = ("flights", 0), ("flights", 1)
NOW = Now(1_000_000, 0.0)
PRODUCER = ProducerIdentity(7, 0)


def opened() -> TransactionShard:
    """A shard whose id "t" has a transaction open."""
    shard = TransactionShard(TransactionConfig())
    init = ProducerInit(transactional_id="t", timeout_ms=60_000, fresh_producer_id=7)
    decisions = [shard.init_producer_id(init, NOW, 1)]
    for offset in (0, 1):
        for key, value in decisions[-1].records:
            shard.replay(offset, -1, -1, key, value)
        decisions.append(shard.add_partitions("t", PRODUCER, {HELD: UUID(int=1)}, NOW, 2))
    return shard


@pytest.mark.parametrize(
    ("name", "producer", "partition", "holds"),
    [
        ("t", PRODUCER, HELD, True),
        ("t", PRODUCER, OTHER, False),
        ("t", ProducerIdentity(7, 1), HELD, False),
        ("t", ProducerIdentity(8, 0), HELD, False),
        ("u", PRODUCER, HELD, False),
    ],
)
def test_only_an_open_transaction_of_the_producer_holds_its_partitions(
    name: str, producer: ProducerIdentity, partition: tuple[str, int], holds: bool
) -> None:
    assert opened().holds(name, producer, frozenset({partition})) is holds


def test_one_partition_that_is_not_held_is_enough() -> None:
    assert not opened().holds("t", PRODUCER, frozenset({HELD, OTHER}))


def test_the_shard_is_shown_only_while_all_of_it_is_committed_here() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        assert runtime.lone_shard(0) is None, "there are followers"
        log.is_held = True
        reply = runtime.start(0, add(b"1"))
        await asyncio.sleep(0)
        log.is_held, log.is_lone = False, True
        assert runtime.lone_shard(0) is None, "a reply is due"
        log.release()
        await reply
        assert runtime.lone_shard(0) is runtime.shards[0]
        log.epoch = 1
        assert runtime.lone_shard(0) is None, "another epoch has begun"
        runtime.on_resign(0)
        assert runtime.lone_shard(0) is None
        runtime.on_leader(0, 1)
        assert runtime.lone_shard(0) is None, "it loads"
        await loaded(runtime)
        assert runtime.lone_shard(0) is runtime.shards[0]

    play(story)
