"""Joining, syncing, heartbeats, leaving, and what the deadlines do: the classic protocol. Pure.

Every function takes the time and a `Decision` to add to; parked requests are tokens in the group.
Kafka's counterpart is GroupMetadataManager's classic half; static members as in KIP-345.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from headwater_broker.coordinator.common.shard import Decision, Now, Token
from headwater_broker.coordinator.common.timers import Deadlines
from headwater_broker.coordinator.group.classic_group import Group, Member, Protocols, answer
from headwater_broker.coordinator.group.classic_states import GroupEvent, GroupState
from headwater_broker.coordinator.group.config import NEW_MEMBER_TIMEOUT_MS, GroupConfig
from headwater_broker.coordinator.group.records import group_record

RETRY_MS = 500
"""A rebalance that cannot write its record is tried again after this."""
_S = GroupState


class Timer(Enum):
    """What a deadline is about."""

    SESSION = "session"
    PENDING = "pending member id"
    REBALANCE = "rebalance"
    SYNC = "sync"
    EXPIRY = "offsets expiry"


class TimerKey(NamedTuple):
    """Whose deadline; `member_id` is empty for the group's own."""

    kind: Timer
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """A JoinGroup request as the machine needs it."""

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
    """What the member is to be called if it is new."""
    needs_known_id: bool
    """JoinGroup v4+: a new dynamic member must come back with its id (KIP-394)."""
    may_skip_assignment: bool = False
    """JoinGroup v9+: a leader can be told that it leads and has nothing to assign."""


