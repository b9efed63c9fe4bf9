"""What follows from an error in a fetch: `auto_offset_reset`, another leader, a retry, or an error.

OFFSET_OUT_OF_RANGE resets the position by `auto_offset_reset`; `offset_fetcher` then looks it up.
"""

from __future__ import annotations

from enum import Enum, auto

from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.partition_fetch_state import NO_REPLICA, PartitionFetchState
from headwater.client.errors import OffsetOutOfRangeError, UnknownServerError, kafka_error
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode
from headwater.wire.apis.k01_fetch import PartitionData


class AfterRefusal(Enum):
    """What the fetcher does after an error."""

    WAIT = auto()
    """Nothing: the partition is fetched again after `not_before`, or its error is raised."""
    FETCH_AGAIN = auto()
    REFRESH_METADATA = auto()


class RefusedFetches:
    """Judges the errors of fetches. The lock of `SubscriptionState` is held."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions) -> None:
        self._cluster = cluster
        self._options = options

    def refused(
        self, tp: TopicPartition, entry: PartitionFetchState, answer: PartitionData
    ) -> AfterRefusal:
        """Put the partition's next fetch off, reset its position, or set the error of `poll`."""
        code = kafka_error(answer.error_code).code
        now = self._cluster.clock.monotonic()
        later = now + self._cluster.backoff_s(1)
        if entry.preferred_replica != NO_REPLICA:  # ask the leader: it may name a replica again
            entry.prefer_replica(NO_REPLICA, 0.0)
            entry.not_before = later
            return AfterRefusal.FETCH_AGAIN
        where = f"{tp.topic}-{tp.partition} at offset {entry.fetch_offset}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(entry, where, later)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            # A short failure, of reads from a Delta table for example, is retried in silence.
            if entry.server_failed(now, self._options.server_error_timeout_ms / 1000):
                entry.error = UnknownServerError(self._server_error(tp, where, now, entry))
                return AfterRefusal.WAIT
        elif not code.retriable:
            entry.error = kafka_error(answer.error_code, where)
            return AfterRefusal.WAIT
        leader = answer.current_leader
        entry.failure = kafka_error(answer.error_code, where)
        entry.not_before = later
        if self._cluster.cache.move_leader(*tp, leader.leader_id, leader.leader_epoch):
            entry.not_before = 0.0
            return AfterRefusal.FETCH_AGAIN
        return AfterRefusal.REFRESH_METADATA

    def _out_of_range(self, entry: PartitionFetchState, where: str, later: float) -> AfterRefusal:
        if entry.fetches or entry.has_data:
            # The caller has not read that far yet: fetch again once it has.
            entry.not_before = later
        elif self._options.auto_offset_reset is None:
            entry.error = OffsetOutOfRangeError(where)
        else:
            entry.seek_by_timestamp(self._options.auto_offset_reset)
            return AfterRefusal.FETCH_AGAIN
        return AfterRefusal.WAIT

    def _server_error(
        self, tp: TopicPartition, where: str, now: float, entry: PartitionFetchState
    ) -> str:
        leader = self._cluster.cache.leader(*tp)
        since = entry.failing_since
        lasted = now - (now if since is None else since)
        entry.failing_since = None  # the next poll begins to wait again
        return (
            f"{where}: broker {leader} failed for {lasted:.0f} s; its log says why. If the topic "
            f"is tiered, check that its Delta table can be read: headwater verify {tp.topic}"
        )
