"""The classic groups of a shard: their records and requests. Pure; the rules of rebalances are in
`rebalance`. Offsets without a group record make a simple group, which is a classic one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.errors import ErrorCode
from headwater.wire.apis.k13_leave_group import MemberIdentity, MemberResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest
from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord, Token
from headwater_broker.coordinator.group.classic.commits import GenerationChecks
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.rebalance import (
    ClassicProtocol,
    MemberJoin,
    failed_join,
    unknown_member,
)
from headwater_broker.coordinator.group.classic.states import GroupEvent, GroupState
from headwater_broker.coordinator.group.classic.timeouts import ClassicTimeouts
from headwater_broker.coordinator.group.records import (
    GROUP_KEY_VERSION,
    GroupMetadataKey,
    group_record,
    read_group,
    read_key,
)
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey


class ClassicGroups:
    """Implements `GroupRules`."""

    record_kinds = frozenset((GROUP_KEY_VERSION,))

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self.protocol = ClassicProtocol(table.config, table.deadlines)
        self.generations = GenerationChecks(self.protocol)
        self._timeouts = ClassicTimeouts(self.protocol, table.deadlines)

    def find(self, group_id: str) -> Group | None:
        """None: there is none of this kind."""
        group = self._table.groups.get(group_id)
        return group if isinstance(group, Group) else None

    def take_over(self, group_id: str) -> None:
        """A classic group in the place of an empty one of another kind, whose tombstones the
        decision holds."""
        self._new(group_id)

    def _new(self, group_id: str) -> Group:
        group = Group(group_id, offsets=self._table.offsets_of(group_id))
        self._table.groups[group_id] = group
        return group

    # -- records

    def replay(self, _kind: int, key: bytes, value: bytes | None) -> None:
        """Apply a group record."""
        named = read_key(key)
        if not isinstance(named, GroupMetadataKey):
            return
        group_id = named.group
        group = self.find(group_id)
        if value is not None:
            if group is None:
                group = self._new(group_id)
            group.replay(read_group(value))
            self._table.deadlines.cancel(TimerKey(Timer.REBALANCE, group_id))
            self.protocol.end_sync_wait(group)
        elif group is not None:
            group.is_stored = False
            if group.offsets or self._table.pending(group_id):
                group.protocol_type = ""  # its offsets remain: a simple group now
            else:
                group.transition(GroupEvent.DELETED)
                del self._table.groups[group_id]

    def drop_if_unused(self, group: Group) -> None:
        """The group had offsets but no group record, and its last offset is gone."""
        is_empty_simple = not (
            group.is_stored or group.offsets or group.members or group.pending_members
        )
        if (
            is_empty_simple
            and group.is_in(GroupState.EMPTY)
            and not self._table.pending(group.group_id)
        ):
            group.transition(GroupEvent.DELETED)
            del self._table.groups[group.group_id]

    def tombstones(self, group: Group) -> list[StoredRecord]:
        """The group's, if it has a record."""
        return [group_record(group.group_id, None)] if group.is_stored else []

    # -- deadlines

    def loaded(self, group: Group, now: Now) -> None:
        """Start sessions: members had no coordinator to heartbeat to."""
        self.protocol.restart_sessions(group, now)

    def due(self, group: Group, keys: Sequence[TimerKey], now: Now) -> list[Decision]:
        """Each deadline in a decision of its own."""
        decisions = []
        for key in keys:
            out = Decision()
            self._timeouts.due(group, key, now, out)
            if key.kind is Timer.PENDING:
                self.drop_if_unused(group)
            decisions.append(out)
        return decisions

    # -- membership

    def join(self, request: MemberJoin, now: Now, token: Token, out: Decision) -> Decision:
        """JoinGroup; the reply is a JoinGroupResponse."""
        group = self.find(request.group_id)
        if group is None:
            code = self.protocol.session_error(request)
            if code is ErrorCode.NONE and request.group_id in self._table.groups:
                code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # of another kind: it keeps its id
            elif code is ErrorCode.NONE and request.member_id:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            if code is not ErrorCode.NONE:
                return out.reply(token, failed_join(code, request.member_id))
            group = self._new(request.group_id)
        self.protocol.join(group, request, now, token, out)
        self.drop_if_unused(group)
        return out

    def sync(self, request: SyncGroupRequest, now: Now, token: Token) -> Decision:
        """SyncGroup; the reply is a SyncGroupResponse."""
        out = Decision()
        self.protocol.sync(
            self._require(request.group_id, request.member_id), request, now, token, out
        )
        return out

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Now,
        token: Token,
    ) -> Decision:
        """The reply is an ErrorCode."""
        group = self._require(group_id, member_id)
        code = self.protocol.heartbeat(group, member_id, instance_id, generation, now)
        return Decision().reply(token, code)

    def leave(
        self, group_id: str, members: Iterable[MemberIdentity], now: Now, token: Token
    ) -> Decision:
        """The reply is a list of MemberResponse."""
        out = Decision()
        group = self.find(group_id)
        rows = []
        for row in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = self.protocol.leave(group, row.member_id, row.group_instance_id, now, out)
            rows.append(
                MemberResponse(
                    member_id=row.member_id,
                    group_instance_id=row.group_instance_id,
                    error_code=code,
                )
            )
        if group is not None:
            self.drop_if_unused(group)
        return out.reply(token, rows)

    def _require(self, group_id: str, member_id: str) -> Group:
        group = self.find(group_id)
        if group is None:
            raise unknown_member(Group(group_id, state=GroupState.DEAD), member_id)
        return group
