"""Members of the classic protocol in a consumer group: join, sync, heartbeat, leave. Pure.

Their generation is their member epoch. A JoinGroup never waits: it takes the member one step to its
target, which SyncGroup then tells; a heartbeat says when the next step is possible.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k13_leave_group import MemberIdentity, MemberResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.wire.schema import SchemaError
from headwater_broker.coordinator.common.shard import Now, Token
from headwater_broker.coordinator.group.classic.group import CONSUMER
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin, failed_join
from headwater_broker.coordinator.group.consumer.change import Change
from headwater_broker.coordinator.group.consumer.classic_protocol_data import (
    assignment_bytes,
    by_id,
    read_subscription,
)
from headwater_broker.coordinator.group.consumer.commits import member_of
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.heartbeat import ConsumerProtocol
from headwater_broker.coordinator.group.consumer.member import ClassicSide, ConsumerMember
from headwater_broker.coordinator.group.consumer.states import MemberState
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey


class ClassicMembers:
    """The rules over groups handed in."""

    def __init__(self, table: GroupTable, protocol: ConsumerProtocol, topics: Topics) -> None:
        self._table = table
        self._protocol = protocol
        self._topics = topics

    # -- join

    def join(self, change: Change, request: MemberJoin, now: Now, token: Token) -> None:
        """The reply is a JoinGroupResponse. Raises KafkaError."""
        self._check(change.group, request)
        if not request.member_id and request.instance_id is None and request.needs_known_id:
            change.out.reply(token, failed_join(ErrorCode.MEMBER_ID_REQUIRED, request.fresh_id))
            return
        try:
            subscription = read_subscription(request.protocols[0][1])
        except SchemaError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        before = self._member_before(change, request)
        is_new = before.member_id not in change.members
        asked = before.asking(
            instance_id=request.instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=frozenset(subscription.topics),
            regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicSide(request.session_timeout_ms, request.protocols),
        )
        change.put(asked)
        change.drop_unused_regex(before.regex)
        rules = self._protocol
        rules.advance_epoch(change, now, is_due=is_new or asked.topics != before.topics)
        rules.advance_target(change, now, is_at_once=True)
        owned = by_id(subscription.owned_partitions, self._topics)
        moved = rules.step(change, asked, owned, now)
        group_id = change.group.group_id
        rules.timeouts.renew_session(group_id, moved, now)
        self._table.deadlines.cancel(TimerKey(Timer.JOIN, group_id, moved.member_id))
        self._await(Timer.SYNC, group_id, moved, now)
        change.out.confirm(
            token,
            JoinGroupResponse(
                error_code=0,
                generation_id=moved.epoch,
                protocol_type=CONSUMER,
                protocol_name=request.protocols[0][0],
                leader="",
                member_id=moved.member_id,
            ),
        )

    def _check(self, group: ConsumerGroup, request: MemberJoin) -> None:
        config = self._table.config
        low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms is not within {low} to {high} ms",
            )
        is_known = request.member_id in group.members or request.instance_id in group.static_members
        if not is_known and len(group.members) >= config.consumer_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id!r} is full")
        names = {name for name, _ in request.protocols}
        others = [
            {name for name, _ in member.classic.protocols}
            for member in group.members.values()
            if member.classic is not None and member.member_id != request.member_id
        ]
        if request.protocol_type != CONSUMER or not names.intersection(*others):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group.group_id!r} of consumers has no protocol in common with {names}",
            )

    def _member_before(self, change: Change, request: MemberJoin) -> ConsumerMember:
        group = change.group
        if request.instance_id is not None:
            holder_id = group.static_members.get(request.instance_id)
            if request.member_id:
                _check_instance(group, request.instance_id, request.member_id)
            elif holder_id is not None:
                self._protocol.timeouts.cancel_timers(group.group_id, holder_id)
                holder = change.replace_static(change.members[holder_id], request.fresh_id)
                # Its epoch is its generation, which a classic member would not take as 0.
                back = holder.moved(change.target_epoch, holder.state, holder.assigned)
                change.put(back)
                return back
        member_id = request.member_id or request.fresh_id
        return change.members.get(member_id) or ConsumerMember(member_id=member_id)

    # -- sync

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: Now) -> SyncGroupResponse:
        """The member's present assignment. Raises KafkaError."""
        member, side = self._classic_member(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        name, metadata = side.protocols[0]
        wrong_type = request.protocol_type not in (None, CONSUMER)
        if wrong_type or request.protocol_name not in (None, name):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"member {member.member_id!r} joined with {name!r}, not {request.protocol_name!r}",
            )
        if member.epoch < group.target_epoch and member.state is not MemberState.UNREVOKED:
            self._await(Timer.JOIN, group.group_id, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance has begun")
        key = TimerKey(Timer.SYNC, group.group_id, member.member_id)
        self._table.deadlines.cancel(key)
        self._protocol.timeouts.renew_session(group.group_id, member, now)
        return SyncGroupResponse(
            error_code=0,
            protocol_type=CONSUMER,
            protocol_name=name,
            assignment=assignment_bytes(member.assigned, self._topics, metadata),
        )

    # -- heartbeat

    def heartbeat(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Now,
    ) -> ErrorCode:
        """NONE, or REBALANCE_IN_PROGRESS: the member is to join again. Raises KafkaError."""
        member, _ = self._classic_member(group, member_id, instance_id, generation)
        self._protocol.timeouts.renew_session(group.group_id, member, now)
        if not _has_a_step(group, member):
            return ErrorCode.NONE
        self._await(Timer.JOIN, group.group_id, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicSide]:
        if instance_id is not None:
            _check_instance(group, instance_id, member_id)
        member = member_of(group, member_id)
        if member.classic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} uses the consumer protocol"
            )
        if generation != member.epoch:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"member {member_id!r} is in generation {member.epoch}, not {generation}",
            )
        return member, member.classic

    def _await(self, kind: Timer, group_id: str, member: ConsumerMember, now: Now) -> None:
        """The member is to join or sync within its rebalance timeout."""
        key = TimerKey(kind, group_id, member.member_id)
        if not self._table.deadlines.is_set(key):
            wait_ms = max(member.rebalance_timeout_ms, 0)
            self._table.deadlines.set(key, now.steady_ms + wait_ms)

    # -- leave

    def leave(
        self, change: Change, rows: Iterable[MemberIdentity], now: Now
    ) -> list[MemberResponse]:
        """One row per member. A tool may name any static member."""
        group, gone, replies = change.group, dict[str, None](), []
        for row in rows:
            member_id, code = row.member_id, ErrorCode.NONE
            try:
                if row.group_instance_id is not None:
                    member_id = member_id or group.static_members.get(row.group_instance_id, "")
                    _check_instance(group, row.group_instance_id, member_id)
                elif member_of(group, member_id).classic is None:
                    code = ErrorCode.UNKNOWN_MEMBER_ID
            except KafkaError as error:
                code = error.code
            if code is ErrorCode.NONE:
                gone[member_id] = None
            replies.append(
                MemberResponse(
                    member_id=row.member_id,
                    group_instance_id=row.group_instance_id,
                    error_code=code,
                )
            )
        if gone:
            self._protocol.remove(change, gone, now)
        return replies


def _has_a_step(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """True when joining again brings the member nearer to its target."""
    if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED:
        return True
    if member.state is not MemberState.UNRELEASED:
        return False
    return any(
        not group.is_held(topic_id, partition)
        for topic_id, partitions in group.target_of(member).items()
        for partition in partitions
    )


def _check_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> None:
    holder = group.static_members.get(instance_id)
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id!r} is not known")
    if holder != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance {instance_id!r} of group {group.group_id!r} is now {holder!r}",
        )
