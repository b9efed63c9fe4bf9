"""AddPartitionsToTxn: partitions join a transaction, or are verified (KIP-98, KIP-890). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.outcomes import (
    Changed,
    Outcome,
    Refused,
    Unchanged,
    Verified,
)
from headwater_broker.coordinator.transaction.producer_fencing import check_producer
from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
    TransactionState,
)
from headwater_broker.coordinator.transaction.transaction import (
    EndedBy,
    Partition,
    ProducerIdentity,
    Transaction,
)


def add_partitions(
    known: Transaction | None,
    producer: ProducerIdentity,
    partitions: Mapping[Partition, UUID],
    now_ms: int,
) -> Outcome:
    """AddPartitionsToTxn and AddOffsetsToTxn: enlist partitions, opening a transaction first."""
    refused = check_producer(known, producer)
    if refused is not None or known is None:
        return refused or Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_open = known.state is TransactionState.ONGOING
    if is_open and _holds(known.partitions, partitions):
        return Unchanged(known.identity)
    after = known._replace(
        state=known.state_after(TransactionEvent.PARTITIONS_ADDED),
        ended_by=EndedBy.CLIENT if known.membership is None else EndedBy.EPOCH,
        start_ms=known.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        partitions={**(known.partitions if is_open else {}), **partitions},
    )
    return Changed(after, after.identity)


def verify_partitions(
    known: Transaction | None, producer: ProducerIdentity, partitions: frozenset[Partition]
) -> Outcome:
    """AddPartitionsToTxn with verify_only: does the open transaction hold the partitions?"""
    refused = check_producer(known, producer)
    if refused is not None or known is None:
        return refused or Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    held = known.partitions if known.state is TransactionState.ONGOING else {}
    return Verified(
        {
            partition: ErrorCode.NONE if partition in held else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }
    )


def _holds(held: Mapping[Partition, UUID], wanted: Mapping[Partition, UUID]) -> bool:
    for partition, topic_id in wanted.items():
        known = held.get(partition)
        if known is None or (known is not topic_id and known != topic_id):  # UUIDs compare slowly
            return False
    return True
