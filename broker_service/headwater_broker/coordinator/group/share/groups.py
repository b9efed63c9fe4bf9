"""The share groups of a shard (KIP-932): their records, requests and deadlines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k76_share_group_heartbeat as k76
from headwater.wire.apis.k77_share_group_describe import DescribedGroup
from headwater_broker.coordinator.common.shard import (
    Decision,
    Decisions,
    Now,
    StoredRecord,
    Token,
)
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.share import description, records
from headwater_broker.coordinator.group.share.group import ShareGroup, ShareMember, TopicShare
from headwater_broker.coordinator.group.share.heartbeat import (
    LEAVE_EPOCH,
    HeartbeatReply,
    ShareHeartbeat,
    ShareProtocol,
    check,
    unknown_member,
)
from headwater_broker.coordinator.group.share.offsets import ShareOffsets
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey


class ShareGroups:
    """Implements `GroupRules`."""

    record_kinds = frozenset(records.KEYS)

    def __init__(
        self, table: GroupTable, topics: Topics, settled_interval_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._topics = topics
        self._settled_interval_ms = settled_interval_ms
        self._protocol = ShareProtocol(table, topics)
        self.offsets = ShareOffsets(self.find, self.require, self.require_or_new, topics)

    def find(self, group_id: str) -> ShareGroup | None:
        """None: there is none of this kind."""
        group = self._table.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def require(self, group_id: str) -> ShareGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise not_a_share_group(group_id)
        return group

    def require_or_new(self, group_id: str) -> ShareGroup:
        """A new one where there is none: the records make the one that stays. Raises
        GROUP_ID_NOT_FOUND for a group of another kind."""
        if group_id not in self._table.groups:
            return ShareGroup(group_id)
        return self.require(group_id)

    # -- records

    def replay(self, kind: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of a group. Compaction may have put a member's records in any order."""
        named: Any = records.read_key(kind, key)
        group = self.find(named.group_id)
        if value is None:
            if group is not None:
                self._replay_tombstone(group, kind, named)
            return
        if group is None:
            group = self._table.groups[named.group_id] = ShareGroup(named.group_id)
        if kind == records.GROUP:
            group.epoch, group.metadata_hash = records.read_group(value)
        elif kind == records.MEMBER:
            member = _member(group, named.member_id)
            group.members[named.member_id] = records.with_metadata(member, value)
        elif kind == records.POSITION:
            member = _member(group, named.member_id)
            group.members[named.member_id] = records.with_position(member, value)
        elif kind == records.TARGET_EPOCH:
            group.target_epoch, group.target_ms = records.read_target_epoch(value)
        elif kind == records.TARGET:
            group.targets[named.member_id] = records.read_target(value)
        else:
            group.shares = records.read_shares(value)

    def _replay_tombstone(self, group: ShareGroup, kind: int, named: Any) -> None:
        if kind == records.GROUP:
            for member_id in group.members:
                self._forget_session(group.group_id, member_id)
            del self._table.groups[group.group_id]
        elif kind == records.MEMBER:
            group.members.pop(named.member_id, None)
            self._forget_session(group.group_id, named.member_id)
        elif kind == records.TARGET:
            group.targets.pop(named.member_id, None)
        elif kind == records.TARGET_EPOCH:
            group.target_epoch = group.target_ms = 0
        elif kind == records.POSITION and named.member_id in group.members:
            member = group.members[named.member_id]
            group.members[named.member_id] = member.moved(0, {})
        elif kind == records.SHARES:
            group.shares = type(group.shares)()

    def _forget_session(self, group_id: str, member_id: str) -> None:
        self._table.deadlines.cancel(TimerKey(Timer.SESSION, group_id, member_id))

    def tombstones(self, group: ShareGroup) -> list[StoredRecord]:
        """All records of a group without members."""
        return records.group_tombstones(group.group_id)

    # -- deadlines

    def loaded(self, group: ShareGroup, now: Now) -> None:
        """Start sessions: members had no coordinator to heartbeat to."""
        for member_id in group.members:
            self._protocol.timeouts.renew_session(group.group_id, member_id, now)

    def due(self, group: ShareGroup, keys: Sequence[TimerKey], now: Now) -> Sequence[Decision]:
        """Sessions have ended."""
        out = Decision()
        gone = self._protocol.timeouts.ended(group, keys, now)
        if gone:
            self._protocol.remove(group, gone, out)
        return (out,)

    # -- requests

    def heartbeat(self, request: ShareHeartbeat, now: Now, token: Token) -> Decision:
        """The reply is a HeartbeatReply. Raises KafkaError."""
        check(request)
        if request.epoch == LEAVE_EPOCH:
            return self._leave(request, token)
        joins = request.epoch == 0
        group = (self.require_or_new if joins else self.require)(request.group_id)
        return self._protocol.heartbeat(group, request, now, token, self._settled_interval_ms())

    def _leave(self, request: ShareHeartbeat, token: Token) -> Decision:
        group, out = self.require(request.group_id), Decision()
        if request.member_id not in group.members:
            raise unknown_member(request.group_id, request.member_id)
        self._protocol.remove(group, (request.member_id,), out)
        response = k76.ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=LEAVE_EPOCH,
            heartbeat_interval_ms=0,
        )
        return out.confirm(token, HeartbeatReply(response))

    def begun(
        self, group_id: str, topics: Mapping[UUID, TopicShare], _now: Now, token: Token
    ) -> Decision:
        """The persister has begun these states: they may be assigned."""
        out, group = Decision(), self.find(group_id)
        if group is None:
            return out.reply(token, None)
        after = group.shares.done(topics)
        if after != group.shares:
            out.records.append(records.shares_record(group_id, after))
            out.records.append(records.group_record(group_id, group.epoch + 1, group.metadata_hash))
        return out.confirm(token, None)

    def describe(self, group_id: str, _now: Now, token: Token) -> Decision:
        """The reply is a DescribedGroup."""
        group = self.find(group_id)
        row: DescribedGroup = (
            description.not_found(group_id)
            if group is None
            else description.describe(group, self._topics)
        )
        return Decision().reply(token, row)

    # -- topics

    def topics_changed(self, names: frozenset[str]) -> None:
        """Topics were created, deleted or given partitions: their groups are to look again."""
        for group in self._table.groups.values():
            if isinstance(group, ShareGroup) and not names.isdisjoint(
                group.subscribed_topics() or ()
            ):
                group.needs_refresh = True

    def topics_deleted(self, names: frozenset[str]) -> Decisions:
        """Share partitions of deleted topics go; their states go by the share coordinators."""
        out = Decision()
        for group in self._table.groups.values():
            if not isinstance(group, ShareGroup):
                continue
            gone = [
                topic
                for topic, name in group.shares.topics().items()
                if name in names and self._topics.by_id(topic) is None
            ]
            if gone:
                left = group.shares.without(gone)
                out.records.append(records.shares_record(group.group_id, left))
        return out.split()


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id) or ShareMember(member_id)


def not_a_share_group(group_id: str) -> KafkaError:
    """GROUP_ID_NOT_FOUND."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
