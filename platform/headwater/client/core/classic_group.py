"""A member of a consumer group in the classic protocol (KIP-62, KIP-345, KIP-394, KIP-429). Pure.

`ClassicMember` builds the requests and reads the responses. Each `on_*` method gives the
`NextAction`.
"""

from __future__ import annotations

from enum import Enum, auto

from headwater.client.core.assignors import (
    Assignor,
    Counts,
    Subscription,
)
from headwater.client.core.sticky_user_data import decode_user_data, encode_user_data
from headwater.client.errors import error_code
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode
from headwater.wire.apis.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headwater.wire.apis.k12_heartbeat import HeartbeatRequest
from headwater.wire.apis.k13_leave_group import LeaveGroupRequest, MemberIdentity
from headwater.wire.apis.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headwater.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headwater.wire.consumer_protocol import TopicPartition as WireTopicPartitions
from headwater.wire.schema import decoder, encode

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3
NO_GENERATION = -1
STICKY = "sticky"


class NextAction(Enum):
    """What a member does after a response."""

    SYNC = auto()
    JOIN_AGAIN = auto()
    FIND_COORDINATOR = auto()
    STABLE = auto()
    WAIT = auto()
    FAIL = auto()


_LOST_COORDINATOR = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
_LOST_MEMBERSHIP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


def _group_by_topic(partitions: list[TopicPartition]) -> tuple[WireTopicPartitions, ...]:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return tuple(WireTopicPartitions(topic=t, partitions=tuple(p)) for t, p in by_topic.items())


def _with_version(version: int, body: bytes) -> bytes:
    return version.to_bytes(2, "big") + body


def decode_subscription(
    data: bytes | memoryview, instance_id: str | None, is_sticky: bool = False
) -> Subscription:
    """A member's metadata. A newer version is read as the newest known one; with `is_sticky` what
    the member owned is in its user data. Raises SchemaError."""
    version = min(int.from_bytes(data[:2], "big"), SUBSCRIPTION_VERSION)
    row, _ = decoder(ConsumerProtocolSubscription, version)(data, 2)
    if is_sticky:
        last, generation = decode_user_data(row.user_data)
        return Subscription(tuple(row.topics), last, generation, instance_id)
    owned = tuple(TopicPartition(t.topic, p) for t in row.owned_partitions for p in t.partitions)
    return Subscription(tuple(row.topics), owned, row.generation_id, instance_id)


def decode_assignment(data: bytes | memoryview) -> list[TopicPartition]:
    """The assignment in a SyncGroup response; empty bytes are no partitions. Raises SchemaError."""
    if len(data) < 2:
        return []
    version = min(int.from_bytes(data[:2], "big"), ASSIGNMENT_VERSION)
    row, _ = decoder(ConsumerProtocolAssignment, version)(data, 2)
    return [TopicPartition(t.topic, p) for t in row.assigned_partitions for p in t.partitions]


