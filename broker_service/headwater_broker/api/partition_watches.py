"""What parked requests watch of a partition: joins `Partition`'s callbacks with the purgatories.

A partition nobody waits for has no callbacks set, so that its appends pay nothing.
"""

from __future__ import annotations

from headwater_broker.purgatory.purgatory import Purgatory, WatchedOffset
from headwater_broker.replica.partition import Partition


class PartitionWatch:
    """The rising numbers of one partition."""

    __slots__ = ("fetch_committed", "fetch_end", "fetch_stable", "produce")

    def __init__(self, partition: Partition, produce: Purgatory, fetch: Purgatory) -> None:
        self.produce = WatchedOffset(produce, lambda: partition.high_watermark)
        self.fetch_committed = WatchedOffset(fetch, lambda: partition.high_watermark)
        self.fetch_stable = WatchedOffset(fetch, lambda: partition.last_stable_offset)
        self.fetch_end = WatchedOffset(fetch, lambda: partition.log.log_end_offset)

    def high_watermark_moved(self, partition: Partition) -> None:
        """`Partition.on_hw`: the last stable offset moves with it."""
        if self.produce or self.fetch_committed or self.fetch_stable:
            self.produce.moved()
            self.fetch_committed.moved()
            self.fetch_stable.moved()
        else:
            partition.on_hw = None

    def log_end_moved(self, partition: Partition) -> None:
        """`Partition.on_append`."""
        if self.fetch_end:
            self.fetch_end.moved()
        else:
            partition.on_append = None

    def all_moved(self) -> None:
        """Everybody here must look again."""
        for gauge in (self.produce, self.fetch_committed, self.fetch_stable, self.fetch_end):
            gauge.all_moved()


class PartitionWatches:
    """The watched partitions of this broker."""

    def __init__(self, produce: Purgatory, fetch: Purgatory) -> None:
        self._produce = produce
        self._fetch = fetch
        self._watches: dict[Partition, PartitionWatch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def watched_high_watermark(self, partition: Partition) -> WatchedOffset:
        """The high watermark, for acks=all."""
        watch = self._of(partition)
        partition.on_hw = watch.high_watermark_moved
        return watch.produce

    def watched_read_bound(
        self, partition: Partition, *, is_follower: bool, committed: bool
    ) -> WatchedOffset:
        """The bound that a fetch may read to."""
        watch = self._of(partition)
        if is_follower:
            partition.on_append = watch.log_end_moved
            return watch.fetch_end
        partition.on_hw = watch.high_watermark_moved
        return watch.fetch_stable if committed else watch.fetch_committed

    def leadership_moved(self, partition: Partition) -> None:
        """`Partition.on_leadership`: wake all; those that stay add themselves anew."""
        watch = self._watches.pop(partition, None)
        if watch is not None:
            partition.on_hw = None
            partition.on_append = None
            watch.all_moved()

    def _of(self, partition: Partition) -> PartitionWatch:
        watch = self._watches.get(partition)
        if watch is None:
            watch = self._watches[partition] = PartitionWatch(partition, self._produce, self._fetch)
        return watch