def refused_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A join that failed."""
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


class Membership:
    """The rules, over groups handed in; owns nothing but the deadlines."""

    def __init__(self, config: GroupConfig, deadlines: Deadlines[TimerKey]) -> None:
        self._config = config
        self._deadlines = deadlines

    # -- join

    def join(self, group: Group, ask: Joining, now: Now, token: Token, out: Decision) -> None:
        """Park the member until everybody has joined, or answer at once."""
        code = self._refusal(group, ask)
        if code is not ErrorCode.NONE:
            out.reply(token, refused_join(code, ask.member_id))
        elif not ask.member_id:
            self._join_new(group, ask, now, token, out)
        elif ask.member_id in group.pending:
            self._deadlines.cancel(TimerKey(Timer.PENDING, group.group_id, ask.member_id))
            self._add(group, ask, ask.member_id, now, token, out)
        else:
            try:
                member = self.member(group, ask.member_id, ask.instance_id)
            except KafkaError as error:
                out.reply(token, refused_join(error.code, ask.member_id))
                return
            self._join_again(group, member, ask, now, token, out)

    def _refusal(self, group: Group, ask: Joining) -> ErrorCode:
        config = self._config
        if not (
            config.min_session_timeout_ms <= ask.session_timeout_ms <= config.max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group.state is _S.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_known = ask.member_id in group.members or ask.instance_id in group.statics
        others = len(group.members) + len(group.pending - {ask.member_id})
        if not is_known and others >= config.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._fits(group, ask):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    @staticmethod
    def _fits(group: Group, ask: Joining) -> bool:
        """A member that changes its protocols is compared with the others only."""
        own = ask.member_id or group.statics.get(ask.instance_id or "", "")
        if own in group.members and len(group.members) == 1:
            return bool(ask.protocol_type and ask.protocols)
        if own in group.members:
            common = group.common_protocols(but=own)
            return group.protocol_type == ask.protocol_type and any(
                name in common for name, _ in ask.protocols
            )
        return group.supports(ask.protocol_type, ask.protocols)

    def _join_new(self, group: Group, ask: Joining, now: Now, token: Token, out: Decision) -> None:
        if ask.instance_id is not None:
            old = group.statics.get(ask.instance_id)
            if old is not None:
                self._replace_static(group, old, ask, now, token, out)
                return
        elif ask.needs_known_id:
            group.pending.add(ask.fresh_id)
            key = TimerKey(Timer.PENDING, group.group_id, ask.fresh_id)
            self._deadlines.set(key, now.steady_ms + ask.session_timeout_ms)
            out.reply(token, refused_join(ErrorCode.MEMBER_ID_REQUIRED, ask.fresh_id))
            return
        self._add(group, ask, ask.fresh_id, now, token, out)

    def _add(
        self,
        group: Group,
        ask: Joining,
        member_id: str,
        now: Now,
        token: Token,
        out: Decision,
    ) -> None:
        member = Member(
            member_id=member_id,
            instance_id=ask.instance_id,
            client_id=ask.client_id,
            client_host=ask.client_host,
            rebalance_timeout_ms=ask.rebalance_timeout_ms,
            session_timeout_ms=ask.session_timeout_ms,
            protocols=ask.protocols,
            join=token,
            is_new=True,
        )
        group.add(member, ask.protocol_type)
        group.came_since_delay = True
        key = TimerKey(Timer.SESSION, group.group_id, member_id)
        self._deadlines.set(key, now.steady_ms + NEW_MEMBER_TIMEOUT_MS)
        self.rebalance(group, now, out)

    def _join_again(
        self,
        group: Group,
        member: Member,
        ask: Joining,
        now: Now,
        token: Token,
        out: Decision,
    ) -> None:
        """A known member: rejoin for a rebalance, or a retry whose first reply was lost."""
        is_same = member.protocols == ask.protocols
        is_settled = group.is_in(_S.COMPLETING) or (
            group.is_in(_S.STABLE) and member.member_id != group.leader_id
        )
        if is_same and is_settled:
            self.touch(group, member, now)
            out.reply(token, group.join_reply(member.member_id))
            return
        self._update(member, ask, token, out)
        if len(group.members) == 1:
            group.protocol_type = ask.protocol_type
        self.rebalance(group, now, out)

    @staticmethod
    def _update(member: Member, ask: Joining, token: Token, out: Decision) -> None:
        member.protocols = ask.protocols
        member.rebalance_timeout_ms = ask.rebalance_timeout_ms
        member.session_timeout_ms = ask.session_timeout_ms
        member.client_id, member.client_host = ask.client_id, ask.client_host
        # A join sent anew takes the place of the one that was parked.
        answer(out, member.join, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join = token

    def _replace_static(
        self, group: Group, old: str, ask: Joining, now: Now, token: Token, out: Decision
    ) -> None:
        """A static member has restarted: a new id in its old place, the old id is fenced.

        In a stable group whose protocol and subscriptions stay the same nobody else notices; only
        the change of id is written (KIP-345).
        """
        known = group.members[old]
        for parked, refusal in (
            (known.join, refused_join(ErrorCode.FENCED_INSTANCE_ID, old)),
            (known.sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)),
        ):
            answer(out, parked, refusal)
        known.join = known.sync = None
        self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, old))
        reads_same = group.reads_same(known, ask.protocol_type, ask.protocols)
        old_leader = group.leader_id
        member = group.rename(old, ask.fresh_id)
        self._update(member, ask, token, out)
        if len(group.members) == 1:
            group.protocol_type = ask.protocol_type
        self.touch(group, member, now)
        if (
            not group.is_in(_S.STABLE)
            or not reads_same
            or group.select_protocol() != group.protocol
        ):
            self.rebalance(group, now, out)
            return
        member.join = None
        out.records.append(group_record(group.group_id, group.stored(now.wall_ms)))
        reply = group.join_reply(member.member_id)
        if old_leader == old and ask.may_skip_assignment:
            # It watches for new partitions, as leaders do; the assignment stays (KAFKA-13435).
            reply = replace(reply, skip_assignment=True)
        elif old_leader == old:
            # An older leader that knew it leads would assign anew: it is told its former id.
            reply = replace(reply, leader=old, members=())
        out.confirm(token, reply)

    # -- rebalance

    def rebalance(self, group: Group, now: Now, out: Decision) -> None:
        """Begin one unless it has begun, and end it if everybody has joined."""
        if not group.is_in(_S.PREPARING):
            self._begin(group, now, out)
        self.try_complete(group, now, out)

    def _begin(self, group: Group, now: Now, out: Decision) -> None:
        if group.is_in(_S.COMPLETING):
            refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            for member in group.members.values():
                if member.sync is not None:
                    out.reply(member.sync, refusal)
                    member.sync = None
                    self.touch(group, member, now)  # it could not heartbeat while it was parked
            group.pending_sync.clear()
            self._deadlines.cancel(TimerKey(Timer.SYNC, group.group_id))
        delay_ms = self._config.initial_rebalance_delay_ms
        wait_ms = group.rebalance_timeout_ms
        group.is_initial = group.is_in(_S.EMPTY) and delay_ms > 0
        if group.is_initial:
            group.initial_delay_left_ms = max(wait_ms - delay_ms, 0)
            group.came_since_delay = False
            wait_ms = delay_ms
        group.move(GroupEvent.REBALANCE)
        key = TimerKey(Timer.REBALANCE, group.group_id)
        self._deadlines.set(key, now.steady_ms + wait_ms)

    def rebalance_due(self, group: Group, now: Now, out: Decision) -> None:
        """The time to join is over: go on with those who did."""
        if not group.is_in(_S.PREPARING):
            return
        if group.is_initial and group.came_since_delay and group.initial_delay_left_ms > 0:
            # More members came during the delay: perhaps more will (KIP-134).
            more_ms = min(self._config.initial_rebalance_delay_ms, group.initial_delay_left_ms)
            group.initial_delay_left_ms -= more_ms
            group.came_since_delay = False
            key = TimerKey(Timer.REBALANCE, group.group_id)
            self._deadlines.set(key, now.steady_ms + more_ms)
            return
        for member in [m for m in group.members.values() if m.join is None]:
            if member.instance_id is None:
                self._forget(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, none has come back yet: their sessions decide.
            key = TimerKey(Timer.REBALANCE, group.group_id)
            self._deadlines.set(key, now.steady_ms + max(group.rebalance_timeout_ms, RETRY_MS))
            return
        self._complete(group, now, out)

    def try_complete(self, group: Group, now: Now, out: Decision) -> None:
        """End the rebalance when nobody is missing (an initial one takes its whole delay)."""
        if group.is_in(_S.PREPARING) and not group.is_initial and group.all_joined:
            group.elect_joined_leader()
            self._complete(group, now, out)

    def _complete(self, group: Group, now: Now, out: Decision) -> None:
        group.is_initial = False
        key = TimerKey(Timer.REBALANCE, group.group_id)
        if not group.members:
            # Tried again should the record be refused; the replay makes the group empty.
            self._deadlines.set(key, now.steady_ms + RETRY_MS)
            out.records.append(group_record(group.group_id, group.empty_stored(now.wall_ms)))
            return
        self._deadlines.cancel(key)
        group.generation += 1
        group.protocol = group.select_protocol()
        group.move(GroupEvent.JOINED)
        group.pending_sync = set(group.members)
        wait_ms = group.rebalance_timeout_ms
        self._deadlines.set(TimerKey(Timer.SYNC, group.group_id), now.steady_ms + wait_ms)
        for member in group.members.values():
            token, member.join = member.join, None
            member.is_new = False
            answer(out, token, group.join_reply(member.member_id))
            self.touch(group, member, now)

    # -- sync

    def sync(
        self, group: Group, ask: SyncGroupRequest, now: Now, token: Token, out: Decision
    ) -> None:
        """Park until the leader's assignment is durable; its sync brings it. Raises KafkaError."""
        member = self.member(group, ask.member_id, ask.group_instance_id)
        self.check_generation(group, ask.generation_id)
        for said, actual in (
            (ask.protocol_type, group.protocol_type),
            (ask.protocol_name, group.protocol),
        ):
            if said is not None and said != actual:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {group.group_id!r} uses {actual!r}, not {said!r}",
                )
        if group.is_in(_S.EMPTY):
            raise unknown_member(group, ask.member_id)
        if group.is_in(_S.PREPARING):
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance has begun")
        self.touch(group, member, now)
        group.pending_sync.discard(member.member_id)
        if group.is_in(_S.STABLE):
            self.end_sync_wait(group)
            out.reply(token, self._assigned(group, member.assignment))
            return
        if member.member_id != group.leader_id:
            refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            answer(out, member.sync, refusal)
            member.sync = token
            return
        given = {row.member_id: bytes(row.assignment) for row in ask.assignments}
        out.records.append(group_record(group.group_id, group.stored(now.wall_ms, given)))
        out.confirm(token, self._assigned(group, given.get(member.member_id, b"")))
        for other in group.members.values():
            if other.sync is not None:
                assigned = self._assigned(group, given.get(other.member_id, b""))
                out.confirm(other.sync, assigned)
                self.touch(group, other, now)

    @staticmethod
    def _assigned(group: Group, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=assignment,
        )

    def end_sync_wait(self, group: Group) -> None:
        """When all have synced: others hold partitions that they may never have heard of."""
        if not group.pending_sync:
            self._deadlines.cancel(TimerKey(Timer.SYNC, group.group_id))

    def sync_due(self, group: Group, now: Now, out: Decision) -> None:
        """Members that were given a generation and did not sync are gone."""
        if not group.pending_sync or not group.is_in(_S.COMPLETING, _S.STABLE):
            return
        for member_id in list(group.pending_sync):
            self._forget(group, member_id)
        self.rebalance(group, now, out)

    # -- staying and leaving

    def member(self, group: Group, member_id: str, instance_id: str | None) -> Member:
        """The member that speaks. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if group.state is _S.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted")
        if instance_id is not None:
            current = group.statics.get(instance_id)
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

    def touch(self, group: Group, member: Member, now: Now) -> None:
        """The member lives: its session begins anew."""
        wait_ms = member.session_timeout_ms
        if member.is_new:
            wait_ms = max(wait_ms, NEW_MEMBER_TIMEOUT_MS)
        key = TimerKey(Timer.SESSION, group.group_id, member.member_id)
        self._deadlines.set(key, now.steady_ms + wait_ms)

    def heartbeat(
        self, group: Group, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        """NONE, or REBALANCE_IN_PROGRESS: come and join. Raises KafkaError."""
        member = self.member(group, member_id, instance_id)
        self.check_generation(group, generation)
        if group.is_in(_S.EMPTY):
            raise unknown_member(group, member_id)
        self.touch(group, member, now)
        is_preparing = group.is_in(_S.PREPARING)
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def leave(
        self, group: Group, member_id: str, instance_id: str | None, now: Now, out: Decision
    ) -> ErrorCode:
        """One member goes, by its id or by its instance id (KIP-345)."""
        if instance_id is not None and not member_id:
            member_id = group.statics.get(instance_id, "")
        elif instance_id is None and member_id in group.pending:
            self._forget_pending(group, member_id)
            self.try_complete(group, now, out)
            return ErrorCode.NONE
        try:
            self.member(group, member_id, instance_id)
        except KafkaError as error:
            return error.code
        self._gone(group, member_id, now, out)
        return ErrorCode.NONE

    def session_due(self, group: Group, member_id: str, now: Now, out: Decision) -> None:
        """A member was silent too long; one whose request is parked here is not silent."""
        member = group.members.get(member_id)
        is_renewed = self._deadlines.is_set(TimerKey(Timer.SESSION, group.group_id, member_id))
        if member is None or is_renewed:  # renewed by what else was due in the same tick
            return
        is_parked = member.join is not None or member.sync is not None
        if is_parked and not member.is_new:
            self.touch(group, member, now)
            return
        self._gone(group, member_id, now, out)

    def pending_due(self, group: Group, member_id: str, now: Now, out: Decision) -> None:
        """A member id was handed out and never used."""
        if member_id in group.pending:
            group.pending.discard(member_id)
            self.try_complete(group, now, out)

    def restart(self, group: Group, now: Now) -> None:
        """The group was just loaded: everybody's session begins now."""
        for member in group.members.values():
            self.touch(group, member, now)

    def _gone(self, group: Group, member_id: str, now: Now, out: Decision) -> None:
        member = self._forget(group, member_id)
        if member is None:
            return
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        answer(out, member.join, refused_join(unknown, member_id))
        answer(out, member.sync, SyncGroupResponse(error_code=unknown))
        if group.is_in(_S.STABLE, _S.COMPLETING):
            self.rebalance(group, now, out)
        else:
            self.try_complete(group, now, out)

    def _forget(self, group: Group, member_id: str) -> Member | None:
        self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, member_id))
        return group.remove(member_id)

    def _forget_pending(self, group: Group, member_id: str) -> None:
        self._deadlines.cancel(TimerKey(Timer.PENDING, group.group_id, member_id))
        group.pending.discard(member_id)


def unknown_member(group: Group, name: str) -> KafkaError:
    """UNKNOWN_MEMBER_ID with its story."""
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group.group_id!r} ({group.state.value}) has no member {name!r}",
    )
