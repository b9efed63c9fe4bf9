"""Loads a share coordinator's shard: of each share partition the last snapshot, and the updates
after it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from headwater.records.pairs import LatestRecords
from headwater_broker.coordinator.common.appender import Appender
from headwater_broker.coordinator.common.loader import Loaded, read_log, replay_committed
from headwater_broker.coordinator.common.shard import Shard
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
    histories = Histories()
    loaded = await read_log(LatestRecords(histories), appender, partition, epoch, is_wanted)
    rows = chain.from_iterable(histories.by_partition.values())
    return loaded if await replay_committed(shard, rows, is_wanted) else None
