"""`headwater.client.blocking.broker_metadata` with the options of a query, and OffsetsAtBytes.

OffsetsAtBytes is Headwater's own request. Blocking, no pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.client.blocking.broker_metadata import BrokerMetadata, PartitionId, Topic
from headwater.client.blocking.cluster import RetryTimer
from headwater.client.core.metadata import NO_LEADER
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.system import SystemClock
from headwater.wire.apis.k10010_offsets_at_bytes import (
    OffsetAtBytesPartition,
    OffsetsAtBytesRequest,
    OffsetsAtBytesResponse,
)
from headwater_spark.blocking_clients import DEFAULT_TIMEOUTS, record_client
from headwater_spark.options import Timeouts
from headwater_spark.task_security import NO_SECURITY, TaskSecurity

__all__ = ["CLIENT_ID", "Brokers", "PartitionId", "Topic"]

CLIENT_ID = "headwater-spark"


class Brokers(BrokerMetadata):
    """Requests to one cluster from a planner or a driver. One thread at a time."""

    def __init__(
        self,
        bootstrap_servers: str,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        client_id: str = CLIENT_ID,
        security: TaskSecurity = NO_SECURITY,
    ) -> None:
        super().__init__(
            bootstrap_servers, record_client(bootstrap_servers, client_id, timeouts, security)
        )
        self._timeouts = timeouts
        self._clock = SystemClock()

    def offsets_at_bytes(
        self, wanted: Mapping[PartitionId, tuple[int, int]]
    ) -> dict[PartitionId, int]:
        """Per partition the end offset of `bytes` of log from `start` on: (start, bytes) -> end.

        Raises UsageError for brokers that are not Headwater's.
        """
        ends: dict[PartitionId, int] = {}
        patience = RetryTimer(self._clock, self._timeouts.retry_s, "offsets at bytes")
        while left := {tp: row for tp, row in wanted.items() if tp not in ends}:
            try:
                self._offsets_at_bytes_once(left, ends)
            except (OSError, KafkaError) as e:
                patience.pause_after(e)
        return {tp: end for tp, end in ends.items() if end >= 0}

    def _offsets_at_bytes_once(
        self, left: Mapping[PartitionId, tuple[int, int]], ends: dict[PartitionId, int]
    ) -> None:
        topics = self.topics(sorted({topic for topic, _ in left}))
        by_leader: dict[int, list[OffsetAtBytesPartition]] = {}
        for (topic, partition), (start, size) in left.items():
            item = OffsetAtBytesPartition(
                topic=topic, partition=partition, start_offset=start, max_bytes=size
            )
            by_leader.setdefault(topics[topic].leaders[partition], []).append(item)
        if NO_LEADER in by_leader:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, "a partition has no leader")
        failure: KafkaError | None = None
        for leader, items in by_leader.items():
            request = OffsetsAtBytesRequest(partitions=tuple(items))
            for row in self._offsets_of_leader(leader, request).partitions:
                if row.error_code:
                    failure = kafka_error(row.error_code, f"{row.topic}-{row.partition}")
                else:
                    ends[row.topic, row.partition] = row.end_offset
        if failure is not None:
            raise failure

    def _offsets_of_leader(
        self, leader: int, request: OffsetsAtBytesRequest
    ) -> OffsetsAtBytesResponse:
        try:
            return self._client.call_broker(leader, request, OffsetsAtBytesResponse)
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise UsageError(
                "option 'maxBytesPerTrigger' needs Headwater brokers of this release or a later "
                "one; use maxOffsetsPerTrigger"
            ) from error
