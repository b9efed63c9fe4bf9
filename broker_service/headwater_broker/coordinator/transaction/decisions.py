"""Decisions on a transactional id, one per request: next state and reply, or a refusal.

The decisions of Kafka's `TransactionCoordinator`, as pure functions: a decision returns the next
`Transaction`, which its caller stores in the log before anything acts on it. KIP-98, KIP-360,
KIP-588, KIP-890 (transaction version 2), KIP-939.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
    TransactionState,
    next_state,
)
from headwater_broker.coordinator.transaction.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_V2,
    ClientIdentity,
    EndedBy,
    Partition,
    ProducerIdentity,
    Transaction,
)


@dataclass(frozen=True, slots=True)
class Refused:
    """The request gets an error; nothing changes."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Busy:
    """Markers are on their way: the request waits a moment, then CONCURRENT_TRANSACTIONS."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The request succeeds, and nothing is written."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class InitializedProducer:
    """The reply to InitProducerId: the identity to go on with."""

    identity: ProducerIdentity
    ongoing: ProducerIdentity | None = None
    """The producer of the prepared transaction that stays open (KIP-939)."""


class Changed(NamedTuple):
    """`after` is to be written; the reply carries `identity` once it is durable.

    `then_retry`: the request is decided again when the transaction is complete.
    """

    after: Transaction
    identity: ProducerIdentity
    then_retry: bool = False
    ongoing: ProducerIdentity | None = None
    """The producer of the prepared transaction that stays open (KIP-939)."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Each partition that was asked about, with its code."""

    codes: Mapping[Partition, ErrorCode]


