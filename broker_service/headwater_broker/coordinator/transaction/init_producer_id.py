"""InitProducerId: a new producer, a retry or a zombie; the next epoch or id (KIP-360). Pure.

A transaction that the producer left open is aborted first.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.outcomes import (
    Busy,
    Changed,
    Outcome,
    Refused,
    Unchanged,
)
from headwater_broker.coordinator.transaction.producer_fencing import fence
from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
    TransactionState,
)
from headwater_broker.coordinator.transaction.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ClientIdentity,
    EndedBy,
    ProducerIdentity,
    Transaction,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInit:
    """An InitProducerId request for a transactional id."""

    transactional_id: str
    timeout_ms: int
    fresh_producer_id: int
    """Used for a new transactional id and for a rotation, else not at all."""
    expected: ProducerIdentity | None = None
    """The id and epoch of a producer that recovers (KIP-360)."""
    client: ClientIdentity = ClientIdentity()
    keep_prepared: bool = False
    """A prepared transaction stays open (KIP-939)."""


def init_producer(known: Transaction | None, request: ProducerInit, now_ms: int) -> Outcome:
    """InitProducerId of a transactional id: fence earlier producers, abort what is open."""
    expected = request.expected
    if known is None:
        # A producer that recovers from UNKNOWN_PRODUCER_ID gets a new id: nobody can be fenced.
        return _initialized(_new(request, now_ms))
    if known.state.is_preparing:
        return Busy()
    if expected is not None and not _may_continue(known, expected):
        return Refused(ErrorCode.PRODUCER_FENCED)
    if known.state is TransactionState.ONGOING:
        if request.keep_prepared and known.is_two_phase:
            return _kept(known, request, now_ms)
        fenced = fence(known, now_ms, keeps_last=expected is not None)
        return Changed(fenced, known.identity, then_retry=True)
    if expected is not None and _is_retry(known, expected) and known.producer_epoch < EPOCH_MAX:
        return _initialized_again(known, request, now_ms)
    after = known._replace(
        state=known.state_after(TransactionEvent.INITIALIZED),
        timeout_ms=request.timeout_ms,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        last_producer_epoch=NO_EPOCH if expected is None else expected.epoch,
        client=request.client,
        ended_by=EndedBy.CLIENT,
        start_ms=-1,
        last_update_ms=now_ms,
        partitions={},
    )
    if known.is_exhausted:
        rotated = after._replace(
            producer_id=request.fresh_producer_id,
            producer_epoch=0,
            previous_producer_id=known.producer_id,
        )
        return _initialized(rotated)
    return _initialized(after._replace(producer_epoch=known.producer_epoch + 1))


def _initialized_again(known: Transaction, request: ProducerInit, now_ms: int) -> Outcome:
    """A repeated InitProducerId, or one after an abort that raised the epoch: it is not raised."""
    after = known._replace(
        state=known.state_after(TransactionEvent.INITIALIZED),
        timeout_ms=request.timeout_ms,
        client=request.client,
        ended_by=EndedBy.CLIENT,
        start_ms=-1,
        partitions={},
    )
    if after == known:
        return Unchanged(known.identity)
    return _initialized(after._replace(last_update_ms=now_ms))


def _kept(known: Transaction, request: ProducerInit, now_ms: int) -> Outcome:
    """The prepared transaction stays open; only the next identity may end it (KIP-939)."""
    identity = known.next_identity
    following = ProducerIdentity(identity.producer_id, identity.epoch + 1)
    if known.is_exhausted:
        following = ProducerIdentity(request.fresh_producer_id, 0)
    after = known._replace(
        state=known.state_after(TransactionEvent.INITIALIZED),
        next_producer_id=following.producer_id,
        next_producer_epoch=following.epoch,
        client=request.client,
        last_update_ms=now_ms,
    )
    return Changed(after, following, ongoing=known.identity)


def _new(request: ProducerInit, now_ms: int) -> Transaction:
    return Transaction(
        transactional_id=request.transactional_id,
        producer_id=request.fresh_producer_id,
        producer_epoch=0,
        state=TransactionState.EMPTY,
        timeout_ms=request.timeout_ms,
        client=request.client,
        last_update_ms=now_ms,
    )


def _initialized(after: Transaction) -> Changed:
    return Changed(after, after.identity)


def _may_continue(known: Transaction, expected: ProducerIdentity) -> bool:
    """The current producer, or one whose request is a retry."""
    if known.state is TransactionState.ONGOING and known.next_producer_id != NO_PRODUCER_ID:
        return expected == known.next_identity
    if expected.producer_id == known.producer_id:
        return expected.epoch in (known.producer_epoch, known.last_producer_epoch)
    return _is_retry(known, expected)


def _is_retry(known: Transaction, expected: ProducerIdentity) -> bool:
    """True for a repeated InitProducerId whose reply was lost: the epoch is not raised again.

    A newer producer cannot be meant: its InitProducerId had cleared the last epoch.
    """
    if expected.producer_id == known.producer_id:
        return (
            expected.epoch != known.producer_epoch and expected.epoch == known.last_producer_epoch
        )
    return (
        expected.producer_id == known.previous_producer_id
        and expected.epoch >= LAST_EPOCH
        and expected.epoch == known.last_producer_epoch
    )
