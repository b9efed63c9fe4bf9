"""EndTxn: commit or abort, its retries, and the end once every marker is written. Pure.

The decisions of Kafka's `TransactionCoordinator` and `TransactionMetadata` are pure functions: each
returns the next `Transaction`, which its caller stores in the log before anything acts on it.
KIP-98, KIP-360, KIP-588, KIP-890 (transaction version 2), KIP-939.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import ErrorCode
from headwater_broker.coordinator.transaction.outcomes import (
    Busy,
    Changed,
    Outcome,
    Refused,
    Unchanged,
)
from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
    TransactionState,
)
from headwater_broker.coordinator.transaction.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_V2,
    EndedBy,
    ProducerIdentity,
    Transaction,
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
    raised = _raised(known, fresh_producer_id) if raises_epoch else {}
    after = known._replace(
        state=known.state_after(event),
        ended_by=EndedBy.CLIENT,
        client_version=client_version,
        start_ms=known.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        partitions=known.partitions if is_open else {},
        **raised,
    )
    return Changed(after, after.next_identity)


def _raised(known: Transaction, fresh_producer_id: int) -> dict[str, Any]:
    """The epoch of the markers, and the identity that the client goes on with."""
    current = known.next_identity
    next_producer_id, next_producer_epoch = known.next_producer_id, known.next_producer_epoch
    if current.epoch >= LAST_EPOCH:  # exhausted
        next_producer_id, next_producer_epoch = fresh_producer_id, NO_EPOCH
    elif next_producer_id != NO_PRODUCER_ID:
        next_producer_epoch = current.epoch + 1
    return {
        "producer_epoch": known.producer_epoch + 1,
        "last_producer_epoch": current.epoch,
        "next_producer_id": next_producer_id,
        "next_producer_epoch": next_producer_epoch,
    }


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


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Every partition holds its marker: the producer may go on, with its next id if it has one."""
    after = known._replace(
        state=known.state_after(TransactionEvent.MARKERS_WRITTEN),
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
