"""The heartbeat of consumer groups (KIP-848): join, reconcile, leave. Pure.

Kafka's counterpart is the consumer half of GroupMetadataManager. A heartbeat never waits: a member
learns of its target by its next one, so it gets a short interval while something is about to
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import HEADER_BYTES
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headwater_broker.coordinator.common.shard import Decision, Now, Token
from headwater_broker.coordinator.group.consumer.change import Change
from headwater_broker.coordinator.group.consumer.commits import member_of
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat
from headwater_broker.coordinator.group.consumer.member import (
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Named,
    Owned,
    named,
)
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.migration import (
    classic_group_record,
    may_downgrade,
)
from headwater_broker.coordinator.group.consumer.patterns import Patterns
from headwater_broker.coordinator.group.consumer.reconcile import reconcile
from headwater_broker.coordinator.group.consumer.records import group_tombstones, position_record
from headwater_broker.coordinator.group.consumer.states import MemberState
from headwater_broker.coordinator.group.consumer.subscriptions import Topics, metadata_hash
from headwater_broker.coordinator.group.consumer.target import Submit, TargetJob, placed, target_job
from headwater_broker.coordinator.group.consumer.timeouts import ConsumerTimeouts
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import RETRY_MS, Timer, TimerKey

UNSETTLED_INTERVAL_MS = 500
"""How soon a member is to come back while something is about to change for it."""
SOONEST_INTERVAL_MS = 100
"""The least, when it is known when the target will be computed."""


class ConsumerProtocol:
    """The rules over groups handed in."""

    def __init__(
        self,
        table: GroupTable,
        topics: Topics,
        meters: ConsumerGroupMeters,
        submit: Submit | None,
        settled_interval_ms: Callable[[], int],
        patterns: Patterns,
    ) -> None:
        """`submit`: None: large targets are computed at once, too. `settled_interval_ms`: how often
        members come while nothing changes, unless that is configured."""
        self._table = table
        self.timeouts = ConsumerTimeouts(table)
        self._topics = topics
        self.meters = meters
        self._submit = submit
        self._settled_interval_ms = settled_interval_ms
        self.patterns = patterns

    # -- heartbeat

    def steady(
        self, group: ConsumerGroup, request: Heartbeat, now: Now
    ) -> ConsumerGroupHeartbeatResponse | None:
        """The reply to a heartbeat that changes nothing, which is nearly each; None: it may."""
        member = group.members.get(request.member_id)
        if (
            member is None
            or member.epoch != request.epoch
            or request.epoch <= 0
            or not request.is_bare
            or group.needs_refresh
            or now.steady_ms >= group.regexes_due_ms
            or not group.is_settled(member)
            or member.classic is not None
            or member.client_id != request.client_id
            or member.client_host != request.client_host
            or (request.instance_id is not None and request.instance_id != member.instance_id)
        ):
            return None
        self.timeouts.renew_session(group.group_id, member, now)
        return self._reply(group, member, self._interval_ms(group.group_id))

    def heartbeat(
        self, change: Change, request: Heartbeat, now: Now, token: Token
    ) -> ConsumerMember:
        """Add or update the member, and take it a step towards its target. Raises KafkaError."""
        group = change.group
        self._check_size(group, request)
        before = self._member_before(change, request, now)
        asked = _asking(before, request)
        is_new = before.member_id not in change.members
        has_new_subscription = before.topics != asked.topics or before.regex != asked.regex
        change.put(asked)
        if before.regex != asked.regex:
            change.drop_unused_regex(before.regex)
        self.patterns.watch(change, request, now)
        self.advance_epoch(change, now, is_due=is_new or has_new_subscription)
        self.advance_target(change, now)
        moved = self.step(change, asked, request.owned, now)
        self.timeouts.renew_session(group.group_id, moved, now)
        is_told = request.is_full or named(moved.assigned) != named(before.assigned)
        interval_ms = self._interval_ms(group.group_id)
        is_changing = change.epoch != change.target_epoch or group.is_resolving
        if is_changing or not moved.is_reconciled_to(change.target_epoch):
            interval_ms = min(interval_ms, self._soon_ms(change, now))
        reply = self._reply(group, moved, interval_ms)
        if is_told:
            reply = replace(reply, assignment=_assignment(moved.assigned))
        change.out.confirm(token, reply)
        return moved

    def step(
        self, change: Change, member: ConsumerMember, owned: Named | None, now: Now
    ) -> ConsumerMember:
        """The member after one step towards its target."""
        group = change.group
        moved = reconcile(
            member, change.target_epoch, change.target_of(member), owned, group.is_held
        )
        change.put(moved)
        self.timeouts.watch_revocation(group.group_id, moved, now)
        if moved.is_reconciled_to(change.target_epoch) and moved is not member:
            self._check_settled(change, moved, now)
        return moved

    def _check_settled(self, change: Change, moved: ConsumerMember, now: Now) -> None:
        group = change.group
        if change.target_epoch == group.target_epoch and moved.member_id in group.members:
            missing = len(group.members) - group.reconciled
            is_settled = missing <= 1 and change.epoch == group.target_epoch
        else:
            is_settled = change.is_settled
        if is_settled:
            self.meters.has_settled(group.group_id, now.steady_ms)

    def _check_size(self, group: ConsumerGroup, request: Heartbeat) -> None:
        limit = self._table.config.consumer_max_size
        if request.member_id not in group.members and len(group.members) >= limit:
            if request.instance_id is not None and request.instance_id in group.static_members:
                return  # it takes the place of its former self
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _member_before(self, change: Change, request: Heartbeat, now: Now) -> ConsumerMember:
        """The member that sent it: known, new, or back in its former place. Raises KafkaError."""
        group = change.group
        if request.instance_id is not None:
            holder_id = group.static_members.get(request.instance_id)
            if request.epoch == 0:
                return self._static_join(change, request, holder_id)
            if holder_id is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Instance id {request.instance_id} is unknown.",
                )
            _check_instance(group, request, holder_id)
        elif request.epoch == 0:
            member_id = request.member_id or request.fresh_id
            return change.members.get(member_id) or ConsumerMember(member_id=member_id)
        member = member_of(group, request.member_id)
        self._check_epoch(group, member, request)
        return member

    def _static_join(
        self, change: Change, request: Heartbeat, holder_id: str | None
    ) -> ConsumerMember:
        member_id = request.member_id or request.fresh_id
        holder = None if holder_id is None else change.members.get(holder_id)
        if holder is None:
            return change.members.get(member_id) or ConsumerMember(member_id=member_id)
        if holder.member_id == member_id:
            return replace(holder, epoch=0, previous_epoch=0) if holder.is_away else holder
        if holder.classic is None and not holder.is_away:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the "
                f"group because the instance id is owned by {holder.member_id} member.",
            )
        return change.replace_static(holder, member_id)

    def _check_epoch(
        self, group: ConsumerGroup, member: ConsumerMember, request: Heartbeat
    ) -> None:
        """A smaller epoch is that of a member which did not get the reply with its newer one."""
        if request.epoch == member.epoch:
            return
        is_lost_reply = request.epoch == member.previous_epoch and member.owns_only_assigned(
            request.owned
        )
        if request.epoch < member.epoch and is_lost_reply:
            return
        self.meters.refused_epochs += 1
        size = "greater" if request.epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member {member.member_id} of {group.group_id} has a {size} member "
            f"epoch ({request.epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )

    # -- epochs

    def advance_epoch(self, change: Change, now: Now, *, is_due: bool) -> None:
        """Raise the group's epoch if it is due, or if the topics have changed."""
        group = change.group
        if not is_due and group.needs_refresh:
            is_due = metadata_hash(change.subscribed(), self._topics) != group.metadata_hash
            group.needs_refresh = is_due  # until the record with the new hash is replayed
        if is_due:
            change.bump(self._topics)
            self.meters.change_began(group.group_id, now.steady_ms)

    def advance_target(
        self, change: Change, now: Now, *, is_timer: bool = False, is_at_once: bool = False
    ) -> None:
        """Compute the target of the group's epoch, at most once in the assignment interval: of a
        hundred members that join, the first and the last make a target. `is_at_once`: for a member
        that gets its epoch only when it joins."""
        group = change.group
        if change.epoch <= change.target_epoch or not change.members or group.job_epoch >= 0:
            return
        key = TimerKey(Timer.TARGET, group.group_id)
        is_first = change.target_epoch == 0 or is_at_once  # no response has the epoch 0
        wait_ms = 0 if is_first else self._target_wait_ms(group, now)
        if wait_ms > 0:
            if not self._table.deadlines.is_set(key):
                self._table.deadlines.set(key, now.steady_ms + wait_ms)
            return
        job = self._job(change)
        is_for_worker = job.is_large and self._submit is not None and not is_first
        if is_for_worker and not is_timer:  # the records of this decision are not replayed yet
            self._table.deadlines.set(key, now.steady_ms)
            return
        self._table.deadlines.cancel(key)
        if is_for_worker and self._submit is not None:
            group.job_epoch = job.epoch
            self._submit(job)
        else:
            self._put_target(change, job, job.run(), now)

    def _job(self, change: Change) -> TargetJob:
        parts = {name: change.target_of(member) for name, member in change.members.items()}
        return target_job(
            change.group.group_id, change.epoch, change.members, parts, change.regexes, self._topics
        )

    def _put_target(
        self,
        change: Change,
        job: TargetJob,
        found: Mapping[str, Mapping[UUID, frozenset[int]]],
        now: Now,
    ) -> None:
        change.set_target(job.epoch, placed(job, found, change.members), now.wall_ms)
        self.meters.rebalances += 1

    def _target_wait_ms(self, group: ConsumerGroup, now: Now) -> int:
        """0: at once, also when the target is of a coordinator whose clock was ahead of this one: a
        wait for that clock may have no end."""
        interval_ms = self._table.settings_of(group.group_id).consumer_assignment_interval_ms
        age_ms = now.wall_ms - group.target_timestamp_ms
        return interval_ms - age_ms if 0 <= age_ms < interval_ms else 0

    def target_computed(
        self, change: Change, job: TargetJob, found: dict[str, Mapping[UUID, frozenset[int]]],
        now: Now,
    ) -> None:  # fmt: skip
        """A job is done. The group may have left it behind meanwhile."""
        group = change.group
        group.job_epoch = -1
        if group.target_epoch < job.epoch <= group.epoch and group.members:
            self._put_target(change, job, found, now)
        if group.epoch > change.target_epoch:
            key = TimerKey(Timer.TARGET, group.group_id)
            interval_ms = self._table.settings_of(group.group_id).consumer_assignment_interval_ms
            self._table.deadlines.set(key, now.steady_ms + interval_ms)

    def regexes_resolved(
        self, change: Change, found: Mapping[str, frozenset[str]], now: Now
    ) -> None:
        """Patterns are resolved: the group's topics may have changed."""
        self.advance_epoch(change, now, is_due=self.patterns.resolved(change, found, now))
        self.advance_target(change, now)

    # -- leave and fence

    def leave(self, change: Change, request: Heartbeat, now: Now, token: Token) -> None:
        """-1: the member is out; -2: a static member goes away and keeps all. Raises KafkaError."""
        group = change.group
        if request.instance_id is not None:
            holder_id = group.static_members.get(request.instance_id)
            if holder_id is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
                )
            _check_instance(group, request, holder_id)
        member = member_of(group, request.member_id)
        reply = ConsumerGroupHeartbeatResponse(
            error_code=0, member_id=request.member_id, member_epoch=request.epoch
        )
        if request.epoch == STATIC_LEAVE_EPOCH:
            away = member.at(
                epoch=STATIC_LEAVE_EPOCH,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                assigned=member.assigned,
                revoking={},
            )
            change.members[member.member_id] = away
            change.out.records.append(position_record(group.group_id, away))
            key = TimerKey(Timer.REBALANCE, group.group_id, member.member_id)
            self._table.deadlines.cancel(key)
        else:
            self.remove(change, (member.member_id,), now)
        change.out.confirm(token, reply)

    def remove(self, change: Change, member_ids: Iterable[str], now: Now) -> None:
        """Members leave, or are put out: the rest is rebalanced. Replay ends their timers: if this
        is not appended, their sessions end once more."""
        group_id = change.group.group_id
        for member_id in member_ids:
            change.remove(member_id)
            key = TimerKey(Timer.SESSION, group_id, member_id)
            self._table.deadlines.set(key, now.steady_ms + RETRY_MS)
        if may_downgrade(change.members, self._table.config) and self._downgrade(change, now):
            return
        change.bump(self._topics)
        if change.members:
            self.meters.change_began(group_id, now.steady_ms)
            self.advance_target(change, now)
        else:
            self.meters.forget(group_id)

    def _downgrade(self, change: Change, now: Now) -> bool:
        """Only members of the classic protocol are left: the group follows them, and rebalances.
        False: what that takes does not fit one batch, so it stays as it is."""
        group, whole = change.group, Decision()
        out, group_id = change.out, group.group_id
        whole.records += group_tombstones(group_id, change.members, change.regexes)
        whole.records.append(classic_group_record(group, change.members, self._topics, now.wall_ms))
        size_max = whole.size_max_bytes + out.size_max_bytes + HEADER_BYTES
        if size_max > self._table.config.batch_max_bytes:
            return False
        out.records += whole.records
        for member_id in change.members:
            for kind in (Timer.JOIN, Timer.SYNC):
                self._table.deadlines.cancel(TimerKey(kind, group_id, member_id))
        self._table.deadlines.set(TimerKey(Timer.CONVERTED, group_id), now.steady_ms)
        self.meters.forget(group_id)
        return True

    # -- replies

    def _interval_ms(self, group_id: str) -> int:
        configured = self._table.settings_of(group_id).consumer_heartbeat_interval_ms
        return self._settled_interval_ms() if configured is None else configured

    def _soon_ms(self, change: Change, now: Now) -> int:
        """Come when the target will be there, if that is known."""
        if change.epoch == change.target_epoch:
            return UNSETTLED_INTERVAL_MS
        wait_ms = self._target_wait_ms(change.group, now) + SOONEST_INTERVAL_MS
        return max(SOONEST_INTERVAL_MS, min(UNSETTLED_INTERVAL_MS, wait_ms))

    @staticmethod
    def _reply(
        group: ConsumerGroup, member: ConsumerMember, interval_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=interval_ms,
        )


def _check_instance(group: ConsumerGroup, request: Heartbeat, holder_id: str) -> None:
    if holder_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced "
            f"by member {holder_id} of group {group.group_id}.",
        )


def _asking(before: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    """The member with what the heartbeat says anew."""

    def anew(value: str | None, old: str | None) -> str | None:
        return old if value is None else value

    regex = before.regex if request.regex is None else request.regex or None
    timeout_ms = request.rebalance_timeout_ms
    return before.asking(
        instance_id=anew(request.instance_id, before.instance_id),
        rack_id=anew(request.rack_id, before.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topics=before.topics if request.topics is None else request.topics,
        regex=regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=anew(request.assignor, before.assignor),
        classic=None,
    )


def _assignment(assigned: Owned) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(assigned[topic_id])))
            for topic_id in sorted(assigned)
        )
    )