Outcome = Refused | Busy | Unchanged | Changed | Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInit:
    """An InitProducerId request for a transactional id."""

    transactional_id: str
    timeout_ms: int
    fresh_producer_id: int
    """Used for a new transactional id and for a rotation, else not at all."""
    expected: ProducerIdentity | None = None
    """What a producer that recovers says of itself (KIP-360)."""
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
        state=_move(known, TransactionEvent.INITIALIZED),
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
        state=_move(known, TransactionEvent.INITIALIZED),
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
        state=_move(known, TransactionEvent.INITIALIZED),
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
    if is_open and all(known.partitions.get(p) == topic for p, topic in partitions.items()):
        return Unchanged(known.identity)
    after = known._replace(
        state=_move(known, TransactionEvent.PARTITIONS_ADDED),
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


def end_transaction(
    known: Transaction | None,
    producer: ProducerIdentity,
    *,
    commit: bool,
    client_version: int,
    fresh_producer_id: int,
    now_ms: int,
) -> Outcome:
    """EndTxn: the record of the outcome is the commit point.

    A client of transaction version 2 gets its next epoch with the reply, or, when its epochs are
    exhausted, `fresh_producer_id` with epoch 0.
    """
    if known is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    raises_epoch = client_version >= TRANSACTION_V2
    if _is_ended_by(known, producer, raises_epoch):
        return _repeated(known, commit)
    has_timed_out = _is_timed_out_of(known, producer)
    if has_timed_out and commit:
        return Refused(ErrorCode.TRANSACTION_ABORTABLE)
    if has_timed_out and raises_epoch and known.producer_epoch < EPOCH_MAX:
        return Unchanged(known.identity)
    if known.state.is_preparing and producer == known.next_identity:
        return Busy()
    current = known.identity if known.state.is_preparing else known.next_identity
    if producer.producer_id not in (known.producer_id, current.producer_id):
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer != current or producer.epoch >= EPOCH_MAX:
        return Refused(ErrorCode.PRODUCER_FENCED)
    if known.state is not TransactionState.ONGOING and (commit or not raises_epoch):
        return Refused(ErrorCode.INVALID_TXN_STATE)
    is_kept = known.next_producer_id != NO_PRODUCER_ID
    if is_kept and not raises_epoch:  # the reply could not carry the identity to go on with
        return Refused(ErrorCode.INVALID_TXN_STATE)
    if raises_epoch and known.is_exhausted and fresh_producer_id == NO_PRODUCER_ID:
        return Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    event = TransactionEvent.COMMIT if commit else TransactionEvent.ABORT
    is_open = known.state is TransactionState.ONGOING
    after = known._replace(
        state=_move(known, event),
        ended_by=EndedBy.CLIENT,
        client_version=client_version,
        start_ms=known.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        partitions=known.partitions if is_open else {},
    )
    if raises_epoch:
        after = _raised(after, fresh_producer_id)
    return Changed(after, after.next_identity)


def _raised(known: Transaction, fresh_producer_id: int) -> Transaction:
    """The epoch of the markers, and the identity that the client goes on with."""
    current = known.next_identity
    after = known._replace(
        producer_epoch=known.producer_epoch + 1, last_producer_epoch=current.epoch
    )
    if known.is_exhausted:
        return after._replace(next_producer_id=fresh_producer_id, next_producer_epoch=NO_EPOCH)
    if known.next_producer_id != NO_PRODUCER_ID:
        return after._replace(next_producer_epoch=current.epoch + 1)
    return after


def _is_ended_by(known: Transaction, producer: ProducerIdentity, raises_epoch: bool) -> bool:
    """True when this very producer has ended the transaction already: the request is a retry."""
    if not (known.state.is_preparing or known.state.is_complete):
        return False
    if known.ended_by is not EndedBy.CLIENT:
        return False
    if not raises_epoch:
        return producer == known.identity
    if known.client_version < TRANSACTION_V2 or producer.epoch != known.last_producer_epoch:
        return False
    following = known.next_identity
    if producer.producer_id == following.producer_id:
        return producer.epoch == following.epoch - 1
    rotated = known.producer_id if known.state.is_preparing else known.previous_producer_id
    return producer == ProducerIdentity(rotated, LAST_EPOCH)


def _is_timed_out_of(known: Transaction, producer: ProducerIdentity) -> bool:
    """True when the timeout aborted the transaction of this very producer, and the epoch that this
    raised was given to nobody: the producer may have it (KIP-588), unless it only fences.

    A commit is answered TRANSACTION_ABORTABLE, where Kafka answers PRODUCER_FENCED: Flink's
    committer skips the latter, and would lose what a checkpoint has promised. Its commit is of
    transaction version 1 where it resumes a transaction of version 2.
    """
    return known.ended_by is EndedBy.TIMEOUT and producer == ProducerIdentity(
        known.producer_id, known.producer_epoch - 1
    )


def _repeated(known: Transaction, commit: bool) -> Outcome:
    committed = known.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if commit is not committed:
        return Refused(ErrorCode.INVALID_TXN_STATE)
    return Unchanged(known.next_identity)


def time_out(known: Transaction, now_ms: int) -> Transaction:
    """Abort the open transaction after its timeout, and fence its producer."""
    fenced = fence(known, now_ms, keeps_last=True)
    return fenced._replace(ended_by=EndedBy.TIMEOUT)


def fence(known: Transaction, now_ms: int, *, keeps_last: bool) -> Transaction:
    """Abort the open transaction and fence its producer, for a newer producer.

    The epoch is raised once (KAFKA-19367), whatever the client's transaction version, and above
    that of a producer that kept a prepared transaction (KIP-939). `keeps_last`: the producer itself
    may go on with the raised epoch, by an InitProducerId that names the epoch before (KIP-360).
    """
    kept = known.next_identity
    epoch = kept.epoch if kept.producer_id == known.producer_id else known.producer_epoch
    return known._replace(
        state=_move(known, TransactionEvent.ABORT),
        producer_epoch=epoch + 1,
        last_producer_epoch=epoch if keeps_last else NO_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        client_version=TRANSACTION_V2,
        ended_by=EndedBy.NEWER_PRODUCER,
        last_update_ms=now_ms,
    )


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Every partition holds its marker: the producer may go on, with its next id if it has one."""
    after = known._replace(
        state=_move(known, TransactionEvent.MARKERS_WRITTEN),
        last_update_ms=now_ms,
        partitions={},
    )
    if known.next_producer_id == NO_PRODUCER_ID:
        return after
    following = known.next_identity
    is_rotated = following.producer_id != known.producer_id
    return after._replace(
        producer_id=following.producer_id,
        producer_epoch=following.epoch,
        previous_producer_id=known.producer_id if is_rotated else known.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
    )


def expire(known: Transaction, now_ms: int) -> Transaction:
    """The transactional id is forgotten."""
    return known._replace(state=_move(known, TransactionEvent.EXPIRED), last_update_ms=now_ms)


def _move(known: Transaction, event: TransactionEvent) -> TransactionState:
    return next_state(known.transactional_id, known.state, event)
