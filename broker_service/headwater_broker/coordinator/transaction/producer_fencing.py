"""Fencing: the check of requests that enlist partitions; an abort that raises the epoch. Pure."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.outcomes import (
    Busy,
    Refused,
)
from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
)
from headwater_broker.coordinator.transaction.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_V2,
    EndedBy,
    ProducerIdentity,
    Transaction,
)


def check_producer(known: Transaction | None, producer: ProducerIdentity) -> Refused | Busy | None:
    """The checks of a request that enlists partitions; None when it may go on.

    Markers on their way come first: a producer whose id was rotated holds the next id already.
    A prepared transaction that was kept (KIP-939) takes no more partitions, from nobody.
    """
    if known is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.state.is_preparing:
        return Busy()
    is_kept = known.next_producer_id != NO_PRODUCER_ID
    if is_kept and producer == known.next_identity:
        return Refused(ErrorCode.INVALID_TXN_STATE)
    if producer.producer_id != known.producer_id:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != known.producer_epoch or is_kept or producer.epoch >= EPOCH_MAX:
        return Refused(ErrorCode.PRODUCER_FENCED)
    return None


def fence(known: Transaction, now_ms: int, *, keeps_last: bool) -> Transaction:
    """Abort the open transaction and fence its producer, for a newer producer.

    The epoch is raised once (KAFKA-19367), whatever the client's transaction version, and above
    that of a producer that kept a prepared transaction (KIP-939). `keeps_last`: the producer itself
    may go on with the raised epoch, by an InitProducerId that names the epoch before (KIP-360).
    """
    kept = known.next_identity
    epoch = kept.epoch if kept.producer_id == known.producer_id else known.producer_epoch
    return known._replace(
        state=known.state_after(TransactionEvent.ABORT),
        producer_epoch=epoch + 1,
        last_producer_epoch=epoch if keeps_last else NO_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        client_version=TRANSACTION_V2,
        ended_by=EndedBy.NEWER_PRODUCER,
        last_update_ms=now_ms,
    )
