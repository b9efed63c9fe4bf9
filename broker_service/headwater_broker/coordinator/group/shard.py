"""The groups of one `__consumer_offsets` partition: replay, commands, deadlines. Pure.

`coordinator.common.runtime` runs the commands, which are the requests of group members and tools.
Each kind of group has its rules (`table.GroupRules`); what all kinds share is here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set

from headwater.errors import KafkaError
from headwater.wire.apis.k13_leave_group import MemberIdentity
from headwater.wire.apis.k14_sync_group import SyncGroupRequest
from headwater.wire.schema import SchemaError
from headwater_broker.coordinator.common.shard import (
    NO_PRODUCER_ID,
    Decision,
    Decisions,
    Now,
    Producer,
    Token,
    each,
)
from headwater_broker.coordinator.group.administration import GroupAdministration
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.groups import ClassicGroups
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin, failed_join
from headwater_broker.coordinator.group.collaborators import Collaborators
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.consumer.change import Change
from headwater_broker.coordinator.group.consumer.groups import ConsumerGroups
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.subscriptions import NoTopics
from headwater_broker.coordinator.group.group_kind import GroupKind
from headwater_broker.coordinator.group.offset_commands import OffsetCommands
from headwater_broker.coordinator.group.pending_offsets import PendingOffset
from headwater_broker.coordinator.group.records import (
    OFFSET_KINDS,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartition,
    key_version,
    read_key,
    read_offset,
)
from headwater_broker.coordinator.group.share.groups import ShareGroups
from headwater_broker.coordinator.group.table import AnyGroup, GroupRules, GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey

logger = logging.getLogger(__name__)


class GroupShard:
    """Implements `coordinator.common.shard.Shard`."""

    def __init__(self, config: GroupConfig, around: Collaborators | None = None) -> None:
        """`around`: what the shard sees of the broker; None: a cluster without topics."""
        around = around or Collaborators(NoTopics(), ConsumerGroupMeters())
        self._config = config
        table = self._table = GroupTable(config, around.settings_of)
        self._classic = ClassicGroups(table)
        self.consumers = ConsumerGroups(
            table,
            around.topics,
            around.meters,
            around.submit,
            around.settled_interval_ms,
            around.submit_regexes,
        )
        self.shares = ShareGroups(table, around.topics, around.settled_interval_ms)
        self._rules: dict[GroupKind, GroupRules] = {
            GroupKind.CLASSIC: self._classic,
            GroupKind.CONSUMER: self.consumers,
            GroupKind.SHARE: self.shares,
        }
        self._of_kind = {kind: r for r in self._rules.values() for kind in r.record_kinds}
        self.offsets = OffsetCommands(table, self._classic, self.consumers.epochs, self._rules)
        self.administration = GroupAdministration(table, self._rules, around.topics)

    @property
    def groups(self) -> dict[str, AnyGroup]:
        """The groups by id; to be read only."""
        return self._table.groups

    # -- the log

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply one record. Kinds that are not known here (of a newer broker) are skipped.

        Raises NewerRecordError for a known kind in a newer version: loading fails until a broker
        that reads it leads.
        """
        decided = self._table.decided_offsets.pop(key, value)
        producer = Producer(producer_id, producer_epoch)
        if decided is not None:
            _, group_id, partition, known = decided
            self._replay_offset(group_id, partition, offset, producer, known)
            return
        try:
            kind = key_version(key)
            rules = self._of_kind.get(kind)
            if rules is not None:
                rules.replay(kind, key, value)
            elif kind in OFFSET_KINDS:
                named = read_key(key)
                assert isinstance(named, OffsetCommitKey)
                committed = None if value is None else read_offset(value)
                place = named.topic, named.partition
                self._replay_offset(named.group, place, offset, producer, committed)
        except SchemaError:
            logger.exception("skipped a record that cannot be read, key %s", key.hex())

    def _replay_offset(
        self,
        group_id: str,
        partition: TopicPartition,
        log_offset: int,
        producer: Producer,
        value: OffsetCommitValue | None,
    ) -> None:
        pending_offsets = self._table.pending_offsets
        if producer.producer_id != NO_PRODUCER_ID:
            if value is not None:
                pending = PendingOffset(log_offset, value)
                pending_offsets.put(producer, (group_id, partition), pending)
                self._group_of_offsets(group_id)
        elif value is not None:
            pending_offsets.committed((group_id, partition), log_offset)
            self._group_of_offsets(group_id).offsets[partition] = value
        else:
            pending_offsets.deleted((group_id, partition), log_offset)
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.pop(partition, None)
                self._drop_if_unused(group)

    def _group_of_offsets(self, group_id: str) -> AnyGroup:
        """The group; offsets of an unknown one make a group without a group record."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def _drop_if_unused(self, group: AnyGroup) -> None:
        if isinstance(group, Group):
            self._classic.drop_if_unused(group)

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """Commit the producer's pending offsets, or drop them."""
        self.offsets.transaction_ended(producer_id, producer_epoch)
        for key, pending in self._table.pending_offsets.end(producer_id, commit=commit):
            group_id, partition = key
            group = self._group_of_offsets(group_id)
            if pending is not None:
                self._table.pending_offsets.committed(key, pending.log_offset)
                group.offsets[partition] = pending.value
            self._drop_if_unused(group)

    def pending_offsets(self, group_id: str) -> Set[TopicPartition]:
        """The partitions whose offset an open transaction may still change."""
        return self._table.pending(group_id)

    def loaded(self, now: Now) -> None:
        """Start the timers of groups, and the expiry of offsets."""
        for group in self.groups.values():
            self._rules[group.kind].loaded(group, now)
        self._plan_expiry(now, self._config.offsets_check_interval_ms)

    # -- deadlines

    def next_deadline_ms(self) -> float | None:
        """When `tick` is due next."""
        return self._table.deadlines.next_ms()

    def tick(self, now: Now) -> Decisions:
        """Handle what is due, by group."""
        decisions: list[Decision] = []
        by_group: dict[str, list[TimerKey]] = {}
        for key in self._table.deadlines.pop_due(now.steady_ms):
            if key.kind is Timer.EXPIRY:
                decisions += self.offsets.expire(now)
                self._plan_expiry(now, self.offsets.wait_ms)
            else:
                by_group.setdefault(key.group_id, []).append(key)
        for group_id, keys in by_group.items():
            group = self.groups.get(group_id)
            if group is not None:
                decisions += self._rules[group.kind].due(group, keys, now)
        return decisions

    def _plan_expiry(self, now: Now, wait_ms: int) -> None:
        self._table.deadlines.set(TimerKey(Timer.EXPIRY, ""), now.steady_ms + wait_ms)

    def topics_deleted(self, names: frozenset[str], now: Now, token: Token) -> Decisions:
        """Nothing of deleted topics stays: a later topic of that name starts anew."""
        offsets = self.offsets.topics_deleted(names, now, token)
        return (*each(self.shares.topics_deleted(names)), *each(offsets))

    # -- the classic protocol

    def join(self, request: MemberJoin, now: Now, token: Token) -> Decision:
        """JoinGroup; the reply is a JoinGroupResponse."""
        out = Decision()
        group = self.consumers.find(request.group_id)
        if group is not None and group.members:
            try:
                self.consumers.classic_members.join(Change(group, out), request, now, token)
            except KafkaError as error:
                return Decision().reply(token, failed_join(error.code, request.member_id))
            return out
        if group is not None:
            out.records += self.consumers.tombstones(group)
            self._classic.take_over(request.group_id)
        return self._classic.join(request, now, token, out)

    def sync(self, request: SyncGroupRequest, now: Now, token: Token) -> Decision:
        """SyncGroup; the reply is a SyncGroupResponse."""
        group = self.consumers.find(request.group_id)
        if group is None:
            return self._classic.sync(request, now, token)
        reply = self.consumers.classic_members.sync(group, request, now)
        return Decision().reply(token, reply)

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
        group = self.consumers.find(group_id)
        if group is None:
            return self._classic.heartbeat(group_id, member_id, instance_id, generation, now, token)
        code = self.consumers.classic_members.heartbeat(
            group, member_id, instance_id, generation, now
        )
        return Decision().reply(token, code)

    def leave(
        self, group_id: str, members: Iterable[MemberIdentity], now: Now, token: Token
    ) -> Decision:
        """The reply is a list of MemberResponse."""
        group = self.consumers.find(group_id)
        if group is None:
            return self._classic.leave(group_id, members, now, token)
        out = Decision()
        rows = self.consumers.classic_members.leave(Change(group, out), members, now)
        return out.reply(token, rows)
