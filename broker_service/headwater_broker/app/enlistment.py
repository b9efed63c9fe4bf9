"""Adds partitions to transactions, wherever their coordinators are (KIP-890).

The leaders of partitions and of `__consumer_offsets` use it before they append for a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import TRANSACTION_TOPIC
from headwater_broker.app.transaction_channel import TransactionChannel
from headwater_broker.coordinator.transaction.service import TransactionService
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity
from headwater_broker.log.producer_state_manager import NO_EPOCH
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.replica.marker_writer import TopicPartition
from headwater_broker.replica.transaction_verification import Producer

Codes = Mapping[TopicPartition, ErrorCode]


class TransactionEnlistment:
    """Implements `Enlistment`: a coordinator on this broker is called, any other one is sent an
    AddPartitionsToTxn."""

    def __init__(
        self,
        broker_id: int,
        view: MetadataCache,
        transactions: TransactionService,
        channel: TransactionChannel,
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._transactions = transactions
        self._channel = channel

    async def enlist(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Mapping[TopicPartition, UUID],
        *,
        verify_only: bool,
        coordinator_epoch: int = NO_EPOCH,
    ) -> Codes:
        """See `Enlistment`. Raises KafkaError: COORDINATOR_NOT_AVAILABLE while the coordinator's
        partition has no leader, NETWORK_EXCEPTION when its broker does not answer, and its error.
        """
        identity = ProducerIdentity(producer.producer_id, producer.producer_epoch)
        if not verify_only and self._transactions.add_at_once(
            transactional_id, identity, partitions
        ):
            return dict.fromkeys(partitions, ErrorCode.NONE)
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == self._broker_id:
            if verify_only:
                return await self._transactions.verify_partitions(
                    transactional_id, identity, frozenset(partitions), coordinator_epoch
                )
            await self._transactions.add_partitions(transactional_id, identity, partitions)
            return dict.fromkeys(partitions, ErrorCode.NONE)
        return await self._channel.add_partitions(
            broker_id,
            transactional_id,
            identity,
            partitions,
            verify_only=verify_only,
            coordinator_epoch=coordinator_epoch,
        )

    def _coordinator_of(self, transactional_id: str) -> int:
        coordinator = self._transactions.coordinator
        index = coordinator.partition_of(transactional_id)
        if coordinator.runtime.is_hosted(index):
            return self._broker_id  # perhaps sooner than the metadata says so
        state = self._view.partition(TRANSACTION_TOPIC, index)
        if state is None or state.leader_id < 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TRANSACTION_TOPIC}-{index} has no leader"
            )
        return state.leader_id
