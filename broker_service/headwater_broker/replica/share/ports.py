"""The persister of share partitions as their leader and the group coordinator see it (KIP-932).

Kafka's counterpart is org.apache.kafka.server.share.persister.Persister.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

UNKNOWN_START_OFFSET = -1
"""The start offset of a share partition that nobody has read from."""


@dataclass(frozen=True, slots=True, order=True)
class SharePartitionKey:
    """One share partition: a partition of a topic as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Offsets `first_offset` to `last_offset`, both inclusive, in one delivery state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """AVAILABLE 0, ACKNOWLEDGED 2, ARCHIVED 4."""
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The durable state of a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """First offset that is not in a terminal state; `UNKNOWN_START_OFFSET`."""
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = -1
    holds: bytes = b""
    """The table of holds (`replica.share.holds`), which only leaders read; empty in a write: it
    stays as it is."""


@dataclass(frozen=True, slots=True)
class ShareStateSummary:
    """The values of a share partition that offset tools show."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class Persister(Protocol):
    """Keeps the delivery state of share partitions. Every method raises KafkaError:
    FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, GROUP_ID_NOT_FOUND, or what
    the way to the share coordinator answers, once retries are used up.
    """

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin the state at `start_offset`; a later `state_epoch` replaces an earlier one, unless
        the start is unknown: then what is there stays."""
        ...

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state; it fences leaders of earlier epochs."""
        ...

    async def write(
        self,
        key: SharePartitionKey,
        state: ShareState,
    ) -> None:
        """Make a change of the state durable: `state.batches` holds only what changed."""
        ...

    async def delete(self, key: SharePartitionKey) -> None:
        """Forget the state; done when there is none."""
        ...

    async def read_summary(self, key: SharePartitionKey) -> ShareStateSummary:
        """The start offset, without the batches."""
        ...
