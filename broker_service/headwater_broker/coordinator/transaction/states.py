"""The states of a transactional id and every legal move between them (KIP-98, KIP-890, KIP-939).

- Empty: a producer is initialized; no transaction is open.
- Ongoing: at least one partition is enlisted.
- PrepareCommit, PrepareAbort: the outcome is durable; markers are on their way to the partitions.
- CompleteCommit, CompleteAbort: every partition holds its marker. The state stays until the
  transactional id expires, so that a retried EndTxn gets its answer.
- Dead: the transactional id has expired; its tombstone is written.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from headwater.errors import HeadwaterError


class TransactionState(IntEnum):
    """Kafka's state ids, as `__transaction_state` stores them."""

    __hash__ = int.__hash__  # an enum's own costs a call in Python

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Kafka holds it in memory only; a log never contains it."""

    @property
    def label(self) -> str:
        """Kafka's name, as DescribeTransactions and ListTransactions show it."""
        return self.name.title().replace("_", "")

    @property
    def is_preparing(self) -> bool:
        """True while markers are on their way."""
        return self in _PREPARING

    @property
    def is_complete(self) -> bool:
        """True when the last transaction has ended on every partition."""
        return self in _COMPLETE

    @property
    def is_idle(self) -> bool:
        """True when no transaction is open: the transactional id may expire."""
        return self in _IDLE


_PREPARING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
_IDLE = (*_COMPLETE, TransactionState.EMPTY)


class TransactionEvent(Enum):
    """An event that changes the state of a transactional id."""

    __hash__ = object.__hash__

    INITIALIZED = "InitProducerId gave out an epoch"
    PARTITIONS_ADDED = "partitions were enlisted"
    COMMIT = "EndTxn decided to commit"
    ABORT = "EndTxn, a timeout or a newer producer decided to abort"
    MARKERS_WRITTEN = "every partition holds its marker"
    EXPIRED = "the transactional id was idle for too long"


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.EMPTY, _E.INITIALIZED): _S.EMPTY,
    (_S.COMPLETE_COMMIT, _E.INITIALIZED): _S.EMPTY,
    (_S.COMPLETE_ABORT, _E.INITIALIZED): _S.EMPTY,
    # InitProducerId that keeps a prepared transaction (KIP-939) leaves it open.
    (_S.ONGOING, _E.INITIALIZED): _S.ONGOING,
    (_S.EMPTY, _E.PARTITIONS_ADDED): _S.ONGOING,
    (_S.ONGOING, _E.PARTITIONS_ADDED): _S.ONGOING,
    (_S.COMPLETE_COMMIT, _E.PARTITIONS_ADDED): _S.ONGOING,
    (_S.COMPLETE_ABORT, _E.PARTITIONS_ADDED): _S.ONGOING,
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    # A client of transaction version 2 may abort before the coordinator knows of a partition.
    (_S.EMPTY, _E.ABORT): _S.PREPARE_ABORT,
    (_S.COMPLETE_COMMIT, _E.ABORT): _S.PREPARE_ABORT,
    (_S.COMPLETE_ABORT, _E.ABORT): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _E.MARKERS_WRITTEN): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.MARKERS_WRITTEN): _S.COMPLETE_ABORT,
    (_S.EMPTY, _E.EXPIRED): _S.DEAD,
    (_S.COMPLETE_COMMIT, _E.EXPIRED): _S.DEAD,
    (_S.COMPLETE_ABORT, _E.EXPIRED): _S.DEAD,
}


class TransactionTransitionError(HeadwaterError):
    """A move that the table does not have: a bug, which drops the shard."""


def next_state(
    transactional_id: str, state: TransactionState, event: TransactionEvent
) -> TransactionState:
    """The state that `event` leads to. Raises TransactionTransitionError."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise TransactionTransitionError(
            f"transactional id {transactional_id!r} is {state.label}, but {event.value}"
        )
    return found