class ClassicMember:
    """One member. `generation` is -1 while it has not joined."""

    def __init__(
        self,
        group_id: str,
        assignors: tuple[Assignor, ...],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        group_instance_id: str | None,
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol = ""
        self.is_leader = False
        self.error: ErrorCode = ErrorCode.NONE
        self.losses = 0
        """How often its partitions became others' without a rebalance of its own."""
        self._assignors = {a.name: a for a in assignors}
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._members: dict[str, Subscription] = {}
        self._skip_assignment = False
        self._last: tuple[list[TopicPartition], int] = ([], NO_GENERATION)
        """The last assignment and its generation, for the sticky assignor."""

    @property
    def is_cooperative(self) -> bool:
        """True if every assignor is cooperative: members then keep their partitions while they
        join."""
        return all(a.is_cooperative for a in self._assignors.values())

    def join_request(self, topics: list[str], owned: list[TopicPartition]) -> JoinGroupRequest:
        """Join the next generation. `owned`: the partitions that the member has."""

        def metadata(name: str) -> bytes:
            subscription = ConsumerProtocolSubscription(
                topics=tuple(sorted(topics)),
                user_data=encode_user_data(*self._last) if name == STICKY else None,
                owned_partitions=_group_by_topic(owned) if self.is_cooperative else (),
                generation_id=self.generation if self.is_cooperative else NO_GENERATION,
            )
            return _with_version(SUBSCRIPTION_VERSION, encode(subscription, SUBSCRIPTION_VERSION))

        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=metadata(name))
                for name in self._assignors
            ),
        )

    def on_join(self, reply: JoinGroupResponse) -> NextAction:
        """The response to `join_request`. Raises SchemaError."""
        code = error_code(reply.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return NextAction.JOIN_AGAIN
        if code != ErrorCode.NONE:
            return self._on_error(code)
        self.member_id = reply.member_id
        self.generation = reply.generation_id
        self.protocol = reply.protocol_name or ""
        self.is_leader = reply.leader == reply.member_id
        self._skip_assignment = reply.skip_assignment
        self._members = {}
        if self.is_leader:
            self._members = {
                m.member_id: decode_subscription(
                    m.metadata, m.group_instance_id, self.protocol == STICKY
                )
                for m in reply.members
            }
        return NextAction.SYNC

    @property
    def group_topics(self) -> set[str]:
        """As the group's leader: the topics that any member subscribes to."""
        return {t for s in self._members.values() for t in s.topics}

    def sync_request(self, counts: Counts) -> SyncGroupRequest:
        """Ask for the assignment. The leader computes it: `counts` has its `group_topics`."""
        rows: tuple[SyncGroupRequestAssignment, ...] = ()
        if self.is_leader and not self._skip_assignment:
            assigned = self._assignors[self.protocol].assign(self._members, counts)
            rows = tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=_encoded(partitions))
                for member, partitions in assigned.items()
            )
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=rows,
        )

    def on_sync(self, reply: SyncGroupResponse) -> NextAction:
        """The response to `sync_request`."""
        code = error_code(reply.error_code)
        if code == ErrorCode.NONE:
            self._last = (decode_assignment(reply.assignment), self.generation)
            return NextAction.STABLE
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return NextAction.JOIN_AGAIN
        return self._on_error(code)

    def heartbeat_request(self) -> HeartbeatRequest:
        """A heartbeat."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )

    def on_heartbeat(self, code_value: int) -> NextAction:
        """The error code of the response to a heartbeat."""
        code = error_code(code_value)
        if code == ErrorCode.NONE:
            return NextAction.STABLE
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return NextAction.JOIN_AGAIN
        return self._on_error(code)

    def leave_request(self, reason: str) -> LeaveGroupRequest:
        """Leave at once, before the session times out."""
        return LeaveGroupRequest(
            group_id=self.group_id,
            members=(
                MemberIdentity(
                    member_id=self.member_id,
                    group_instance_id=self.group_instance_id,
                    reason=reason,
                ),
            ),
        )

    def reset(self) -> None:
        """The membership is over: join as a new member."""
        self.member_id = ""
        self.is_leader = False
        self._lose()

    def _lose(self) -> None:
        self.losses += self.generation != NO_GENERATION
        self.generation = NO_GENERATION

    def _on_error(self, code: ErrorCode) -> NextAction:
        self.error = code
        if code in _LOST_MEMBERSHIP:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._lose()
            return NextAction.JOIN_AGAIN
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._lose()  # another process has its place; the error is raised all the same
        if code in _LOST_COORDINATOR:
            return NextAction.FIND_COORDINATOR
        if code.retriable or code == ErrorCode.REBALANCE_IN_PROGRESS:
            return NextAction.WAIT
        return NextAction.FAIL


def _encoded(partitions: list[TopicPartition]) -> bytes:
    row = ConsumerProtocolAssignment(assigned_partitions=_group_by_topic(partitions))
    return _with_version(ASSIGNMENT_VERSION, encode(row, ASSIGNMENT_VERSION))
