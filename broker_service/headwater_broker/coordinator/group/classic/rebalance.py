"""The classic rebalance protocol: join, sync, heartbeat, leave. Pure.

`timeouts` drops members that do not rejoin, sync or heartbeat in time. Every function takes the
time and a `Decision` to add to; waiting requests are tokens in the group.
Kafka's counterpart is the classic half of GroupMetadataManager; static members: KIP-345.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater_broker.coordinator.common.deadlines import Deadlines
from headwater_broker.coordinator.common.shard import Decision, Now, Token
from headwater_broker.coordinator.group.classic.group import (
    Group,
    Member,
    Protocols,
    reply_if_waiting,
)
from headwater_broker.coordinator.group.classic.states import GroupEvent, GroupState
from headwater_broker.coordinator.group.config import NEW_MEMBER_TIMEOUT_MS, GroupConfig
from headwater_broker.coordinator.group.records import group_record
from headwater_broker.coordinator.group.timer_keys import RETRY_MS, Timer, TimerKey

_S = GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoin:
    """A JoinGroup request."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh_id: str
    """The member id to assign if the member is new."""
    needs_known_id: bool
    """JoinGroup v4+: a new dynamic member must join again with its assigned id (KIP-394)."""
    may_skip_assignment: bool = False
    """JoinGroup v9+: a leader may have to skip the assignment (KIP-814)."""


def failed_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """The reply to a JoinGroup that failed."""
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


