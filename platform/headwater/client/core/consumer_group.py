"""A member of a consumer group in the consumer protocol (KIP-848). Pure.

The coordinator assigns. A member sends ConsumerGroupHeartbeat: what it subscribes to and what it
owns, and learns its epoch and its target. `ConsumerMember` builds the requests and reads the
responses; what owns partitions calls `acknowledge` once it has given up and taken what the target
says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from headwater.client.errors import error_code
from headwater.errors import ErrorCode
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Owned = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
NOT_A_MEMBER = -1


class Beat(Enum):
    """What a heartbeat's response means."""

    GOOD = auto()
    FENCED = auto()
    """The membership is lost, and the partitions with it: join again."""
    FIND_COORDINATOR = auto()
    WAIT = auto()
    FAIL = auto()


_LOST_COORDINATOR = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
_LOST_MEMBERSHIP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


@dataclass(frozen=True, slots=True)
class Terms:
    """What a member tells of itself."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A pattern of RE2, which the coordinator resolves. Excludes `topics`."""
    assignor: str | None = None
    rebalance_timeout_ms: int = 300_000
    rack_id: str | None = None


class ConsumerMember:
    """One member. `generation` is its epoch: -1 while it is none."""

    def __init__(self, group_id: str, member_id: str, group_instance_id: str | None) -> None:
        """`member_id` is the client's own, for as long as it lives."""
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = member_id
        self.generation = NOT_A_MEMBER
        self.interval_ms: int | None = None
        """Until the next heartbeat, as the coordinator says; None before its first answer."""
        self.target: Owned | None = None
        """What the coordinator has assigned; None until it has."""
        self.error = ErrorCode.NONE
        self.message = ""
        self._owned: Owned = {}
        self._sent: tuple[Terms, Owned] | None = None
        """What the coordinator knows: a heartbeat names only what has changed."""
        self._asked: tuple[Terms, Owned] = (Terms(), {})
        """What the request that waits for its response says."""

    @property
    def owned(self) -> Owned:
        """What was acknowledged last."""
        return self._owned

    @property
    def is_unsettled(self) -> bool:
        """Whether the coordinator waits for this member, or this member for a first target."""
        return self.target is None or self.target != self._owned

    def heartbeat_request(self, terms: Terms) -> ConsumerGroupHeartbeatRequest:
        """Join, or say that the member lives, and what has changed since the last response."""
        is_joining = self.generation == NOT_A_MEMBER
        known = None if is_joining else self._sent
        is_full = known is None
        before, owned_before = known or (Terms(), {})
        names = is_full or terms.topics != before.topics
        pattern = terms.pattern != before.pattern
        owned = is_full or self._owned != owned_before
        self._asked = (terms, self._owned)
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=JOIN_EPOCH if is_joining else self.generation,
            instance_id=self.group_instance_id,
            rack_id=terms.rack_id if is_full else None,
            rebalance_timeout_ms=terms.rebalance_timeout_ms if is_full else -1,
            subscribed_topic_names=tuple(sorted(terms.topics)) if names else None,
            subscribed_topic_regex=(terms.pattern or "") if pattern else None,
            server_assignor=terms.assignor if is_full else None,
            topic_partitions=_rows(self._owned) if owned else None,
        )

    def on_heartbeat(self, reply: ConsumerGroupHeartbeatResponse) -> Beat:
        """The response to `heartbeat_request`."""
        code = error_code(reply.error_code)
        if code != ErrorCode.NONE:
            return self._on_error(code, reply.error_message)
        self.member_id = reply.member_id or self.member_id
        self.generation = reply.member_epoch
        self.interval_ms = reply.heartbeat_interval_ms
        self._sent = self._asked
        if reply.assignment is not None:
            self.target = {
                row.topic_id: frozenset(row.partitions)
                for row in reply.assignment.topic_partitions
                if row.partitions
            }
        return Beat.GOOD

    def on_lost_reply(self) -> None:
        """Nobody knows whether the request arrived: the next one says everything again."""
        self._sent = None

    def acknowledge(self, owned: Owned) -> None:
        """The member has given up and taken partitions, and owns these."""
        self._owned = {topic: numbers for topic, numbers in owned.items() if numbers}

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """Leave at once. A static member keeps its partitions until its session times out."""
        is_static = self.group_instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self.group_instance_id,
        )

    def reset(self) -> None:
        """The membership is over: the next heartbeat joins."""
        self.generation = NOT_A_MEMBER
        self.target = None
        self._owned = {}
        self._sent = None

    def _on_error(self, code: ErrorCode, message: str | None) -> Beat:
        self.error, self.message = code, message or ""
        self._sent = None
        is_member = self.generation != NOT_A_MEMBER
        if code in _LOST_MEMBERSHIP or (code is ErrorCode.GROUP_ID_NOT_FOUND and is_member):
            self.reset()
            return Beat.FENCED
        if code in _LOST_COORDINATOR:
            return Beat.FIND_COORDINATOR
        return Beat.WAIT if code.retriable else Beat.FAIL


def _rows(owned: Owned) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic, partitions=tuple(sorted(numbers)))
        for topic, numbers in sorted(owned.items())
    )


def by_topic(partitions: Iterable[tuple[UUID, int]]) -> dict[UUID, frozenset[int]]:
    """(topic id, partition) pairs, grouped."""
    found: dict[UUID, set[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
