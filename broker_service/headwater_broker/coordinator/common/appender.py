"""How a coordinator reaches its log: a port, so that it imports neither log nor replication."""

from __future__ import annotations

from typing import Protocol


class Appender(Protocol):
    """One internal topic's partitions, as led by this broker in a given leader epoch."""

    def append(self, partition: int, epoch: int, records: memoryview) -> int:
        """Append one batch as leader with the checks of acks=all; its last offset.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE and the
        like mean that nothing was written; KAFKA_STORAGE_ERROR that the outcome is unknown.
        """
        ...

    def committed_end(self, partition: int, epoch: int) -> int:
        """The high watermark. Raises KafkaError(NOT_LEADER_OR_FOLLOWER)."""
        ...

    async def committed(self, partition: int, epoch: int, offset: int, timeout_ms: int) -> None:
        """Return when the high watermark has passed `offset`.

        Raises KafkaError: REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER when the epoch is over.
        """
        ...

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        """Whole batches from `offset` (or the log's start, if that is later) to the log's end, a
        piece at a time; empty at the end. Raises KafkaError(NOT_LEADER_OR_FOLLOWER).
        """
        ...
