"""A classic group and its members: the state, and what follows from it. Pure.

Durable are the last complete generation (protocol, leader, members with their subscription and
assignment) and the committed offsets: they change by replay only (`shard.py`). The rest (who has
joined a rebalance, parked requests, pending member ids, deadlines) is soft: a successor starts
without it, and clients bring it back by joining again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headwater.wire.apis.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from headwater.wire.consumer_protocol import ConsumerProtocolSubscription
from headwater.wire.schema import SchemaError, decoder
from headwater_broker.coordinator.common.shard import Decision, Token
from headwater_broker.coordinator.group.classic_states import GroupEvent, GroupState, next_state
from headwater_broker.coordinator.group.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)

CONSUMER = "consumer"
Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) in the member's order of preference."""
TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Member:
    """One member; `join` and `sync` are the tokens of its parked requests."""

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
    """Has not been part of a generation yet."""

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for `protocol`."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class Group:
    """One group. Members are in the order in which they came."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    is_stored: bool = False
    """A group record is in the log (offsets alone make a group without one)."""
    members: dict[str, Member] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)
    """Member id by group.instance.id (KIP-345)."""
    pending: set[str] = field(default_factory=set)
    """Member ids handed out that have not joined with them yet (KIP-394)."""
    pending_sync: set[str] = field(default_factory=set)
    initial_delay_left_ms: int = 0
    """Of an initial rebalance: how much longer it may be put off; else 0."""
    is_initial: bool = False
    came_since_delay: bool = False
    offsets: dict[TopicPartition, OffsetCommitValue] = field(default_factory=dict)

    def move(self, event: GroupEvent) -> None:
        """Raises GroupTransitionError."""
        self.state = next_state(self.group_id, self.state, event)

    def is_in(self, *states: GroupState) -> bool:
        """True in any of these states."""
        return self.state in states

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Everybody known has joined the rebalance, and nobody is about to."""
        return not self.pending and all(m.join is not None for m in self.members.values())

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """May a member with these join? One protocol at least must be everybody's."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        common = self.common_protocols()
        return self.protocol_type == protocol_type and any(name in common for name, _ in protocols)

    def common_protocols(self, but: str | None = None) -> set[str]:
        """What every member (except `but`) supports."""
        sets = [
            {name for name, _ in member.protocols}
            for member in self.members.values()
            if member.member_id != but
        ]
        return set.intersection(*sets) if sets else set()

    def select_protocol(self) -> str:
        """Each member votes for its first among the common ones."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def add(self, member: Member, protocol_type: str) -> None:
        """A new member; the first one sets the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """A member goes; the leadership goes on to one that has joined, if any."""
        member = self.members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        if member is None:
            return None
        if member.instance_id is not None and self.statics.get(member.instance_id) == member_id:
            del self.statics[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, old: str, new: str) -> Member:
        """A static member came back under a new id; its place stays (KIP-345)."""
        member = self.members[old]
        self.members = {
            (new if member_id == old else member_id): m for member_id, m in self.members.items()
        }
        member.member_id = new
        if member.instance_id is not None:
            self.statics[member.instance_id] = new
        if self.leader_id == old:
            self.leader_id = new
        self.pending_sync.discard(old)
        return member

    def elect_joined_leader(self) -> bool:
        """The leader must be one that has joined; False when nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.join is not None), None)
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def join_reply(self, member_id: str) -> JoinGroupResponse:
        """The current generation as one member is told it: the leader gets all subscriptions."""
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
        """What a consumer group's members subscribe to; None when that cannot be known."""
        if self.protocol_type != CONSUMER or (self.members and self.protocol is None):
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics |= _topics_of(member.metadata(self.protocol))
            except SchemaError:
                return None
        return topics

    def reads_same(self, member: Member, protocol_type: str, protocols: Protocols) -> bool:
        """Does a member that comes with these ask for what `member` has in this generation?

        Of a consumer its topics count: what it owns and the generation that it knows, which stand
        beside them, are others after a restart.
        """
        was = member.metadata(self.protocol)
        asked = dict(protocols).get(self.protocol or "")
        if protocol_type != self.protocol_type or asked is None:
            return False
        if was == asked or protocol_type != CONSUMER:
            return was == asked
        try:
            return _topics_of(was) == _topics_of(asked)
        except SchemaError:
            return False

    def stored(
        self, now_ms: int, assignments: dict[str, bytes] | None = None
    ) -> GroupMetadataValue:
        """The record of the current generation, with new assignments when given."""
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

    def empty_stored(self, now_ms: int) -> GroupMetadataValue:
        """The record of the next generation, which has no members."""
        return replace(
            self.stored(now_ms),
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            members=(),
        )

    def take(self, value: GroupMetadataValue) -> None:
        """Replay of a group record: the generation it names is complete."""
        self.move(GroupEvent.ASSIGNED if value.members else GroupEvent.EMPTIED)
        self.is_stored = True
        self.protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader_id = value.leader
        self.state_timestamp_ms = value.current_state_timestamp
        self.is_initial = False
        self.members = {row.member_id: self._taken(row) for row in value.members}
        self.pending_sync &= self.members.keys()
        self.statics = {
            m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None
        }

    def _taken(self, row: MemberMetadata) -> Member:
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
    """The topics of a consumer's subscription; versions beyond ours only add fields at the end."""
    if len(metadata) < 2:
        return set()
    low, high = ConsumerProtocolSubscription.versions
    version = min(max(int.from_bytes(metadata[:2], "big", signed=True), low), high)
    return set(decoder(ConsumerProtocolSubscription, version)(metadata, 2)[0].topics)


def answer(out: Decision, token: Token | None, reply: object) -> None:
    """Answer a parked request, if there is one."""
    if token is not None:
        out.reply(token, reply)
