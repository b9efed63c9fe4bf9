"""Membership of share groups (KIP-932): heartbeats, epochs, targets, beginning of states. Pure.

A member takes a newer target at once: partitions are shared, so nobody has to give one up first.
Only partitions whose state has begun are assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k76_share_group_heartbeat as k76
from headwater_broker.coordinator.common.shard import Decision, Now, Token
from headwater_broker.coordinator.group.consumer.subscriptions import Topics, metadata_hash
from headwater_broker.coordinator.group.share import records
from headwater_broker.coordinator.group.share.assignor import Target, assign
from headwater_broker.coordinator.group.share.group import (
    ShareGroup,
    ShareMember,
    TopicShare,
)
from headwater_broker.coordinator.group.share.timeouts import ShareTimeouts
from headwater_broker.coordinator.group.table import GroupTable

LEAVE_EPOCH = -1
UNSETTLED_INTERVAL_MS = 500
"""Heartbeat interval while the member's assignment is about to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat request; None: unchanged."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


class Beginning(NamedTuple):
    """States that the persister is to begin."""

    group_id: str
    state_epoch: int
    topics: Mapping[UUID, TopicShare]
    deleting: Mapping[UUID, int]
    """Those of the topics whose former states are to be deleted first, with their partitions."""


class HeartbeatReply(NamedTuple):
    """The member's response, and the work that follows it."""

    response: k76.ShareGroupHeartbeatResponse
    beginning: Beginning | None = None


def check(request: ShareHeartbeat) -> None:
    """Raises INVALID_REQUEST."""
    fault = ""
    if not request.member_id:
        fault = "MemberId can't be empty."
    elif not request.group_id:
        fault = "GroupId can't be empty."
    elif request.rack_id == "":
        fault = "RackId can't be empty."
    elif request.epoch < LEAVE_EPOCH:
        fault = f"MemberEpoch is {request.epoch}, -1 is the lowest."
    elif request.epoch == 0 and not request.topics:
        fault = "SubscribedTopicNames must be set in first request."
    if fault:
        raise KafkaError(ErrorCode.INVALID_REQUEST, fault)


class _Step:
    """The group after a heartbeat, before its records are replayed."""

    def __init__(self, group: ShareGroup, member: ShareMember) -> None:
        self.group = group
        self.members = {**group.members, member.member_id: member}
        self.epoch = group.epoch
        self.metadata_hash = group.metadata_hash
        self.target_epoch = group.target_epoch
        self.targets: Mapping[str, Target] = group.targets
        self.awaits_states = False


