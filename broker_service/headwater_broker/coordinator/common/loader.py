"""Loads a shard from its log: open transactions, then the last committed record of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.records.pairs import LatestRecords
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Shard

REPLAYED_PER_TURN = 200
"""Records replayed in one turn of the loop: some 10 ms."""


class Loaded(NamedTuple):
    """How far a log was read."""

    end_offset: int
    records: int


Load = Callable[[Shard, Appender, int, int, Callable[[], bool]], Awaitable[Loaded | None]]
"""(shard, appender, partition, leader epoch, is it still wanted): as `load_shard`."""


async def load_shard(
    shard: Shard,
    appender: Appender,
    partition: int,
    epoch: int,
    is_wanted: Callable[[], bool],
) -> Loaded | None:
    """Read the log to its end, then replay what compaction would have left of it, with settled
    transactions: aborted records are dropped, those of open transactions are replayed as such.

    Open transactions are first, so that a shard sees which of their records a later committed
    record of the same key has overtaken.

    None when `is_wanted` turned false meanwhile. Raises KafkaError.
    """
    offset = count = 0
    latest = LatestRecords()
    while is_wanted():
        data = await appender.read_from(partition, epoch, offset)
        if not data:
            break
        end, found = latest.add(data)
        if end is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {offset}")
        offset, count = end, count + found
        await asyncio.sleep(0)
    for producer_id, producer_epoch, key, at, value in latest.pending():
        shard.replay(at, producer_id, producer_epoch, key, value)
    for number, (key, (at, value)) in enumerate(latest.rows.items(), 1):
        if not is_wanted():
            return None
        shard.replay(at, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, key, value)
        if number % REPLAYED_PER_TURN == 0:
            await asyncio.sleep(0)
    return Loaded(offset, count) if is_wanted() else None
