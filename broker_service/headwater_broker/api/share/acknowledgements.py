"""Acknowledgements of a request: checked, applied to share partitions, awaited until durable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater_broker.api.context import Services
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.share.sessions import PartitionId
from headwater_broker.replica.share.share_partition import Acknowledgement, AcknowledgeType, checked
from headwater_broker.replica.share.share_partition_manager import ShareManager
from headwater_broker.security.session import Session


class AcknowledgedBatch(Protocol):
    """A batch of acknowledgements in ShareFetch or ShareAcknowledge."""

    @property
    def first_offset(self) -> int:
        """The first offset."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset, inclusive."""
        ...

    @property
    def acknowledge_types(self) -> tuple[int, ...]:
        """One type for all, or one for each."""
        ...


class Outcome:
    """The outcome of the acknowledgements of one partition; `done` is awaited first."""

    __slots__ = ("code", "done", "message", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.code = 0
        self.message: str | None = None
        self.done: asyncio.Future[None] | None = None

    def fail(self, error: KafkaError) -> None:
        """Set the error."""
        self.code = int(error.code)
        self.message = error.detail or None


Outcomes = dict[PartitionId, Outcome]


def topic_name(services: Services, key: PartitionId) -> str:
    """The topic's name; empty for an unknown id."""
    name = services.replicas.topic_ids.get(key[0].bytes)
    if name is not None:
        return name
    known = services.view.topic_by_id.get(key[0])
    return known.name if known else ""


def located(services: Services, session: Session, key: PartitionId, name: str) -> Partition:
    """The partition, which this broker leads and the session may read.

    Raises KafkaError: UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER.
    """
    if not name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {key[0]} is not known here")
    if not session.allows(Operation.READ, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no READ on topic {name}")
    partition = services.replicas.by_id.get(key)
    if partition is None:
        raise services.absent(name, key[1])
    partition.check_leader_epoch(-1)
    return partition


class Acknowledger:
    """Applies the acknowledgements of one request of a member."""

    def __init__(
        self,
        services: Services,
        shares: ShareManager,
        session: Session,
        group_id: str,
        member_id: str,
        *,
        may_renew: bool,
    ) -> None:
        """`may_renew`: the request says that it renews locks (is_renew_ack)."""
        self._services = services
        self._shares = shares
        self._session = session
        self._group_id = group_id
        self._member_id = member_id
        self._may_renew = may_renew
        self.outcomes: Outcomes = {}

    def apply(self, key: PartitionId, batches: Iterable[AcknowledgedBatch]) -> None:
        """Apply those of one partition, all or none."""
        outcome = self.outcomes[key] = Outcome(topic_name(self._services, key))
        try:
            rows = checked(
                Acknowledgement(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches
            )
            if not self._may_renew and any(AcknowledgeType.RENEW in row.types for row in rows):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "locks are renewed, and is_renew_ack is false"
                )
            partition = located(self._services, self._session, key, outcome.name)
            outcome.done = self._shares.acknowledge(
                self._group_id, self._member_id, partition, rows
            )
        except KafkaError as error:
            outcome.fail(error)

    @property
    def is_pending(self) -> bool:
        """True while some acknowledgement is not durable yet."""
        return any(outcome.done is not None for outcome in self.outcomes.values())

    async def settled(self) -> Outcomes:
        """The outcomes, once all of them are known."""
        for outcome in self.outcomes.values():
            if outcome.done is not None:
                try:
                    await outcome.done
                except KafkaError as error:
                    outcome.fail(error)
                outcome.done = None
        return self.outcomes
