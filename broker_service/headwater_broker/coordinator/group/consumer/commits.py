"""Members that may commit and fetch offsets of a consumer group (KIP-848, KIP-1251). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.member import ConsumerMember
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.records import TopicPartition
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey

Refused = dict[TopicPartition, ErrorCode]


class EpochChecks:
    """Checks of member epochs."""

    def __init__(self, table: GroupTable, topics: Topics) -> None:
        self._table = table
        self._topics = topics

    def check_commit(
        self,
        group: ConsumerGroup,
        epoch: int,
        member_id: str,
        keys: Iterable[TopicPartition],
        now: Now,
        *,
        has_epochs: bool,
    ) -> Refused:
        """The partitions that this OffsetCommit may not change. Raises KafkaError for all of them.

        A tool sends the epoch -1, and may commit while the group is empty.
        """
        if epoch < 0 and group.is_empty:
            return {}
        member = member_of(group, member_id)
        if member.classic is None and not has_epochs:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"member {member_id!r} of group {group.group_id!r} uses the consumer protocol: "
                "it must commit by OffsetCommit version 9 or later",
            )
        refused = self._stale(group, member, epoch, keys)
        if member.classic is not None:
            key = TimerKey(Timer.SESSION, group.group_id, member_id)
            self._table.deadlines.set(key, now.steady_ms + member.classic.session_timeout_ms)
        return refused

    def check_transactional_commit(
        self,
        group: ConsumerGroup,
        epoch: int,
        member_id: str,
        instance_id: str | None,
        keys: Iterable[TopicPartition],
    ) -> Refused:
        """The same for a TxnOffsetCommit, whose member need not be given."""
        if epoch < 0 and group.is_empty:
            return {}
        if epoch < 0 and not member_id and instance_id is None:
            return {}
        return self._stale(group, member_of(group, member_id), epoch, keys)

    def _stale(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        epoch: int,
        keys: Iterable[TopicPartition],
    ) -> Refused:
        """A member commits in its epoch, or in an older one what it was assigned by then and still
        holds: the reply with its newer epoch may be on its way."""
        if epoch == member.epoch:
            return {}
        if epoch > member.epoch or epoch < 0:
            raise _stale_epoch(group, member, epoch)
        refused: Refused = {}
        for topic, partition in keys:
            known = self._topics.by_name(topic)
            since = None if known is None else member.assignment_epoch(known.topic_id, partition)
            if since is None or epoch < since:
                refused[(topic, partition)] = _stale_code(member)
        return refused

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
        """Raises KafkaError unless a member that names itself is in this very epoch."""
        if member_id is None and epoch < 0:
            return
        member = member_of(group, member_id or "")
        if epoch != member.epoch:
            raise _stale_epoch(group, member, epoch)


def member_of(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Raises UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.group_id!r} ({group.state.value}) has no member {member_id!r}",
        )
    return member


def _stale_code(member: ConsumerMember) -> ErrorCode:
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _stale_epoch(group: ConsumerGroup, member: ConsumerMember, epoch: int) -> KafkaError:
    return KafkaError(
        _stale_code(member),
        f"member {member.member_id!r} of group {group.group_id!r} is in epoch {member.epoch}, "
        f"not {epoch}",
    )
