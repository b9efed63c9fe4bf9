"""Loads a shard from its log: open transactions, then the last committed record of each key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
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
    latest = LatestRecords()
    loaded = await read_log(latest, appender, partition, epoch, is_wanted)
    for producer_id, producer_epoch, key, at, value in latest.pending():
        shard.replay(at, producer_id, producer_epoch, key, value)
    rows = ((key, at, value) for key, (at, value) in latest.rows.items())
    return loaded if await replay_committed(shard, rows, is_wanted) else None


async def read_log(
    records: LatestRecords,
    appender: Appender,
    partition: int,
    epoch: int,
    is_wanted: Callable[[], bool],
) -> Loaded:
    """Read the log to its end, while it is wanted. Raises KafkaError."""
    offset = count = 0
    while is_wanted():
        data = await appender.read_from(partition, epoch, offset)
        if not data:
            break
        end, found = records.add(data)
        if end is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {offset}")
        offset, count = end, count + found
        await asyncio.sleep(0)
    return Loaded(offset, count)


async def replay_committed(
    shard: Shard, rows: Iterable[tuple[bytes, int, bytes | None]], is_wanted: Callable[[], bool]
) -> bool:
    """Replay committed records, (key, offset, value), some in each turn of the loop. False: it is
    not wanted any more."""
    for number, (key, at, value) in enumerate(rows, 1):
        if not is_wanted():
            return False
        shard.replay(at, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, key, value)
        if number % REPLAYED_PER_TURN == 0:
            await asyncio.sleep(0)
    return is_wanted()
