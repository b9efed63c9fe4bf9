"""The consumer groups of a shard (KIP-848): their records, requests and deadlines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.schema import SchemaError
from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord, Token
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.consumer import records
from headwater_broker.coordinator.group.consumer.assignors.served import ASSIGNORS
from headwater_broker.coordinator.group.consumer.change import Change
from headwater_broker.coordinator.group.consumer.classic_members import ClassicMembers
from headwater_broker.coordinator.group.consumer.commits import EpochChecks
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.heartbeat import ConsumerProtocol
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat, check
from headwater_broker.coordinator.group.consumer.member import ConsumerMember
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.migration import upgraded
from headwater_broker.coordinator.group.consumer.patterns import (
    Patterns,
    RegexJob,
    SubmitRegexes,
)
from headwater_broker.coordinator.group.consumer.states import MemberState
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.consumer.target import Submit, TargetJob
from headwater_broker.coordinator.group.records import group_record
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey


class ConsumerGroups:
    """Implements `GroupRules`."""

    record_kinds = frozenset(records.KEYS)

    def __init__(
        self,
        table: GroupTable,
        topics: Topics,
        meters: ConsumerGroupMeters,
        submit: Submit | None,
        settled_interval_ms: Callable[[], int],
        submit_regexes: SubmitRegexes | None = None,
    ) -> None:
        self._table = table
        patterns = Patterns(topics, submit_regexes, table.config.regex_refresh_ms)
        self.protocol = ConsumerProtocol(
            table, topics, meters, submit, settled_interval_ms, patterns
        )
        self.epochs = EpochChecks(table, topics)
        self.classic_members = ClassicMembers(table, self.protocol, topics)
        self._topics = topics

    @property
    def member_count(self) -> int:
        """Members of all groups."""
        groups = self._table.groups.values()
        return sum(len(g.members) for g in groups if isinstance(g, ConsumerGroup))

    def find(self, group_id: str) -> ConsumerGroup | None:
        """None: there is none of this kind."""
        group = self._table.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # -- records

    def replay(self, kind: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of a group. Compaction may have put a member's records in any order."""
        named: Any = records.read_key(kind, key)
        if kind == records.TOPICS:
            return
        group = self.find(named.group_id)
        if value is None:
            if group is not None:
                self._replay_tombstone(group, kind, named)
            return
        if group is None:
            group = ConsumerGroup(named.group_id, offsets=self._table.offsets_of(named.group_id))
            self._table.groups[named.group_id] = group
        if kind == records.GROUP:
            group.epoch, group.metadata_hash = records.read_group(value)
        elif kind == records.MEMBER:
            group.put_member(records.with_metadata(_member(group, named.member_id), value))
        elif kind == records.TARGET_EPOCH:
            group.set_target_epoch(*records.read_target_epoch(value))
        elif kind == records.TARGET:
            group.set_target(named.member_id, records.read_target(value))
        elif kind == records.POSITION:
            group.put_member(records.with_position(_member(group, named.member_id), value))
        elif kind == records.REGEX:
            group.set_regex(named.regular_expression, records.read_regex(value))
        else:
            raise SchemaError(f"a record of kind {kind}")

    def _replay_tombstone(self, group: ConsumerGroup, kind: int, named: Any) -> None:
        if kind == records.GROUP:
            self._forget(group)
        elif kind == records.MEMBER:
            group.remove_member(named.member_id)
            self.protocol.timeouts.cancel_timers(group.group_id, named.member_id)
        elif kind == records.TARGET_EPOCH:
            group.set_target_epoch(0, 0)
        elif kind == records.TARGET:
            group.set_target(named.member_id, None)
        elif kind == records.POSITION and named.member_id in group.members:
            bare = group.members[named.member_id].at(
                epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, revoking={}
            )
            group.put_member(bare)
        elif kind == records.REGEX:
            group.set_regex(named.regular_expression, None)

    def _forget(self, group: ConsumerGroup) -> None:
        """Offsets that remain make a simple group."""
        group_id = group.group_id
        self._table.deadlines.cancel(TimerKey(Timer.TARGET, group_id))
        self.protocol.meters.forget(group_id)
        if group.offsets or self._table.pending(group_id):
            self._table.groups[group_id] = Group(group_id, offsets=group.offsets)
        else:
            del self._table.groups[group_id]

    def tombstones(self, group: ConsumerGroup) -> list[StoredRecord]:
        """All of the group's records but offsets."""
        return records.group_tombstones(group.group_id, group.members, group.regexes)

    # -- deadlines

    def loaded(self, group: ConsumerGroup, now: Now) -> None:
        """Start the timers: members had no coordinator to heartbeat to."""
        for member in group.members.values():
            self.protocol.timeouts.renew_session(group.group_id, member, now)
            self.protocol.timeouts.watch_revocation(group.group_id, member, now, anew=True)
        if group.regexes:
            group.regexes_due_ms = now.steady_ms
        if group.epoch > group.target_epoch and group.members:
            self._table.deadlines.set(TimerKey(Timer.TARGET, group.group_id), now.steady_ms)

    def due(self, group: ConsumerGroup, keys: Sequence[TimerKey], now: Now) -> Sequence[Decision]:
        """All that is due of the group in one decision: each sees what the others change."""
        out = Decision()
        change = Change(group, out)
        fenced = self.protocol.timeouts.fenced(group, keys)
        if fenced:
            for reason in fenced.values():
                self.protocol.meters.has_fenced(reason)
            self.protocol.remove(change, fenced, now)
        elif any(key.kind is Timer.TARGET for key in keys):
            self.protocol.advance_epoch(change, now, is_due=False)
            self.protocol.advance_target(change, now, is_timer=change.epoch == group.epoch)
        return (out,)

    # -- requests

    def heartbeat(self, request: Heartbeat, now: Now, token: Token) -> Decision:
        """The reply is a ConsumerGroupHeartbeatResponse. Raises KafkaError."""
        out = Decision()
        group = self.find(request.group_id)
        if group is not None:
            steady = self.protocol.steady(group, request, now)
            if steady is not None:
                return out.reply(token, steady)
        check(request, ASSIGNORS)
        self.protocol.patterns.check(request)
        if request.epoch < 0:
            change = Change(self._require(request.group_id), out)
            self.protocol.leave(change, request, now, token)
            return out
        if group is None:
            group = self._opened(request, out, now)
        self.protocol.heartbeat(Change(group, out), request, now, token)
        return out

    def _require(self, group_id: str) -> ConsumerGroup:
        group = self.find(group_id)
        if group is None:
            raise not_a_consumer_group(group_id)
        return group

    def _opened(self, request: Heartbeat, out: Decision, now: Now) -> ConsumerGroup:
        """A new group for a member that joins; in the place of an empty classic one."""
        known = self._table.groups.get(request.group_id)
        if request.epoch != 0:
            raise not_a_consumer_group(request.group_id)
        if known is None:
            return ConsumerGroup(request.group_id)
        if not isinstance(known, Group):
            raise not_a_consumer_group(request.group_id)
        if known.is_empty and not known.pending_members:
            if known.is_stored:
                out.records.append(group_record(request.group_id, None))
            return ConsumerGroup(request.group_id)
        return self._upgraded(known, out, now)

    def _upgraded(self, known: Group, out: Decision, now: Now) -> ConsumerGroup:
        """A classic group with members: they stay."""
        group = upgraded(known, self._topics, self._table.config, out)
        group_id, deadlines = known.group_id, self._table.deadlines
        for kind in (Timer.REBALANCE, Timer.SYNC):
            deadlines.cancel(TimerKey(kind, group_id))
        for member_id in known.pending_members:
            deadlines.cancel(TimerKey(Timer.PENDING, group_id, member_id))
        for member in group.members.values():
            self.protocol.timeouts.renew_session(group_id, member, now)
        return group

    def target_computed(
        self, job: TargetJob, found: dict[str, Mapping[UUID, frozenset[int]]], now: Now,
        token: Token,
    ) -> Decision:  # fmt: skip
        """A job of `submit` is done."""
        out = Decision()
        group = self.find(job.group_id)
        if group is not None:
            self.protocol.target_computed(Change(group, out), job, found, now)
        return out.reply(token, None)

    def regexes_resolved(
        self, job: RegexJob, found: Mapping[str, frozenset[str]], now: Now, token: Token
    ) -> Decision:
        """A job of `submit_regexes` is done."""
        out = Decision()
        group = self.find(job.group_id)
        if group is not None:
            self.protocol.regexes_resolved(Change(group, out), found, now)
        return out.reply(token, None)

    def topics_changed(
        self, names: frozenset[str], came_or_went: frozenset[str] = frozenset()
    ) -> None:
        """Topics were created, deleted or given partitions: their groups are to look again."""
        for group in self._table.groups.values():
            if isinstance(group, ConsumerGroup):
                if not group.topics.isdisjoint(names):
                    group.needs_refresh = True
                if came_or_went:
                    self.protocol.patterns.topics_came_or_went(group)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id=member_id)


def not_a_consumer_group(group_id: str) -> KafkaError:
    """GROUP_ID_NOT_FOUND."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
