"""The positions of a consumer's partitions: seek, position, pause, and offsets by time.

A partition without a position gets one from `offset_fetcher` (`auto_offset_reset`);
`refused_fetches` takes it away when the broker has no such offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headwater.client.admin.topics import TopicCalls
from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.errors import KafkaTimeoutError
from headwater.client.option_rules import as_integer
from headwater.client.partition_names import (
    ByPartition,
    PartitionName,
    named_partition,
    named_partitions,
)
from headwater.client.steps import Pause, Steps
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from headwater.errors import UsageError

EARLIEST = -2
LATEST = -1
WAIT_SLICE_S = 0.1


class ConsumerPositions:
    """Moves and reports the positions of the assigned partitions."""

    def __init__(
        self,
        state: SubscriptionState,
        cluster: Cluster,
        options: ConsumerOptions,
        wake_fetcher: Callable[[], None],
    ) -> None:
        self._state = state
        self._clock = cluster.clock
        self._calls = TopicCalls(cluster)
        self._options = options
        self._wake_fetcher = wake_fetcher

    def seek(self, partition: PartitionName, offset: int | OffsetAndMetadata) -> None:
        """Continue at an offset. Raises UsageError, IllegalStateError."""
        at = offset
        if not isinstance(at, OffsetAndMetadata):
            at = OffsetAndMetadata(as_integer("offset", at))
        if at.offset < 0:
            raise UsageError(f"seek to offset {at.offset}: it is negative")
        with self._state.condition:
            self._state.entry(partition).seek(at.offset, at.leader_epoch)
            self._state.drop_pending([TopicPartition(*partition)])
        self._wake_fetcher()

    def seek_by_timestamp(self, partitions: Sequence[PartitionName], timestamp: int) -> None:
        """Continue where ListOffsets says; all assigned partitions when none is given."""
        chosen = [named_partition(tp) for tp in partitions] or list(self._state.order)
        with self._state.condition:
            for tp in chosen:
                self._state.entry(tp).seek_by_timestamp(timestamp)
            self._state.drop_pending(chosen)
        self._wake_fetcher()

    def position(self, partition: PartitionName, timeout_ms: float | None) -> Steps[int]:
        """The next offset to return. Raises KafkaTimeoutError when it is not known in time."""
        limit = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.monotonic() + limit / 1000
        self._wake_fetcher()
        state = self._state
        while True:
            with state.condition:
                entry = state.entry(partition)
                if entry.position is not None:
                    return state.next_offset(entry).offset
                if entry.error is not None:
                    error, entry.error = entry.error, None
                    raise error
                seen = state.version
            left = deadline - self._clock.monotonic()
            if left <= 0:
                name = f"{entry.topic}-{entry.partition}"
                cause = f": {entry.failure}" if entry.failure else ""
                text = f"the position of {name} is not known after {limit:g} ms{cause}"
                raise KafkaTimeoutError(text)
            yield Pause(seen, min(left, WAIT_SLICE_S))

    def set_paused(self, partitions: Sequence[PartitionName], *, paused: bool) -> None:
        """Return no records of these partitions, or return them again."""
        with self._state.condition:
            for name in partitions:
                tp = named_partition(name)
                self._state.entry(tp).is_paused = paused
                if paused:
                    self._state.give_back([tp])
        self._wake_fetcher()

    async def for_times(
        self, timestamps: ByPartition[int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each timestamp; None if there is none."""
        wanted = {named_partition(tp): as_integer("timestamp", at) for tp, at in timestamps.items()}
        found = await self._list_offsets(wanted)
        return {tp: None if row.offset < 0 else row for tp, row in found.items()}

    async def at(
        self, partitions: Iterable[PartitionName], timestamp: int
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at EARLIEST or LATEST."""
        found = await self._list_offsets(dict.fromkeys(named_partitions(partitions), timestamp))
        return {tp: row.offset for tp, row in found.items()}

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """ListOffsets at the consumer's isolation level."""
        return await self._calls.list_offsets(dict(timestamps), self._options.isolation_level)
