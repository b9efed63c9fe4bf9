"""Loads a share coordinator's shard: of each share partition the last snapshot, and the updates
after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.errors import ErrorCode, KafkaError
from headwater.records.pairs import LatestRecords
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.loader import REPLAYED_PER_TURN, Loaded
from headwater_broker.coordinator.common.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Shard
from headwater_broker.coordinator.share_state.records import KIND_BYTES, UPDATE_KIND_BYTES

Row = tuple[int, bytes | None]
"""(offset, value)."""


class Histories(dict[bytes, Row]):
    """Rows for `LatestRecords` that keep every update until the next snapshot of its partition."""

    def __init__(self) -> None:
        super().__init__()
        self.by_partition: dict[bytes, list[tuple[bytes, int, bytes | None]]] = {}
        """The key without its kind -> (key, offset, value) in the order of the log."""

    def __contains__(self, key: object) -> bool:
        return False  # no record takes the place of another

    def __setitem__(self, key: bytes, row: Row) -> None:
        entry = (key, *row)
        name = key[KIND_BYTES:]
        if key[:KIND_BYTES] == UPDATE_KIND_BYTES:
            self.by_partition.setdefault(name, []).append(entry)
        else:
            self.by_partition[name] = [entry]


async def load_histories(
    shard: Shard,
    appender: Appender,
    partition: int,
    epoch: int,
    is_wanted: Callable[[], bool],
) -> Loaded | None:
    """As `coordinator.common.loader.load_shard`, for a log that is not compacted.

    None when `is_wanted` turned false meanwhile. Raises KafkaError.
    """
    offset = count = 0
    histories = Histories()
    records = LatestRecords(histories)
    while is_wanted():
        data = await appender.read_from(partition, epoch, offset)
        if not data:
            break
        end, found = records.add(data)
        if end is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch at offset {offset}")
        offset, count = end, count + found
        await asyncio.sleep(0)
    number = 0
    for history in histories.by_partition.values():
        for key, at, value in history:
            if not is_wanted():
                return None
            shard.replay(at, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, key, value)
            number += 1
            if number % REPLAYED_PER_TURN == 0:
                await asyncio.sleep(0)
    return Loaded(offset, count) if is_wanted() else None
