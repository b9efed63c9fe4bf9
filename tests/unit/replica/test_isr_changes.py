"""Pending AlterPartition proposals: batched, retried while the outcome is unknown, counted once."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.control import (
    AlterPartitionReply,
    AlterPartitionRequest,
    AlterPartitionResult,
)
from headwater_broker.replica.alter_partition import AlterPartitionManager
from headwater_broker.replica.replication_config import ReplicationConfig
from unit.replica.test_partition import LAG_S, Hosted


def test_an_isr_that_grows_and_shrinks_is_counted_once_whatever_the_tries() -> None:
    async def story() -> None:
        h = Hosted()
        partition = h.lead((1,), (1, 2))
        failures = [KafkaError(ErrorCode.NETWORK_EXCEPTION, "no controller")]
        asked: list[tuple[int, ...]] = []

        async def call(request: AlterPartitionRequest) -> AlterPartitionReply:
            (item,) = request.partitions
            asked.append(tuple(m.broker_id for m in item.new_isr))
            if failures:
                raise failures.pop()
            result = AlterPartitionResult(
                topic_id=item.topic_id,
                partition=item.partition,
                error_code=0,
                leader_id=1,
                leader_epoch=item.leader_epoch,
                partition_epoch=item.partition_epoch + 1,
                isr=asked[-1],
            )
            return AlterPartitionReply(error_code=0, partitions=(result,))

        limits = ReplicationConfig(alter_partition_backoff_ms=0)
        changes = AlterPartitionManager(1, lambda: 99, h.clock, limits, call)

        async def settled() -> None:
            changes.propose(partition)
            while partition.pending_isr is not None:
                await asyncio.sleep(0)
            await asyncio.sleep(0)

        h.fetched(2, 0)
        await settled()
        assert asked == [(1, 2), (1, 2)], "an unknown outcome: the same again"
        assert (changes.shrinks_total, changes.expands_total) == (0, 1)
        h.clock.advance((LAG_S + 1) * 1000)
        h.append()
        partition.isr_tick(h.clock.monotonic())
        await settled()
        assert (partition.isr, asked[-1]) == ((1,), (1,))
        assert (changes.shrinks_total, changes.expands_total) == (1, 1)
        await changes.close()

    asyncio.run(asyncio.wait_for(story(), 30))
