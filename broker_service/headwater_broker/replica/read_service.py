"""Reads of partitions that Fetch does not serve: offsets by timestamp, and whole logs.

ListOffsets looks up offsets here (KIP-79, KIP-207, KIP-405, KIP-734), in the Delta table where
it holds what no local segment does; coordinators read the log that their state is loaded from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.remote_log import RemoteLog, RemoteLogError, TieredTopic
from headwater_broker.log.results import TimestampAndOffset
from headwater_broker.replica.append_service import check_led
from headwater_broker.replica.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
DEBUG_REPLICA = -2
"""A replica id: reads whatever the leader epoch is."""
UNKNOWN = TimestampAndOffset(-1, -1, -1)


class OffsetQuery(NamedTuple):
    """One partition of a ListOffsets request."""

    timestamp: int
    """Milliseconds since 1970, or one of the negative constants above."""
    current_leader_epoch: int
    """The epoch that the sender knows; -1: none."""
    replica_id: int
    """-1: a consumer; -2: a debugging consumer; else a follower."""
    read_committed: bool


class ReadService:
    """Reads of this broker's partitions."""

    def __init__(
        self,
        remote_log: RemoteLog | None,
        tiered_topic: Callable[[str, UUID], TieredTopic],
        tiered_end: Callable[[UUID, int], int | None],
    ) -> None:
        """`tiered_topic(topic, topic id)`: where the table is; `tiered_end(topic id, partition)`:
        the offset after the last one in it, None while unknown.
        """
        self._remote_log = remote_log
        self._tiered_topic = tiered_topic
        self._tiered_end = tiered_end

    async def offset_of(self, partition: Partition, query: OffsetQuery) -> TimestampAndOffset:
        """The offset that ListOffsets answers; UNKNOWN when no record matches.

        Raises KafkaError: FENCED_LEADER_EPOCH and the like, OFFSET_NOT_AVAILABLE (KIP-207),
        UNSUPPORTED_VERSION (an unknown special timestamp), KAFKA_STORAGE_ERROR.
        """
        return await self._in_table(partition, query) or self._in_log(partition, query)

    async def _in_table(
        self, partition: Partition, query: OffsetQuery
    ) -> TimestampAndOffset | None:
        """A time is looked up in the table first, for what no local segment holds any more."""
        if query.timestamp < 0 or self._remote_log is None or not partition.is_leader:
            return None
        partition.check_leader_epoch(query.current_leader_epoch)
        start, local_start = partition.log.log_start_offset, partition.log.local_log_start_offset
        if start >= local_start:
            return None
        table = self._tiered_topic(partition.topic, partition.topic_id)
        try:
            found = await self._remote_log.find_timestamp(
                table, partition.partition, query.timestamp, start, local_start
            )
        except RemoteLogError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic} by time: {error}"
            ) from error
        if found is None:
            return None
        return TimestampAndOffset(found.offset, found.timestamp_ms, found.leader_epoch)

    def _in_log(self, partition: Partition, query: OffsetQuery) -> TimestampAndOffset:
        if query.replica_id != DEBUG_REPLICA:
            partition.check_leader_epoch(query.current_leader_epoch)
        log, special = partition.log, query.timestamp
        if special == EARLIEST:
            return log.earliest()
        if special == EARLIEST_LOCAL:
            return log.earliest_local()
        if special == LATEST_TIERED:
            end = self._tiered_end(partition.topic_id, partition.partition)
            return UNKNOWN if not end else TimestampAndOffset(end - 1, -1, -1)
        if special < MAX_TIMESTAMP:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {special}")
        return _below_bound(partition, query)

    @staticmethod
    def log_bytes(partition: Partition, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from `offset` (or the local log start, if that is later), up to the log
        end; empty there. Raises NOT_LEADER_OR_FOLLOWER when `leader_epoch` is over.
        """
        check_led(partition, leader_epoch)
        log = partition.log
        start = max(offset, log.local_log_start_offset)
        if start >= log.log_end_offset:
            return b""
        found = log.read(start, max_bytes, log.log_end_offset, min_one=True)
        return found.file.read_at(found.position, found.size_bytes)


def _below_bound(partition: Partition, query: OffsetQuery) -> TimestampAndOffset:
    """LATEST, MAX_TIMESTAMP or a time: the answer depends on the bound of this reader."""
    log, bound = partition.log, _bound(partition, query)
    found: TimestampAndOffset | None = None
    if query.timestamp >= 0:
        found = log.offset_for_timestamp(query.timestamp, bound)
    if found is None:
        _check_high_watermark(partition, query)
    if query.timestamp == LATEST:
        return TimestampAndOffset(bound, -1, partition.leader_epoch)
    if query.timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset(bound)
    return found or UNKNOWN


def _check_high_watermark(partition: Partition, query: OffsetQuery) -> None:
    """Records beyond a new leader's high watermark may be committed already (KIP-207). What is
    found below the high watermark is certain."""
    if query.replica_id < 0 and not partition.high_watermark_is_current:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            "the high watermark has not reached the start of this leader epoch",
        )


def _bound(partition: Partition, query: OffsetQuery) -> int:
    """The offset that this reader reads up to."""
    if query.replica_id >= 0:
        return partition.log.log_end_offset
    return partition.last_stable_offset if query.read_committed else partition.high_watermark
