"""The transaction of one participant: it joins an epoch, and ends as the epoch decides. Pure."""

from __future__ import annotations

from headwater.wire.epoch_values import EpochState
from headwater.wire.sink_names import participant_id
from headwater_broker.coordinator.transaction.epoch_values import EpochDecision, JoinRequest
from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
    TransactionState,
    next_state,
)
from headwater_broker.coordinator.transaction.transaction import (
    LAST_EPOCH,
    TRANSACTION_V2,
    EndedBy,
    Membership,
    Transaction,
)


def joined(
    known: Transaction | None, request: JoinRequest, slot: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """The participant of a slot in a new epoch.

    It writes with the producer epoch that the markers of the slot's last epoch have raised: nobody
    was given it. An exhausted producer is replaced: one bump per micro-batch uses up an int16 in
    nine hours.
    """
    of = request.of
    if known is None:
        known = Transaction(
            transactional_id=participant_id(of.sink, slot),
            producer_id=request.fresh_producer_id,
            producer_epoch=0,
            state=TransactionState.EMPTY,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
        )
    elif known.producer_epoch > LAST_EPOCH:
        known = known._replace(
            producer_id=request.fresh_producer_id,
            producer_epoch=0,
            previous_producer_id=known.producer_id,
        )
    event = TransactionEvent.PARTITIONS_ADDED
    return known._replace(
        state=next_state(known.transactional_id, known.state, event),
        timeout_ms=timeout_ms,
        last_producer_epoch=-1,
        client=request.client,
        ended_by=EndedBy.EPOCH,
        client_version=TRANSACTION_V2,
        start_ms=now_ms,
        last_update_ms=now_ms,
        partitions=dict(request.partitions),
        membership=Membership(of.epoch, of.ticket, request.task, request.attempt),
    )


def ended(known: Transaction, slot: int, decision: EpochDecision) -> Transaction:
    """The participant once its epoch is decided: markers with the next producer epoch are due.

    A participant that the decision does not name aborts: an attempt that failed, or whose task a
    faster attempt has finished.
    """
    commits = (
        decision.state is EpochState.COMMITTING and decision.slots.get(slot) == known.producer_epoch
    )
    event = TransactionEvent.COMMIT if commits else TransactionEvent.ABORT
    return known._replace(
        state=next_state(known.transactional_id, known.state, event),
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=known.producer_epoch,
        client_version=TRANSACTION_V2,
        last_update_ms=decision.decided_ms,
    )
