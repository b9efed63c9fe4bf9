"""Looks up positions: the committed offset of a partition, else what auto_offset_reset says.

`fetcher` applies auto_offset_reset when a leader answers that a position is out of range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.client.admin.topics import list_one_offset
from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.errors import OffsetOutOfRangeError
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import KafkaError

LoadCommitted = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]]


class OffsetFetcher:
    """Looks positions up on the loop, one round at a time."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        state: SubscriptionState,
        load_committed: LoadCommitted,
        *,
        wake: Callable[[], None],
        wake_later: Callable[[float], None],
        request_metadata: Callable[[], None],
    ) -> None:
        """`wake` and `wake_later` (seconds) make the fetcher look again."""
        self._cluster = cluster
        self._options = options
        self._state = state
        self._load_committed = load_committed
        self._wake = wake
        self._wake_later = wake_later
        self._request_metadata = request_metadata
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin a round unless one runs."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._find_positions())

    def stop(self) -> None:
        """Cancel the round that runs."""
        if self._task is not None:
            self._task.cancel()

    async def _find_positions(self) -> None:
        with self._state.condition:
            wanted = {
                tp: (p.stamp, p.reset_to)
                for tp, p in self._state.partitions.items()
                if p.position is None
            }
        fresh = [tp for tp, (_, reset_to) in wanted.items() if reset_to is None]
        try:
            committed = await self._load_committed(fresh) if fresh else {}
        except (OSError, KafkaError) as e:
            if isinstance(e, KafkaError) and not e.retriable and not isinstance(e, OSError):
                self._fail(fresh, e)
                return
            self._note_failure(fresh, e)
            self._wake_later(self._cluster.backoff_s(1))
            return
        await asyncio.gather(
            *(
                self._find_one(tp, stamp, reset_to, committed.get(tp))
                for tp, (stamp, reset_to) in wanted.items()
            )
        )
        self._wake()
        self._repeat({stamp for stamp, _ in wanted.values()})

    def _repeat(self, looked_up: set[int]) -> None:
        """Begin another round for what has no position yet: no wake-up during this one did."""
        with self._state.condition:
            left = {
                p.stamp
                for p in self._state.partitions.values()
                if p.position is None and p.error is None
            }
        if left:
            self._wake_later(0 if left - looked_up else self._cluster.backoff_s(1))

    def _fail(self, partitions: list[TopicPartition], error: Exception) -> None:
        with self._state.condition:
            for tp in partitions:
                if tp in self._state.partitions:
                    self._state.partitions[tp].error = error
            self._state.notify_locked()

    def _note_failure(self, partitions: list[TopicPartition], error: Exception) -> None:
        with self._state.condition:
            for tp in partitions:
                if tp in self._state.partitions:
                    self._state.partitions[tp].failure = error

    async def _find_one(
        self,
        tp: TopicPartition,
        stamp: int,
        reset_to: int | None,
        committed: OffsetAndMetadata | None,
    ) -> None:
        if committed is not None and reset_to is None:
            self._set_position(tp, stamp, committed.offset, committed.leader_epoch)
            return
        timestamp = self._options.auto_offset_reset if reset_to is None else reset_to
        if timestamp is None:
            text = (
                f"{tp.topic}-{tp.partition} has no committed offset and auto_offset_reset is none"
            )
            self._fail([tp], OffsetOutOfRangeError(text))
            return
        if tp in self._cluster.cache.required_epochs:
            self._request_metadata()
            return
        try:
            isolation = self._options.isolation_level
            found = await list_one_offset(self._cluster, tp, timestamp, isolation)
            self._cluster.cache.require_epoch(*tp, found.leader_epoch)
            self._set_position(tp, stamp, found.offset, -1)
        except (OSError, KafkaError) as e:
            if isinstance(e, KafkaError) and not isinstance(e, OSError) and not e.retriable:
                self._fail([tp], e)
            else:
                self._note_failure([tp], e)
                self._request_metadata()

    def _set_position(self, tp: TopicPartition, stamp: int, offset: int, epoch: int) -> None:
        with self._state.condition:
            entry = self._state.partitions.get(tp)
            # A seek or an assignment in the meantime is newer than this answer.
            if entry is not None and entry.stamp == stamp:
                entry.seek(offset, epoch)
            self._state.notify_locked()
