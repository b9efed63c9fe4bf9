"""The consumer's calls about where it reads: seek, position, pause, offsets by time."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from headwater.client.admin.topics import TopicCalls
from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.fetching import PartitionFetch
from headwater.client.errors import ClosedError, IllegalStateError, KafkaTimeoutError
from headwater.client.fetcher import Fetcher
from headwater.client.loop_thread import LoopThread
from headwater.client.values import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from headwater.clock import Clock
from headwater.errors import UsageError

EARLIEST = -2
LATEST = -1
POLL_SLICE_S = 0.1


class PositionCalls:
    """The part of `Consumer` that moves and tells positions; `Consumer` fills the attributes."""

    _clock: Clock
    _cluster: Cluster
    _condition: threading.Condition
    _fetcher: Fetcher
    _is_closed: bool
    _options: ConsumerOptions
    _order: list[TopicPartition]
    _pending: deque[ConsumerRecord]
    _thread: LoopThread

    def _poke(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._fetcher.poke)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")

    def _entry(self, tp: TopicPartition | tuple[str, int]) -> PartitionFetch:
        entry = self._fetcher.partitions.get(TopicPartition(*tp))
        if entry is None:
            raise IllegalStateError(f"{tp[0]}-{tp[1]} is not assigned to this consumer")
        return entry

    def seek(
        self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata
    ) -> None:
        """Read on at `offset`; with a leader epoch, from no leader of an older one (KIP-320)."""
        at = offset
        if not isinstance(at, OffsetAndMetadata):
            at = OffsetAndMetadata(operator.index(at))
        if at.offset < 0:
            raise UsageError(f"seek to offset {at.offset}: it cannot be negative")
        with self._condition:
            self._entry(partition).seek(at.offset, at.leader_epoch)
            self._forget_pending([TopicPartition(*partition)])
        self._poke()

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read on at the first offset; all assigned partitions when none is named."""
        self._seek_all(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read on at the end (last stable offset under read_committed)."""
        self._seek_all(partitions, LATEST)

    def _seek_all(
        self, partitions: Sequence[TopicPartition | tuple[str, int]], timestamp: int
    ) -> None:
        chosen = [TopicPartition(*tp) for tp in partitions] or list(self._order)
        with self._condition:
            for tp in chosen:
                self._entry(tp).seek_by_timestamp(timestamp)
            self._forget_pending(chosen)
        self._poke()

    def _forget_pending(self, partitions: list[TopicPartition]) -> None:
        self._pending = deque(r for r in self._pending if r[:2] not in partitions)

    def position(
        self, partition: TopicPartition | tuple[str, int], timeout_ms: int | None = None
    ) -> int:
        """The next offset to be read; waits until it is known. Raises KafkaTimeoutError."""
        limit = self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.monotonic() + limit / 1000
        self._poke()
        with self._condition:
            entry = self._entry(partition)
            while entry.position is None:
                if entry.error is not None:
                    error, entry.error = entry.error, None
                    raise error
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise KafkaTimeoutError(f"position of {partition} is not known yet")
                self._condition.wait(min(left, POLL_SLICE_S))
            return self._unread(entry).offset

    def _unread(self, entry: PartitionFetch) -> OffsetAndMetadata:
        """The position, or the first record that iteration has not given out yet.

        With the leader epoch of the record before it, or of that first one: who reads on there
        knows a leader of that epoch or a newer one, or looks for it (KIP-320).
        """
        place = (entry.topic, entry.partition)
        waiting = (r for r in self._pending if r[:2] == place)
        first = next(waiting, None)
        if first is not None:
            return OffsetAndMetadata(first.offset, leader_epoch=first.leader_epoch)
        return OffsetAndMetadata(entry.position or 0, leader_epoch=entry.leader_epoch)

    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Give no records of these until `resume`; positions stay."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """The twin of `pause`."""
        self._set_paused(partitions, paused=False)

    def _set_paused(
        self, partitions: Sequence[TopicPartition | tuple[str, int]], *, paused: bool
    ) -> None:
        with self._condition:
            for tp in partitions:
                self._entry(tp).is_paused = paused
        self._poke()

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition | tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each timestamp (ms); None where there is none."""
        found = self._list_offsets({TopicPartition(*tp): ts for tp, ts in timestamps.items()})
        return {tp: None if row.offset < 0 else row for tp, row in found.items()}

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        found = self._list_offsets({TopicPartition(*tp): EARLIEST for tp in partitions})
        return {tp: row.offset for tp, row in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """The offset after the last visible record (last stable offset under read_committed)."""
        found = self._list_offsets({TopicPartition(*tp): LATEST for tp in partitions})
        return {tp: row.offset for tp, row in found.items()}

    def _list_offsets(
        self, wanted: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._check_open()
        calls = TopicCalls(self._cluster)
        return self._thread.call(calls.list_offsets(wanted, self._options.isolation_level))
