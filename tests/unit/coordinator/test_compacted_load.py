"""A coordinator loads a compacted log, with its gaps and emptied batches, to the same state."""

from __future__ import annotations

import asyncio

from headwater.system import SystemClock
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Decision, Now
from headwater_broker.log.unified_log import UnifiedLog
from unit.coordinator.memory_log import MemoryLog
from unit.log.compacting import batches, compact, compacted_log, records_batch
from unit.log.harness import Box

PART_BYTES = 300
"""One read: a batch or two, so that reads begin everywhere."""


class Table:
    """A shard that is the last value of each key."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """As a coordinator does it."""
        assert producer_id == -1
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """Nothing is open."""

    def loaded(self, now: Now) -> None:
        """Nothing to do."""

    def tick(self, now: Now) -> Decision:
        """Nothing to do."""
        return Decision()

    def next_deadline_ms(self) -> float | None:
        """Never."""
        return None


class OnDisk(MemoryLog):
    """Reads a real log, in small parts."""

    def __init__(self, log: UnifiedLog) -> None:
        super().__init__()
        self._log = log

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        """As the port says."""
        start = max(offset, self._log.local_log_start_offset)
        if start >= self._log.log_end_offset:
            return b""
        part = self._log.read(start, PART_BYTES, self._log.log_end_offset)
        return part.file.read_at(part.position, part.size_bytes)


def rows_of(log: UnifiedLog) -> dict[bytes, bytes]:
    """What a coordinator makes of the log."""
    shards: list[Table] = []

    def make(partition: int) -> Table:
        shards.append(Table())
        return shards[-1]

    async def load() -> None:
        runtime = CoordinatorRuntime("tables", make, OnDisk(log), SystemClock())
        runtime.on_leader(0, 0)
        while not runtime.is_ready(0):
            await asyncio.sleep(0)
        await runtime.close()

    asyncio.run(asyncio.wait_for(load(), 30))
    return shards[-1].rows


def test_the_state_is_the_same_before_and_after_compaction() -> None:
    box = Box()
    log = compacted_log(box)
    for number in range(200):
        key, value = b"key %d" % (number % 7), b"%d" % number
        pairs = [(key, value if number % 5 else None), (b"other", value)]
        log.append_as_leader(records_batch(pairs, producer=(3, 0, 2 * number)), 0, 2000)
    wanted = rows_of(log)
    assert len(wanted) > 3
    for _ in range(3):
        log.first_dirty_offset = 0
        compact(box)
        box.clock.advance(2000)
        assert rows_of(log) == wanted
    assert log.bases[-1] > 5 * len(batches(log))
