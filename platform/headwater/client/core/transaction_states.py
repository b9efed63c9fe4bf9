"""The state machine of a transactional producer, and what follows from each error code. Pure.

`TRANSITIONS` is the whole machine. A transaction is open from BEGIN on. FLUSH accepts no more
records and waits for those in flight; only then EndTxn is sent, so that no batch follows its
transaction's marker. An abortable error leaves `abort_transaction` as the only call; a fatal one
leaves none.

Transaction version 2 (KIP-890): the leader adds the partition at the first batch, the group
coordinator adds its own at TxnOffsetCommit, and each EndTxn returns a new epoch. Version 1: the
producer adds them itself (AddPartitionsToTxn, AddOffsetsToTxn). There it needs a new epoch
(InitProducerId, KIP-360) where a request of the ended transaction may still reach a broker.
"""

from __future__ import annotations

from copy import copy
from enum import Enum, auto

from headwater.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    ProducerFencedError,
)
from headwater.errors import ErrorCode, KafkaError

Partition = tuple[str, int]
TRANSACTION_VERSION_2 = 2
"""The value of the feature `transaction.version` from which KIP-890 holds."""


class Phase(Enum):
    """The state of the producer; the value completes "the producer ..."."""

    UNINITIALIZED = "has no producer id yet: call init_transactions() or begin_transaction()"
    READY = "has no open transaction: call begin_transaction() first"
    IN_TRANSACTION = "has an open transaction: call commit_transaction() or abort_transaction()"
    FLUSHING = (
        "waits for the records of its transaction: make the same call again, or call "
        "abort_transaction()"
    )
    PREPARED = "has a prepared transaction: call commit_transaction() or abort_transaction()"
    COMMITTING = "is committing: call commit_transaction() again until it returns"
    ABORTING = "is aborting: call abort_transaction() again until it returns"
    ABORTABLE_ERROR = "can only abort its transaction: call abort_transaction()"
    FATAL_ERROR = "has failed for good: close it"


class Event(Enum):
    """A call of the application, or an outcome."""

    INITIALIZED = auto()
    RESUMED = auto()
    """InitProducerId kept a prepared transaction (KIP-939)."""
    BEGIN = auto()
    FLUSH = auto()
    PREPARE = auto()
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    ABORTABLE = auto()
    FATAL = auto()


_OPEN = (Phase.IN_TRANSACTION, Phase.FLUSHING, Phase.PREPARED)
TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.UNINITIALIZED, Event.INITIALIZED): Phase.READY,
    (Phase.UNINITIALIZED, Event.RESUMED): Phase.PREPARED,
    (Phase.READY, Event.BEGIN): Phase.IN_TRANSACTION,
    (Phase.IN_TRANSACTION, Event.FLUSH): Phase.FLUSHING,
    (Phase.FLUSHING, Event.FLUSH): Phase.FLUSHING,
    (Phase.FLUSHING, Event.PREPARE): Phase.PREPARED,
    (Phase.FLUSHING, Event.COMMIT): Phase.COMMITTING,
    (Phase.PREPARED, Event.COMMIT): Phase.COMMITTING,
    (Phase.COMMITTING, Event.COMMIT): Phase.COMMITTING,
    **{
        (phase, Event.ABORT): Phase.ABORTING
        for phase in (*_OPEN, Phase.ABORTABLE_ERROR, Phase.ABORTING)
    },
    (Phase.COMMITTING, Event.ENDED): Phase.READY,
    (Phase.ABORTING, Event.ENDED): Phase.READY,
    **{
        (phase, Event.ABORTABLE): Phase.ABORTABLE_ERROR
        for phase in (Phase.IN_TRANSACTION, Phase.FLUSHING, Phase.COMMITTING)
    },
    **{(phase, Event.FATAL): Phase.FATAL_ERROR for phase in Phase},
}
"""(state, event) -> the next state; what is not here is not allowed."""