class ClassicProtocol:
    """The rules of the protocol over groups handed in; it owns only the deadlines."""

    def __init__(self, config: GroupConfig, deadlines: Deadlines[TimerKey]) -> None:
        self._config = config
        self._deadlines = deadlines

    # -- join

    def join(
        self, group: Group, request: MemberJoin, now: Now, token: Token, out: Decision
    ) -> None:
        """Let the request wait until every member has joined, or reply at once."""
        code = self._join_error(group, request)
        if code is not ErrorCode.NONE:
            out.reply(token, failed_join(code, request.member_id))
        elif not request.member_id:
            self._join_new(group, request, now, token, out)
        elif request.member_id in group.pending_members:
            self._deadlines.cancel(TimerKey(Timer.PENDING, group.group_id, request.member_id))
            self._add(group, request, request.member_id, now, token, out)
        else:
            try:
                member = self.member(group, request.member_id, request.instance_id)
            except KafkaError as error:
                out.reply(token, failed_join(error.code, request.member_id))
                return
            self._join_again(group, member, request, now, token, out)

    def session_error(self, request: MemberJoin) -> ErrorCode:
        """Whether the session timeout may be as the member wants it: what Kafka checks first."""
        low, high = self._config.min_session_timeout_ms, self._config.max_session_timeout_ms
        is_right = low <= request.session_timeout_ms <= high
        return ErrorCode.NONE if is_right else ErrorCode.INVALID_SESSION_TIMEOUT

    def _join_error(self, group: Group, request: MemberJoin) -> ErrorCode:
        if (code := self.session_error(request)) is not ErrorCode.NONE:
            return code
        if group.state is _S.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_known = request.member_id in group.members or request.instance_id in group.static_members
        others = len(group.members) + len(group.pending_members - {request.member_id})
        if not is_known and others >= self._config.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._fits(group, request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    @staticmethod
    def _fits(group: Group, request: MemberJoin) -> bool:
        """True when the protocols fit; a known member is compared with the other members only."""
        own = request.member_id or group.static_members.get(request.instance_id or "", "")
        if own in group.members and len(group.members) == 1:
            return bool(request.protocol_type and request.protocols)
        if own in group.members:
            common = group.common_protocols(without=own)
            return group.protocol_type == request.protocol_type and any(
                name in common for name, _ in request.protocols
            )
        return group.supports(request.protocol_type, request.protocols)

    def _join_new(
        self, group: Group, request: MemberJoin, now: Now, token: Token, out: Decision
    ) -> None:
        if request.instance_id is not None:
            old = group.static_members.get(request.instance_id)
            if old is not None:
                self._replace_static(group, old, request, now, token, out)
                return
        elif request.needs_known_id:
            group.pending_members.add(request.fresh_id)
            key = TimerKey(Timer.PENDING, group.group_id, request.fresh_id)
            self._deadlines.set(key, now.steady_ms + request.session_timeout_ms)
            out.reply(token, failed_join(ErrorCode.MEMBER_ID_REQUIRED, request.fresh_id))
            return
        self._add(group, request, request.fresh_id, now, token, out)

    def _add(
        self,
        group: Group,
        request: MemberJoin,
        member_id: str,
        now: Now,
        token: Token,
        out: Decision,
    ) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            join=token,
            is_new=True,
        )
        group.add(member, request.protocol_type)
        group.joined_since_delay = True
        key = TimerKey(Timer.SESSION, group.group_id, member_id)
        self._deadlines.set(key, now.steady_ms + NEW_MEMBER_TIMEOUT_MS)
        self.rebalance(group, now, out)

    def _join_again(
        self,
        group: Group,
        member: Member,
        request: MemberJoin,
        now: Now,
        token: Token,
        out: Decision,
    ) -> None:
        """A known member rejoins for a rebalance, or retries because the reply was lost."""
        is_same = member.protocols == request.protocols
        is_settled = group.is_in(_S.COMPLETING) or (
            group.is_in(_S.STABLE) and member.member_id != group.leader_id
        )
        if is_same and is_settled:
            self.renew_session(group, member, now)
            out.reply(token, group.join_reply(member.member_id))
            return
        self._update(member, request, token, out)
        if len(group.members) == 1:
            group.protocol_type = request.protocol_type
        self.rebalance(group, now, out)

    @staticmethod
    def _update(member: Member, request: MemberJoin, token: Token, out: Decision) -> None:
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        # A repeated JoinGroup takes the place of the waiting one.
        reply_if_waiting(
            out, member.join, failed_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        )
        member.join = token

    def _replace_static(
        self, group: Group, old: str, request: MemberJoin, now: Now, token: Token, out: Decision
    ) -> None:
        """A static member has restarted: it gets a new id, the old id is fenced (KIP-345).

        In a stable group whose protocol and subscriptions stay the same there is no rebalance; only
        the new id is written.
        """
        known = group.members[old]
        for waiting, error in (
            (known.join, failed_join(ErrorCode.FENCED_INSTANCE_ID, old)),
            (known.sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)),
        ):
            reply_if_waiting(out, waiting, error)
        known.join = known.sync = None
        self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, old))
        has_same_subscription = group.has_same_subscription(
            known, request.protocol_type, request.protocols
        )
        old_leader = group.leader_id
        member = group.rename(old, request.fresh_id)
        self._update(member, request, token, out)
        if len(group.members) == 1:
            group.protocol_type = request.protocol_type
        self.renew_session(group, member, now)
        if (
            not group.is_in(_S.STABLE)
            or not has_same_subscription
            or group.select_protocol() != group.protocol
        ):
            self.rebalance(group, now, out)
            return
        member.join = None
        out.records.append(group_record(group.group_id, group.metadata(now.wall_ms)))
        reply = group.join_reply(member.member_id)
        if old_leader == old and request.may_skip_assignment:
            # As the leader it watches for new partitions; the assignment stays (KAFKA-13435).
            reply = replace(reply, skip_assignment=True)
        elif old_leader == old:
            # An older client would assign again if it knew that it leads: name its former id.
            reply = replace(reply, leader=old, members=())
        out.confirm(token, reply)

    # -- rebalance

    def rebalance(self, group: Group, now: Now, out: Decision) -> None:
        """Begin a rebalance unless one is under way; complete it if every member has joined."""
        if not group.is_in(_S.PREPARING):
            self._begin(group, now, out)
        self.try_complete(group, now, out)

    def _begin(self, group: Group, now: Now, out: Decision) -> None:
        if group.is_in(_S.COMPLETING):
            error = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                if member.sync is not None:
                    out.reply(member.sync, error)
                    member.sync = None
                    self.renew_session(
                        group, member, now
                    )  # it does not heartbeat while its SyncGroup waits
            group.pending_sync.clear()
            self._deadlines.cancel(TimerKey(Timer.SYNC, group.group_id))
        delay_ms = self._config.initial_rebalance_delay_ms
        wait_ms = group.rebalance_timeout_ms
        group.is_initial = group.is_in(_S.EMPTY) and delay_ms > 0
        if group.is_initial:
            group.initial_delay_left_ms = max(wait_ms - delay_ms, 0)
            group.joined_since_delay = False
            wait_ms = delay_ms
        group.transition(GroupEvent.REBALANCE)
        key = TimerKey(Timer.REBALANCE, group.group_id)
        self._deadlines.set(key, now.steady_ms + wait_ms)

    def extend_initial_delay(self, group: Group, now: Now) -> bool:
        """Wait on if members joined during the initial delay: more may follow (KIP-134)."""
        if not (group.is_initial and group.joined_since_delay and group.initial_delay_left_ms > 0):
            return False
        more_ms = min(self._config.initial_rebalance_delay_ms, group.initial_delay_left_ms)
        group.initial_delay_left_ms -= more_ms
        group.joined_since_delay = False
        self._deadlines.set(TimerKey(Timer.REBALANCE, group.group_id), now.steady_ms + more_ms)
        return True

    def try_complete(self, group: Group, now: Now, out: Decision) -> None:
        """Complete the rebalance if no member is missing (an initial one waits its whole delay)."""
        if group.is_in(_S.PREPARING) and not group.is_initial and group.all_joined:
            group.elect_joined_leader()
            self.complete(group, now, out)

    def complete(self, group: Group, now: Now, out: Decision) -> None:
        """Begin the next generation with the members that have joined, or empty the group."""
        group.is_initial = False
        key = TimerKey(Timer.REBALANCE, group.group_id)
        if not group.members:
            # Tried again if the append is rejected; the replay makes the group empty.
            self._deadlines.set(key, now.steady_ms + RETRY_MS)
            out.records.append(group_record(group.group_id, group.empty_metadata(now.wall_ms)))
            return
        self._deadlines.cancel(key)
        group.generation += 1
        group.protocol = group.select_protocol()
        group.transition(GroupEvent.JOINED)
        group.pending_sync = set(group.members)
        wait_ms = group.rebalance_timeout_ms
        self._deadlines.set(TimerKey(Timer.SYNC, group.group_id), now.steady_ms + wait_ms)
        for member in group.members.values():
            token, member.join = member.join, None
            member.is_new = False
            reply_if_waiting(out, token, group.join_reply(member.member_id))
            self.renew_session(group, member, now)

    # -- sync

    def sync(
        self, group: Group, request: SyncGroupRequest, now: Now, token: Token, out: Decision
    ) -> None:
        """Let the request wait for the leader's assignment; the leader's SyncGroup carries it.
        Raises KafkaError."""
        member = self.member(group, request.member_id, request.group_instance_id)
        self.check_generation(group, request.generation_id)
        for named, actual in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        ):
            if named is not None and named != actual:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {group.group_id!r} uses {actual!r}, not {named!r}",
                )
        if group.is_in(_S.EMPTY):
            raise unknown_member(group, request.member_id)
        if group.is_in(_S.PREPARING):
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance has begun")
        self.renew_session(group, member, now)
        group.pending_sync.discard(member.member_id)
        if group.is_in(_S.STABLE):
            self.end_sync_wait(group)
            out.reply(token, self._assigned(group, member.assignment))
            return
        if member.member_id != group.leader_id:
            error = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            reply_if_waiting(out, member.sync, error)
            member.sync = token
            return
        assignments = {row.member_id: bytes(row.assignment) for row in request.assignments}
        out.records.append(group_record(group.group_id, group.metadata(now.wall_ms, assignments)))
        out.confirm(token, self._assigned(group, assignments.get(member.member_id, b"")))
        for other in group.members.values():
            if other.sync is not None:
                assigned = self._assigned(group, assignments.get(other.member_id, b""))
                out.confirm(other.sync, assigned)
                self.renew_session(group, other, now)

    @staticmethod
    def _assigned(group: Group, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=assignment,
        )

    def end_sync_wait(self, group: Group) -> None:
        """Cancel the sync deadline once every member has synced."""
        if not group.pending_sync:
            self._deadlines.cancel(TimerKey(Timer.SYNC, group.group_id))

    # -- heartbeat and leave

    def member(self, group: Group, member_id: str, instance_id: str | None) -> Member:
        """The member of a request. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if group.state is _S.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted")
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is None:
                raise unknown_member(group, instance_id)
            if current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {instance_id!r} of group {group.group_id!r} is now {current!r}",
                )
        found = group.members.get(member_id)
        if found is None:
            raise unknown_member(group, member_id)
        return found

    @staticmethod
    def check_generation(group: Group, generation: int) -> None:
        """Raises ILLEGAL_GENERATION."""
        if generation != group.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {group.group_id!r} is in generation {group.generation}, not {generation}",
            )

    def renew_session(self, group: Group, member: Member, now: Now) -> None:
        """The member is alive: its session starts again."""
        wait_ms = member.session_timeout_ms
        if member.is_new:
            wait_ms = max(wait_ms, NEW_MEMBER_TIMEOUT_MS)
        key = TimerKey(Timer.SESSION, group.group_id, member.member_id)
        self._deadlines.set(key, now.steady_ms + wait_ms)

    def heartbeat(
        self, group: Group, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        """NONE, or REBALANCE_IN_PROGRESS: the member is to join again. Raises KafkaError."""
        member = self.member(group, member_id, instance_id)
        self.check_generation(group, generation)
        if group.is_in(_S.EMPTY):
            raise unknown_member(group, member_id)
        self.renew_session(group, member, now)
        is_preparing = group.is_in(_S.PREPARING)
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def leave(
        self, group: Group, member_id: str, instance_id: str | None, now: Now, out: Decision
    ) -> ErrorCode:
        """Remove one member, named by member id or by instance id (KIP-345)."""
        if instance_id is not None and not member_id:
            member_id = group.static_members.get(instance_id, "")
        elif instance_id is None and member_id in group.pending_members:
            self._drop_pending(group, member_id)
            self.try_complete(group, now, out)
            return ErrorCode.NONE
        try:
            self.member(group, member_id, instance_id)
        except KafkaError as error:
            return error.code
        self.remove_member(group, member_id, now, out)
        return ErrorCode.NONE

    def restart_sessions(self, group: Group, now: Now) -> None:
        """The group was just loaded: the sessions of its members start now."""
        for member in group.members.values():
            self.renew_session(group, member, now)

    def remove_member(self, group: Group, member_id: str, now: Now, out: Decision) -> None:
        """A member leaves, or is put out: its requests are answered, the others rebalance."""
        member = self.drop_member(group, member_id)
        if member is None:
            return
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        reply_if_waiting(out, member.join, failed_join(unknown, member_id))
        reply_if_waiting(out, member.sync, SyncGroupResponse(error_code=unknown))
        if group.is_in(_S.STABLE, _S.COMPLETING):
            self.rebalance(group, now, out)
        else:
            self.try_complete(group, now, out)

    def drop_member(self, group: Group, member_id: str) -> Member | None:
        """Remove a member, whose requests are not answered here."""
        self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, member_id))
        return group.remove(member_id)

    def _drop_pending(self, group: Group, member_id: str) -> None:
        self._deadlines.cancel(TimerKey(Timer.PENDING, group.group_id, member_id))
        group.pending_members.discard(member_id)


def unknown_member(group: Group, name: str) -> KafkaError:
    """UNKNOWN_MEMBER_ID, with the state of the group."""
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group.group_id!r} ({group.state.value}) has no member {name!r}",
    )
