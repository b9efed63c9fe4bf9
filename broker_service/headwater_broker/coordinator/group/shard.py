"""The groups of one `__consumer_offsets` partition: replay, commands, deadlines. Pure.

The commands are the requests of group members and tools; `coordinator.common.runtime` runs them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set
from dataclasses import dataclass

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k13_leave_group import MemberIdentity, MemberResponse
from headwater.wire.apis.k14_sync_group import SyncGroupRequest
from headwater.wire.apis.k15_describe_groups import DescribedGroup, DescribedGroupMember
from headwater.wire.apis.k16_list_groups import ListedGroup
from headwater.wire.schema import SchemaError
from headwater_broker.coordinator.common.expiration import ExpirationSweep
from headwater_broker.coordinator.common.shard import (
    NO_PRODUCER_ID,
    Decision,
    Decisions,
    Now,
    Producer,
    Token,
)
from headwater_broker.coordinator.common.timers import Deadlines
from headwater_broker.coordinator.group import offsets
from headwater_broker.coordinator.group.classic_group import Group, TopicPartition
from headwater_broker.coordinator.group.classic_protocol import (
    ClassicProtocol,
    MemberJoin,
    failed_join,
    unknown_member,
)
from headwater_broker.coordinator.group.classic_states import GroupEvent, GroupState
from headwater_broker.coordinator.group.config import EXPIRY_GROUPS_PER_TICK, GroupConfig
from headwater_broker.coordinator.group.offsets import Commit
from headwater_broker.coordinator.group.pending_offsets import PendingOffset, PendingOffsets
from headwater_broker.coordinator.group.records import (
    GroupMetadataKey,
    OffsetCommitKey,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey
from headwater_broker.coordinator.group.transaction_verification import Verification, Verifications

CLASSIC = "classic"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """An OffsetCommit request; generation -1: a consumer without group membership, or a tool."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    rows: tuple[Commit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommit:
    """A TxnOffsetCommit request; generation -1 and no member id: the membership is not checked."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    transactional_id: str
    producer: Producer
    connection: int = 0
    """Number of the connection that the request came on."""
    is_enlisting: bool
    """True: the group coordinator adds its partition to the transaction (transaction version 2,
    TxnOffsetCommit v5+); false: the client has added it, which is only verified."""
    rows: tuple[Commit, ...]


class GroupShard:
    """Implements `coordinator.common.shard.Shard`."""

    def __init__(self, config: GroupConfig) -> None:
        self.groups: dict[str, Group] = {}
        self._config = config
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._protocol = ClassicProtocol(config, self._deadlines)
        self._pending_offsets = PendingOffsets()
        self._verifications = Verifications()
        self._sweep = ExpirationSweep(EXPIRY_GROUPS_PER_TICK, config.offsets_check_interval_ms)

    # -- the log

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply one record. Kinds that are not known here (of a newer broker) are skipped.

        Raises NewerRecordError for a known kind in a newer version: loading fails until a broker
        that reads it leads.
        """
        try:
            named = read_key(key)
            if isinstance(named, OffsetCommitKey):
                self._replay_offset(named, offset, Producer(producer_id, producer_epoch), value)
            elif isinstance(named, GroupMetadataKey):
                self._replay_group(named.group, value)
        except SchemaError:
            logger.exception("skipped a record that cannot be read, key %s", key.hex())

    def _replay_offset(
        self, key: OffsetCommitKey, log_offset: int, producer: Producer, value: bytes | None
    ) -> None:
        partition = (key.topic, key.partition)
        if producer.producer_id != NO_PRODUCER_ID:
            if value is not None:
                pending = PendingOffset(log_offset, read_offset(value))
                self._pending_offsets.put(producer, (key.group, partition), pending)
                self._group_of_offsets(key.group)
        elif value is not None:
            self._pending_offsets.committed((key.group, partition), log_offset)
            self._group_of_offsets(key.group).offsets[partition] = read_offset(value)
        else:
            self._pending_offsets.deleted((key.group, partition), log_offset)
            group = self.groups.get(key.group)
            if group is not None:
                group.offsets.pop(partition, None)
                self._drop_if_unused(group)

    def _group_of_offsets(self, group_id: str) -> Group:
        """The group; offsets of an unknown one make a group without a group record."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """Commit the producer's pending offsets, or drop them."""
        self._verifications.transaction_ended(producer_id, producer_epoch)
        for key, pending in self._pending_offsets.end(producer_id, commit=commit):
            group_id, partition = key
            group = self._group_of_offsets(group_id)
            if pending is not None:
                self._pending_offsets.committed(key, pending.log_offset)
                group.offsets[partition] = pending.value
            self._drop_if_unused(group)

    def pending_offsets(self, group_id: str) -> Set[TopicPartition]:
        """The partitions whose offset an open transaction may still change."""
        return self._pending_offsets.of_group(group_id)

    def _drop_if_unused(self, group: Group) -> None:
        """The group had offsets but no group record, and its last offset is gone."""
        is_empty_simple = not (
            group.is_stored or group.offsets or group.members or group.pending_members
        )
        if (
            is_empty_simple
            and group.is_in(GroupState.EMPTY)
            and not self.pending_offsets(group.group_id)
        ):
            group.transition(GroupEvent.DELETED)
            del self.groups[group.group_id]

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        group = self.groups.get(group_id)
        if value is not None:
            if group is None:
                group = self.groups[group_id] = Group(group_id)
            group.replay(read_group(value))
            self._deadlines.cancel(TimerKey(Timer.REBALANCE, group_id))
            self._protocol.end_sync_wait(group)
        elif group is not None:
            group.is_stored = False
            if group.offsets or self.pending_offsets(group_id):
                group.protocol_type = ""  # its offsets remain: a simple group now
            else:
                group.transition(GroupEvent.DELETED)
                del self.groups[group_id]

    def loaded(self, now: Now) -> None:
        """Start sessions (members had no coordinator to heartbeat to) and the expiry of offsets."""
        for group in self.groups.values():
            self._protocol.restart_sessions(group, now)
        self._plan_expiry(now, self._config.offsets_check_interval_ms)

    # -- deadlines

    def next_deadline_ms(self) -> float | None:
        """When `tick` is due next."""
        return self._deadlines.next_ms()

    def tick(self, now: Now) -> Decisions:
        """Handle what is due, each deadline in a decision of its own."""
        decisions: list[Decision] = []
        for key in self._deadlines.pop_due(now.steady_ms):
            if key.kind is Timer.EXPIRY:
                decisions += self._expire(now)
                continue
            group = self.groups.get(key.group_id)
            if group is not None:
                decisions.append(Decision())
                self._due(group, key, now, decisions[-1])
        return decisions

    def _due(self, group: Group, key: TimerKey, now: Now, out: Decision) -> None:
        rules = self._protocol
        if key.kind is Timer.SESSION:
            rules.session_due(group, key.member_id, now, out)
        elif key.kind is Timer.PENDING:
            rules.pending_due(group, key.member_id, now, out)
            self._drop_if_unused(group)
        elif key.kind is Timer.REBALANCE:
            rules.rebalance_due(group, now, out)
        else:
            rules.sync_due(group, now, out)

    def _plan_expiry(self, now: Now, wait_ms: int) -> None:
        self._deadlines.set(TimerKey(Timer.EXPIRY, ""), now.steady_ms + wait_ms)

    def _expire(self, now: Now) -> list[Decision]:
        """Tombstones for expired offsets, and for groups that have none left: of some groups at a
        time, so that no tick is long."""
        out = Decision()
        for name in self._sweep.next_part(self.groups):
            group = self.groups.get(name)
            if group is None:
                continue
            pending = self.pending_offsets(name)
            old = offsets.expired(group, now, self._config, pending)
            out.records += [offset_record(name, topic, index, None) for topic, index in old]
            is_over = len(old) == len(group.offsets) and group.is_in(GroupState.EMPTY)
            if is_over and group.is_stored and not (group.pending_members or pending):
                out.records.append(group_record(name, None))
        self._plan_expiry(now, self._sweep.wait_ms)
        return out.split()

    # -- membership

    def join(self, request: MemberJoin, now: Now, token: Token) -> Decision:
        """JoinGroup; the reply is a JoinGroupResponse."""
        out = Decision()
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return out.reply(token, failed_join(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            group = self.groups[request.group_id] = Group(request.group_id)
        self._protocol.join(group, request, now, token, out)
        self._drop_if_unused(group)
        return out

    def sync(self, request: SyncGroupRequest, now: Now, token: Token) -> Decision:
        """SyncGroup; the reply is a SyncGroupResponse."""
        out = Decision()
        self._protocol.sync(
            self._group_of(request.group_id, request.member_id), request, now, token, out
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
        group = self._group_of(group_id, member_id)
        code = self._protocol.heartbeat(group, member_id, instance_id, generation, now)
        return Decision().reply(token, code)

    def leave(
        self, group_id: str, members: Iterable[MemberIdentity], now: Now, token: Token
    ) -> Decision:
        """The reply is a list of MemberResponse."""
        out = Decision()
        group = self.groups.get(group_id)
        rows = []
        for row in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = self._protocol.leave(group, row.member_id, row.group_instance_id, now, out)
            rows.append(
                MemberResponse(
                    member_id=row.member_id,
                    group_instance_id=row.group_instance_id,
                    error_code=code,
                )
            )
        if group is not None:
            self._drop_if_unused(group)
        return out.reply(token, rows)

    def _group_of(self, group_id: str, member_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise unknown_member(Group(group_id, state=GroupState.DEAD), member_id)
        return group

    # -- offsets

    def commit(self, request: OffsetCommit, now: Now, token: Token) -> Decisions:
        """The reply is a code per (topic, partition). Raises KafkaError for the whole request.

        The offsets of a large commit are appended in several batches: each is right by itself.
        """
        out = Decision()
        self._check_committer(request, now)
        records, codes = offsets.commit(
            request.group_id, request.rows, request.retention_ms, now, self._config
        )
        out.records += records
        return out.confirm(token, codes).split()

    def _committed_group(self, group_id: str, generation: int) -> Group | None:
        """The group that offsets are committed for; None: not known, so the committer is no member.

        Raises GROUP_ID_NOT_FOUND for one that says it is.
        """
        group = self.groups.get(group_id)
        if group is None and generation >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is not known")
        return group

    def _check_committer(self, request: OffsetCommit, now: Now) -> None:
        group = self._committed_group(request.group_id, request.generation)
        if group is None:
            return
        if request.generation < 0 and group.is_in(GroupState.EMPTY):
            # A consumer without membership may have an instance id, and a tool a member id.
            return
        if request.generation < 0 and not request.member_id and request.instance_id is None:
            raise unknown_member(group, "")
        member = self._protocol.member(group, request.member_id, request.instance_id)
        self._protocol.check_generation(group, request.generation)
        if group.is_in(GroupState.COMPLETING):
            # The member does not know its partitions yet: it commits what it no longer owns.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance is being completed")
        self._protocol.renew_session(group, member, now)

    # -- offsets of transactions

    def begin_verification(self, request: TransactionalCommit) -> Verification:
        """A TxnOffsetCommit begins; `end_verification` must follow."""
        is_open = self._pending_offsets.is_open(request.producer)
        return self._verifications.begin(request.producer, request.connection, is_open=is_open)

    def end_verification(self, verification: Verification) -> None:
        """The TxnOffsetCommit is answered."""
        self._verifications.end(verification)

    def transactional_commit(
        self, request: TransactionalCommit, verification: Verification, now: Now, token: Token
    ) -> Decisions:
        """TxnOffsetCommit of a verified producer. The reply is a code per (topic, partition), or
        None when the verification is stale. Raises KafkaError for the whole request."""
        self._verifications.check(verification)
        if verification.is_stale:
            return Decision().reply(token, None)
        self._check_transactional_committer(request)
        self._verifications.committed(verification)
        out = Decision(request.producer)
        records, codes = offsets.commit(request.group_id, request.rows, -1, now, self._config)
        out.records += records
        return out.confirm(token, codes).split()

    def _check_transactional_committer(self, request: TransactionalCommit) -> None:
        """The member and its generation, if they are given, in whatever state the group is: a
        member commits in a transaction what it has read before a rebalance (KIP-447)."""
        group = self._committed_group(request.group_id, request.generation)
        if group is None:
            return
        if request.generation < 0 and group.is_in(GroupState.EMPTY):
            return
        if request.generation >= 0 or request.member_id or request.instance_id is not None:
            self._protocol.member(group, request.member_id, request.instance_id)
            self._protocol.check_generation(group, request.generation)

    def fetch(
        self,
        group_id: str,
        wanted: tuple[TopicPartition, ...] | None,
        _now: Now,
        token: Token,
        *,
        require_stable: bool = False,
    ) -> Decision:
        """The reply is a dict of Committed by (topic, partition). `require_stable` (KIP-447): no
        offset that an open transaction may change, and none of a deposed coordinator: a worker
        would copy once more what a transaction has copied already."""
        group, out = self.groups.get(group_id), Decision()
        if not require_stable:
            return out.reply(token, offsets.fetch(group, wanted))
        unstable = self.pending_offsets(group_id)
        return out.reply_as_leader(token, offsets.fetch(group, wanted, unstable))

    def delete_offsets(
        self, group_id: str, wanted: Iterable[TopicPartition], _now: Now, token: Token
    ) -> Decisions:
        """The reply is a code per (topic, partition). Raises KafkaError."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id!r}")
        out = Decision()
        records, codes = offsets.delete(group, wanted, self.pending_offsets(group_id))
        out.records += records
        return out.confirm(token, codes).split()

    def topics_deleted(self, topics: frozenset[str], _now: Now, token: Token) -> Decisions:
        """Tombstones for the offsets of deleted topics: a later topic of that name starts anew."""
        out = Decision()
        for group in self.groups.values():
            pending = self.pending_offsets(group.group_id)
            out.records += offsets.tombstones(group, topics, pending)
        return out.confirm(token, len(out.records)).split()

    # -- administration

    def describe(self, group_id: str, _now: Now, token: Token) -> Decision:
        """The reply is a DescribedGroup; an unknown group is Dead (KIP-1043)."""
        out = Decision()
        group = self.groups.get(group_id)
        if group is None:
            text = f"Group {group_id} not found."
            return out.reply(
                token,
                DescribedGroup(
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                    error_message=text,
                    group_id=group_id,
                    group_state=GroupState.DEAD.value,
                ),
            )
        is_stable = group.is_in(GroupState.STABLE)
        return out.reply(
            token,
            DescribedGroup(
                error_code=ErrorCode.NONE,
                group_id=group_id,
                group_state=group.state.value,
                protocol_type=group.protocol_type,
                protocol_data=(group.protocol or "") if is_stable else "",
                members=tuple(
                    DescribedGroupMember(
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        client_id=m.client_id,
                        client_host=m.client_host,
                        member_metadata=m.metadata(group.protocol) if is_stable else b"",
                        member_assignment=m.assignment if is_stable else b"",
                    )
                    for m in group.members.values()
                ),
            ),
        )

    def list_groups(
        self, states: frozenset[str], types: frozenset[str], _now: Now, token: Token
    ) -> Decision:
        """The reply is a list of ListedGroup; empty filters (lower case) mean all."""
        rows = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in self.groups.values()
            if (not states or group.state.value.lower() in states)
            and (not types or CLASSIC in types)
        ]
        return Decision().reply(token, rows)

    def delete_groups(self, names: Iterable[str], _now: Now, token: Token) -> Decisions:
        """The reply is a code per group id."""
        out = Decision()
        codes: dict[str, ErrorCode] = {}
        for name in names:
            group = self.groups.get(name)
            if group is None:
                codes[name] = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_in(GroupState.EMPTY):
                codes[name] = ErrorCode.NON_EMPTY_GROUP
            else:
                codes[name] = ErrorCode.NONE
                out.records += offsets.tombstones(group, None, self.pending_offsets(name))
                if group.is_stored:
                    out.records.append(group_record(name, None))
        return out.confirm(token, codes).split()