class Request(Enum):
    """A request whose error codes have a meaning of their own for a transaction."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    PRODUCE = "Produce"
    END = "EndTxn"


class Verdict(Enum):
    """What follows from an error code."""

    RETRY = auto()
    RETRY_SOON = auto()
    """The marker of the transaction before is being written: some milliseconds."""
    FIND_COORDINATOR = auto()
    ABORT = auto()
    FATAL = auto()


_COORDINATOR_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.BROKER_NOT_AVAILABLE,
)
_LOST_IDS = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_ALWAYS_FATAL = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
_ABORTABLE = {
    Request.ADD_PARTITIONS: (
        *_LOST_IDS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ),
    Request.ADD_OFFSETS: (*_LOST_IDS, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    Request.COMMIT_OFFSETS: (
        *_LOST_IDS,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    Request.END: _LOST_IDS,
}


def verdict(request: Request, code: ErrorCode) -> Verdict:
    """What a transactional producer does about this error code of this request."""
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return Verdict.RETRY_SOON
    if code in _COORDINATOR_MOVED:
        return Verdict.FIND_COORDINATOR
    if code.retriable:
        return Verdict.RETRY
    if code in _ALWAYS_FATAL:
        return Verdict.FATAL
    if code == ErrorCode.TRANSACTION_ABORTABLE:
        return Verdict.ABORT
    if request is Request.PRODUCE:
        # A leader answers INVALID_PRODUCER_EPOCH also for a transaction that was aborted: only
        # the coordinator, at EndTxn, knows whether the producer is fenced.
        return Verdict.FATAL if code == ErrorCode.PRODUCER_FENCED else Verdict.ABORT
    return Verdict.ABORT if code in _ABORTABLE.get(request, ()) else Verdict.FATAL


class TransactionState:
    """The producer's identity, its state and the parts of the open transaction.

    The accumulator's lock guards `phase`; the rest belongs to the producer's loop.
    """

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.phase = Phase.UNINITIALIZED
        self.producer_id = -1
        self.producer_epoch = -1
        self.version = 1
        """The transaction version that the open transaction was begun with."""
        self.partitions: set[Partition] = set()
        """Those that the coordinator has added (version 1)."""
        self.groups: set[str] = set()
        """Those whose offsets the coordinator has added (version 1)."""
        self.is_started = False
        """True once a broker may know of the transaction: EndTxn has to end it."""
        self.needs_new_epoch = False
        """Version 1: a request of the ended transaction may still reach a broker."""
        self.error: AbortableTransactionError | FatalTransactionError | None = None
        """Why the transaction can only be aborted, or nothing is possible any more."""

    @property
    def is_v2(self) -> bool:
        """True when brokers add the partitions and EndTxn returns a new epoch (KIP-890)."""
        return self.version >= TRANSACTION_VERSION_2

    @property
    def gives_up_batches(self) -> bool:
        """True while no batch is sent or retried any more."""
        return self.phase in (Phase.ABORTING, Phase.ABORTABLE_ERROR, Phase.FATAL_ERROR)

    def allows(self, event: Event) -> bool:
        """True when the state has a transition for `event`."""
        return (self.phase, event) in TRANSITIONS

    def move(self, event: Event, call: str = "") -> None:
        """Follow the table. Raises IllegalStateError, or the error that left the state: an
        AbortableTransactionError or FatalTransactionError; `call` names the caller's method."""
        following = TRANSITIONS.get((self.phase, event))
        if following is None:
            raise self.refusal(call or event.name.lower())
        self.phase = following

    def refusal(self, call: str) -> Exception:
        """Why `call` is not possible in this state."""
        if self.error is not None:
            return copy(self.error)
        return IllegalStateError(
            f"{call}: the producer of transactional id {self.transactional_id!r} {self.phase.value}"
        )

    def check_send(self) -> None:
        """Raises what `send` raises outside a transaction, or after an error."""
        if self.phase is not Phase.IN_TRANSACTION:
            raise self.refusal("send")

    def begin(self, version: int) -> None:
        """A transaction of this version is open. Raises as `move`."""
        self.move(Event.BEGIN, "begin_transaction()")
        self.version = version
        self.partitions.clear()
        self.groups.clear()
        self.is_started = False

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """The coordinator gave this producer id and epoch."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.needs_new_epoch = False

    def ended(self) -> None:
        """The coordinator has decided the transaction as the producer wants it."""
        self.move(Event.ENDED)
        self.error = None
        self.is_started = False

    def abortable(self, error: KafkaError, what: str) -> bool:
        """The transaction has to be aborted because of `error`. True if that is news."""
        if not self.allows(Event.ABORTABLE):
            return False
        self.phase = Phase.ABORTABLE_ERROR
        self.needs_new_epoch = True
        self.error = AbortableTransactionError(error.code, self._text(what, error, ABORT_TEXT))
        return True

    def fatal(self, error: KafkaError, what: str) -> bool:
        """The producer cannot go on because of `error`. True if that is news."""
        if self.phase is Phase.FATAL_ERROR:
            return False
        self.phase = Phase.FATAL_ERROR
        if error.code in _FENCED:
            text = self._text(what, error, FENCED_TEXT.format(self.timeout_ms))
            self.error = ProducerFencedError(text)
        else:
            remedy = _REMEDIES.get(error.code, CLOSE_TEXT).format(self.timeout_ms)
            self.error = FatalTransactionError(error.code, self._text(what, error, remedy))
        return True

    def _text(self, what: str, error: KafkaError, remedy: str) -> str:
        return f"transactional id {self.transactional_id!r}: {what}: {error}; {remedy}"


ABORT_TEXT = "call abort_transaction(), then repeat the transaction"
CLOSE_TEXT = "close the producer"
FENCED_TEXT = (
    "a newer producer uses the transactional id, or the coordinator aborted the transaction after "
    "transaction_timeout_ms ({} ms): close the producer"
)
_REMEDIES = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction_timeout_ms ({}) is more than the brokers' transaction.max.timeout.ms: give a "
        "smaller one"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "the principal has no WRITE right on the transactional id, or the id is reserved: choose "
        "another one"
    ),
    ErrorCode.INVALID_TXN_STATE: (
        "the coordinator has no such open transaction: close the producer, and read what was "
        "committed before you send again"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "the brokers do not serve this",
}