class ShareProtocol:
    """The rules of heartbeats."""

    def __init__(self, table: GroupTable, topics: Topics) -> None:
        self._table = table
        self._topics = topics
        self.timeouts = ShareTimeouts(table)

    def heartbeat(
        self,
        group: ShareGroup,
        request: ShareHeartbeat,
        now: Now,
        token: Token,
        settled_interval_ms: int,
    ) -> Decision:
        """The reply is a HeartbeatReply. Raises KafkaError."""
        out = Decision()
        before = self._member_before(group, request)
        member = _asking(before or ShareMember(request.member_id), request)
        step = _Step(group, member)
        is_new_ask = before is None or before.topics != member.topics
        if member != before:
            out.records.append(records.member_record(group.group_id, member))
        self._advance_epoch(step, out, is_bumped=is_new_ask)
        beginning = self._begin(step, now, out, looks=is_new_ask)
        self._advance_target(step, now, out)
        moved = self._moved(step, member)
        if moved != member:
            out.records.append(records.position_record(group.group_id, moved))
        self.timeouts.renew_session(group.group_id, member.member_id, now)
        tells = request.topics is not None or request.epoch != moved.epoch
        response = k76.ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._interval_ms(step, settled_interval_ms),
            assignment=_assignment(moved.assigned)
            if tells or moved.assigned != member.assigned
            else None,
        )
        return out.confirm(token, HeartbeatReply(response, beginning))

    def _member_before(self, group: ShareGroup, request: ShareHeartbeat) -> ShareMember | None:
        """None: it joins. Raises KafkaError."""
        member = group.members.get(request.member_id)
        if member is None:
            if request.epoch != 0:
                raise unknown_member(group.group_id, request.member_id)
            limit = self._table.config.share_max_size
            if len(group.members) >= limit:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {limit} members.",
                )
            return None
        is_lost_reply = request.epoch == member.previous_epoch and request.epoch < member.epoch
        if request.epoch not in (0, member.epoch) and not is_lost_reply:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"the member has epoch {member.epoch}, the request {request.epoch}: it must leave "
                "its partitions and join again",
            )
        return member

    def _advance_epoch(self, step: _Step, out: Decision, *, is_bumped: bool) -> None:
        group = step.group
        if not (is_bumped or group.needs_refresh):
            return
        step.metadata_hash = metadata_hash(_names(step.members), self._topics)
        if is_bumped or step.metadata_hash != group.metadata_hash:
            step.epoch += 1
            record = records.group_record(group.group_id, step.epoch, step.metadata_hash)
            out.records.append(record)

    def _begin(self, step: _Step, now: Now, out: Decision, *, looks: bool) -> Beginning | None:
        """Have the states begin of partitions that have none; again after a while."""
        group, shares = step.group, step.group.shares
        if not (looks or group.needs_refresh or shares.initializing):
            return None
        missing: dict[UUID, TopicShare] = {}
        for name in sorted(_names(step.members)):
            known = self._topics.by_name(name)
            if known is None:
                continue
            begun = shares.initialized.get(known.topic_id)
            indexes = frozenset(range(known.partitions)) - (begun.partitions if begun else set())
            if indexes:
                missing[known.topic_id] = TopicShare(name, indexes)
        step.awaits_states = bool(missing)
        after = shares.begun(missing)
        is_new = after.initializing != shares.initializing or after.deleting != shares.deleting
        if is_new:
            out.records.append(records.shares_record(group.group_id, after))
        elif step.metadata_hash == group.metadata_hash:
            group.needs_refresh = False
        retry_ms = self._table.config.share_initialize_retry_ms
        is_due = group.asked_ms is None or now.steady_ms - group.asked_ms >= retry_ms
        if not missing or not (is_new or is_due):
            return None
        group.asked_ms = now.steady_ms
        deleting = {
            topic: known.partitions
            for topic in missing.keys() & shares.deleting.keys()
            if (known := self._topics.by_id(topic)) is not None
        }
        return Beginning(group.group_id, step.epoch, missing, deleting)

    def _advance_target(self, step: _Step, now: Now, out: Decision) -> None:
        """A new target, not sooner than the interval after the last one that had partitions."""
        group = step.group
        if step.epoch <= group.target_epoch or self._must_wait(group, now):
            return
        ids = {
            name: known.topic_id
            for name in _names(step.members)
            if (known := self._topics.by_name(name)) is not None
        }
        subscriptions = {
            member.member_id: frozenset(ids[name] for name in member.topics if name in ids)
            for member in step.members.values()
        }
        partitions = {t: share.partitions for t, share in group.shares.initialized.items()}
        targets = assign(subscriptions, partitions, group.targets)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                out.records.append(records.target_record(group.group_id, member_id, target))
        out.records.append(records.target_epoch_record(group.group_id, step.epoch, now.wall_ms))
        step.target_epoch, step.targets = step.epoch, targets

    def _must_wait(self, group: ShareGroup, now: Now) -> bool:
        if not any(group.targets.values()):
            return False
        interval_ms = self._table.settings_of(group.group_id).share_assignment_interval_ms
        return 0 <= now.wall_ms - group.target_ms < interval_ms

    def _moved(self, step: _Step, member: ShareMember) -> ShareMember:
        """The member at the target. What it does not subscribe to any more is left out, though a
        target may still have it."""
        wanted = {
            known.topic_id
            for name in member.topics
            if (known := self._topics.by_name(name)) is not None
        }
        target = {
            topic: indexes
            for topic, indexes in step.targets.get(member.member_id, {}).items()
            if topic in wanted
        }
        if member.epoch == step.target_epoch and member.assigned == target:
            return member
        return member.moved(step.target_epoch, target)

    def _interval_ms(self, step: _Step, settled_interval_ms: int) -> int:
        configured = self._table.settings_of(step.group.group_id).share_heartbeat_interval_ms
        if configured is not None:
            return configured
        is_settled = step.epoch == step.target_epoch and not step.awaits_states
        return settled_interval_ms if is_settled else UNSETTLED_INTERVAL_MS

    def remove(self, group: ShareGroup, gone: Iterable[str], out: Decision) -> None:
        """Members leave, or are put out."""
        left = dict(group.members)
        for member_id in gone:
            left.pop(member_id, None)
            out.records += records.member_tombstones(group.group_id, member_id)
        hash_after = metadata_hash(_names(left), self._topics)
        out.records.append(records.group_record(group.group_id, group.epoch + 1, hash_after))


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    """UNKNOWN_MEMBER_ID."""
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )


def _asking(member: ShareMember, request: ShareHeartbeat) -> ShareMember:
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if request.topics is None else request.topics,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _names(members: Mapping[str, ShareMember]) -> set[str]:
    return {name for member in members.values() for name in member.topics}


def _assignment(assigned: Target) -> k76.Assignment:
    return k76.Assignment(
        topic_partitions=tuple(
            k76.TopicPartitions(topic_id=topic, partitions=tuple(sorted(indexes)))
            for topic, indexes in sorted(assigned.items())
        )
    )
