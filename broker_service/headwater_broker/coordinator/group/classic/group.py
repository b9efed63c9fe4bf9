"""A classic group and its members: state, and rules over it. Pure.

Durable are the last complete generation (protocol, leader, members with subscription and
assignment) and the committed offsets: they change by replay only (`shard.py`). The rest (members
that joined a rebalance, waiting requests, pending member ids, deadlines) is soft: a successor
starts without it, and clients bring it back when they join again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headwater.wire.apis.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from headwater.wire.consumer_protocol import ConsumerProtocolSubscription
from headwater.wire.schema import SchemaError, decoder
from headwater_broker.coordinator.common.shard import Decision, Token
from headwater_broker.coordinator.group.classic.states import GroupEvent, GroupState, next_state
from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    TopicPartition,
)

CONSUMER = "consumer"
Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""


@dataclass(slots=True)
class Member:
    """One member; `join` and `sync` are the tokens of its waiting JoinGroup and SyncGroup."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: Token | None = None
    sync: Token | None = None
    is_new: bool = False
    """True until the member is part of a generation."""

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for `protocol`."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class Group:
    """One group; members in the order in which they joined."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    is_stored: bool = False
    """True when the log has a group record; committed offsets alone make a group without one."""
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member id by group.instance.id (KIP-345)."""
    pending_members: set[str] = field(default_factory=set)
    """Assigned member ids that have not been used to join yet (KIP-394)."""
    pending_sync: set[str] = field(default_factory=set)
    initial_delay_left_ms: int = 0
    """How much longer the initial rebalance may be delayed (KIP-134); 0 for others."""
    is_initial: bool = False
    joined_since_delay: bool = False
    offsets: dict[TopicPartition, OffsetCommitValue] = field(default_factory=dict)

    kind = GroupKind.CLASSIC

    @property
    def is_empty(self) -> bool:
        """True in the state Empty."""
        return self.state is GroupState.EMPTY

    def transition(self, event: GroupEvent) -> None:
        """Change the state. Raises GroupTransitionError."""
        self.state = next_state(self.group_id, self.state, event)

    def is_in(self, *states: GroupState) -> bool:
        """True in any of these states."""
        return self.state in states

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """True when every member has joined the rebalance and no assigned member id is unused."""
        return not self.pending_members and all(m.join is not None for m in self.members.values())

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """True when a member may join with these: one protocol at least must be common to all."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        common = self.common_protocols()
        return self.protocol_type == protocol_type and any(name in common for name, _ in protocols)

    def common_protocols(self, without: str | None = None) -> set[str]:
        """The protocols that every member supports, not counting the member `without`."""
        sets = [
            {name for name, _ in member.protocols}
            for member in self.members.values()
            if member.member_id != without
        ]
        return set.intersection(*sets) if sets else set()

    def select_protocol(self) -> str:
        """Each member votes for its first choice among the common protocols."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; the next one becomes the leader in its place."""
        member = self.members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        if member is None:
            return None
        if (
            member.instance_id is not None
            and self.static_members.get(member.instance_id) == member_id
        ):
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, old: str, new: str) -> Member:
        """Give a static member its new id; it keeps its place (KIP-345)."""
        member = self.members[old]
        self.members = {
            (new if member_id == old else member_id): m for member_id, m in self.members.items()
        }
        member.member_id = new
        if member.instance_id is not None:
            self.static_members[member.instance_id] = new
        if self.leader_id == old:
            self.leader_id = new
        self.pending_sync.discard(old)
        return member

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader; False when no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.join is not None), None)
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def join_reply(self, member_id: str) -> JoinGroupResponse:
        """The JoinGroup reply for the present generation; the leader's has all subscriptions."""
        rows: Iterable[Member] = self.members.values() if member_id == self.leader_id else ()
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            member_id=member_id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    metadata=m.metadata(self.protocol),
                )
                for m in rows
            ),
        )

    def subscribed_topics(self) -> set[str] | None:
        """The topics that the members of a consumer group subscribe to; None when unknown."""
        if self.protocol_type != CONSUMER or (self.members and self.protocol is None):
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics |= _topics_of(member.metadata(self.protocol))
            except SchemaError:
                return None
        return topics

    def has_same_subscription(
        self, member: Member, protocol_type: str, protocols: Protocols
    ) -> bool:
        """True when a member that joins with these has the subscription of `member`.

        Of a consumer only the topics count: owned partitions and generation, which are beside them
        in the metadata, change with a restart.
        """
        was = member.metadata(self.protocol)
        now = dict(protocols).get(self.protocol or "")
        if protocol_type != self.protocol_type or now is None:
            return False
        if was == now or protocol_type != CONSUMER:
            return was == now
        try:
            return _topics_of(was) == _topics_of(now)
        except SchemaError:
            return False

    def metadata(
        self, now_ms: int, assignments: dict[str, bytes] | None = None
    ) -> GroupMetadataValue:
        """The group record of the present generation, with new assignments if given."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=now_ms,
            members=tuple(
                MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol),
                    assignment=(
                        m.assignment if assignments is None else assignments.get(m.member_id, b"")
                    ),
                )
                for m in self.members.values()
            ),
        )

    def empty_metadata(self, now_ms: int) -> GroupMetadataValue:
        """The group record of the next generation, without members."""
        return replace(
            self.metadata(now_ms),
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            members=(),
        )

    def replay(self, value: GroupMetadataValue) -> None:
        """Apply a group record: its generation is complete."""
        self.transition(GroupEvent.ASSIGNED if value.members else GroupEvent.EMPTIED)
        self.is_stored = True
        self.protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader_id = value.leader
        self.state_timestamp_ms = value.current_state_timestamp
        self.is_initial = False
        self.members = {row.member_id: self._replayed_member(row) for row in value.members}
        self.pending_sync &= self.members.keys()
        self.static_members = {
            m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None
        }

    def _replayed_member(self, row: MemberMetadata) -> Member:
        known = self.members.get(row.member_id)
        if known is not None:
            known.assignment = bytes(row.assignment)
            known.sync = None
            return known
        return Member(
            member_id=row.member_id,
            instance_id=row.group_instance_id,
            client_id=row.client_id,
            client_host=row.client_host,
            rebalance_timeout_ms=row.rebalance_timeout or row.session_timeout,
            session_timeout_ms=row.session_timeout,
            protocols=((self.protocol or "", bytes(row.subscription)),),
            assignment=bytes(row.assignment),
        )


def _topics_of(metadata: bytes) -> set[str]:
    """The topics of a consumer's subscription; newer versions only add fields at the end."""
    if len(metadata) < 2:
        return set()
    low, high = ConsumerProtocolSubscription.versions
    version = min(max(int.from_bytes(metadata[:2], "big", signed=True), low), high)
    return set(decoder(ConsumerProtocolSubscription, version)(metadata, 2)[0].topics)


def reply_if_waiting(out: Decision, token: Token | None, reply: object) -> None:
    """Reply to a waiting request, if there is one."""
    if token is not None:
        out.reply(token, reply)
