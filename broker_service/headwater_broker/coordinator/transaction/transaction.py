"""One transactional id: its producer and its open transaction, as `__transaction_state` has them.

Kafka's `TransactionMetadata`, as a value; `init_producer_id`, `add_partitions`,
`end_transaction`, `timeouts` say what each request makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from headwater_broker.coordinator.transaction.states import (
    TransactionEvent,
    TransactionState,
    next_state,
)

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32767
"""Never given to a producer, so that every producer can still be fenced."""
LAST_EPOCH = EPOCH_MAX - 1
"""A producer at this epoch is exhausted: its transactional id gets a new producer id."""
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit (KIP-939)."""
TRANSACTION_V2 = 2
"""`transaction.version` whose EndTxn raises the epoch (KIP-890)."""

_ONGOING = TransactionState.ONGOING
Partition = tuple[str, int]
"""(topic, partition)."""


class ProducerIdentity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class EndedBy(IntEnum):
    """The cause that ended the last transaction of a transactional id."""

    CLIENT = 0
    """EndTxn; also before the first transaction, and while one is open."""
    TIMEOUT = 1
    NEWER_PRODUCER = 2
    """InitProducerId aborted it."""
    EPOCH = 3
    """The decision of its epoch, of which it is a participant; also while it is open.

    A release without epoch transactions does not know this value, so it refuses to load the log:
    it would time out single participants, and skip the decision that has committed them."""


class ClientIdentity(NamedTuple):
    """The client of the last InitProducerId: operators ask whose transaction holds up a reader."""

    principal: str = ""
    """`User:name`."""
    client_id: str = ""
    host: str = ""


class Membership(NamedTuple):
    """The place of a participant in an epoch transaction (docs/epochs.md)."""

    epoch: int
    ticket: int
    task: int
    """Spark's partition id."""
    attempt: int
    """Spark's task attempt id."""


class Transaction(NamedTuple):
    """The state of one transactional id, as `__transaction_state` stores it.

    A NamedTuple, as each request makes one or two of them: four times as fast as a dataclass.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last rotation."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that the client uses once the markers are written; -1: the same."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last bump: a retry of the request that raised it carries this one."""
    next_producer_epoch: int = NO_EPOCH
    """The epoch that goes with `next_producer_id`; -1: epoch 0."""
    client: ClientIdentity = ClientIdentity()
    ended_by: EndedBy = EndedBy.CLIENT
    client_version: int = 0
    """transaction.version of the client that ended the transaction."""
    start_ms: int = -1
    partitions: Mapping[Partition, UUID] = MappingProxyType({})
    """Enlisted partitions that do not hold a marker yet, with their topics' ids."""
    membership: Membership | None = None
    """Of a participant of an epoch: only the epoch's decision ends its transaction."""

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch that partitions see."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> ProducerIdentity:
        """The identity that the client uses once the transaction has ended.

        While a prepared transaction is open: the identity that may end it (KIP-939).
        """
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.identity
        return ProducerIdentity(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_exhausted(self) -> bool:
        """True when no further epoch may be given to a producer."""
        return self.next_identity.epoch >= LAST_EPOCH

    @property
    def is_two_phase(self) -> bool:
        """True for a transaction that never times out (KIP-939)."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def deadline_ms(self) -> int | None:
        """When the open transaction is aborted, ms since 1970; None: never, or none is open."""
        if self.state is not _ONGOING or self.timeout_ms == NO_TIMEOUT_MS or self.membership:
            return None
        return self.start_ms + self.timeout_ms

    def state_after(self, event: TransactionEvent) -> TransactionState:
        """The state that `event` leads to. Raises TransactionTransitionError."""
        return next_state(self.transactional_id, self.state, event)
