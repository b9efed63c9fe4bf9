"""Reaches the transaction coordinators for the leaders of partitions (KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.replica.marker_writer import TopicPartition
from headwater_broker.replica.transaction_verification import Producer


class NoCoordinators:
    """Implements `Enlistment` of a broker without transaction coordinators."""

    async def enlist(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Mapping[TopicPartition, UUID],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Raises COORDINATOR_NOT_AVAILABLE."""
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no coordinator of {transactional_id!r}"
        )
