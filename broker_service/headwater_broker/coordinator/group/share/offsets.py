"""Changes of share partitions by tools: start offsets, deletion (KIP-932). Pure.

The states themselves are the share coordinators'; each change is recorded before they are asked, so
that it can be finished after a failover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Decision, Now, Token
from headwater_broker.coordinator.group.consumer.subscriptions import KnownTopic, Topics
from headwater_broker.coordinator.group.share import records
from headwater_broker.coordinator.group.share.group import (
    ShareGroup,
    SharePartitions,
    TopicShare,
)

Partition = tuple[UUID, int]


class NewStart(NamedTuple):
    """Where a share partition is to start anew."""

    topic: KnownTopic
    partition: int
    start_offset: int


@dataclass(slots=True)
class Alteration:
    """Share partitions that the persister begins anew, and those that are refused."""

    state_epoch: int = 0
    starts: list[NewStart] = field(default_factory=list)
    deleting: dict[UUID, int] = field(default_factory=dict)
    """Topics whose former states are to be deleted first, with their partitions."""
    refused: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)

    @property
    def topics(self) -> dict[UUID, TopicShare]:
        """The share partitions of `starts`."""
        out: dict[UUID, TopicShare] = {}
        for start in self.starts:
            known = out.get(start.topic.topic_id, TopicShare(start.topic.name, frozenset()))
            out[start.topic.topic_id] = TopicShare(known.name, known.partitions | {start.partition})
        return out


@dataclass(slots=True)
class Deletion:
    """Share partitions that the persister deletes, and the topics that are not known."""

    partitions: list[Partition] = field(default_factory=list)
    topics: dict[UUID, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


class ShareOffsets:
    """Commands on the share partitions of groups. Those that change something raise
    GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP."""

    def __init__(
        self,
        find: Callable[[str], ShareGroup | None],
        require: Callable[[str], ShareGroup],
        require_or_new: Callable[[str], ShareGroup],
        topics: Topics,
    ) -> None:
        """Finders of groups: None, or GROUP_ID_NOT_FOUND, or a new group where there is none."""
        self._find = find
        self._require = require
        self._require_or_new = require_or_new
        self._topics = topics

    def begun(self, group_id: str, _now: Now, token: Token) -> Decision:
        """Replies (topic id, partition) of every share partition whose state has begun; none of a
        group that is no share group, as Kafka does."""
        group = self._find(group_id)
        begun = {} if group is None else group.shares.initialized
        rows = [(t, i) for t, share in begun.items() for i in share.partitions]
        return Decision().reply(token, sorted(rows))

    def alter(
        self,
        group_id: str,
        wanted: Iterable[tuple[str, int, int]],
        _now: Now,
        token: Token,
    ) -> Decision:
        """`wanted`: (topic, partition, start offset). Replies an Alteration.

        It makes a group that does not exist, so that its first member starts from there.
        """
        group = _empty(self._require_or_new(group_id))
        change, out = Alteration(group.epoch + 1), Decision()
        for name, partition, start in wanted:
            known = self._topics.by_name(name)
            if known is None or not 0 <= partition < known.partitions:
                change.refused[name, partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif start < 0:
                change.refused[name, partition] = ErrorCode.INVALID_REQUEST
            else:
                change.starts.append(NewStart(known, partition, start))
                if known.topic_id in group.shares.deleting:
                    change.deleting[known.topic_id] = known.partitions
        if change.starts:
            self._store(group, group.shares.begun(change.topics), out)
        return out.confirm(token, change)

    def delete(self, group_id: str, names: Iterable[str], _now: Now, token: Token) -> Decision:
        """Replies a Deletion of these topics."""
        group = _empty(self._require(group_id))
        found, out = Deletion(), Decision()
        for name in names:
            known = self._topics.by_name(name)
            if known is None:
                found.unknown.append(name)
            elif known.topic_id in group.shares.topics():
                found.topics[known.topic_id] = name
        return self._doom(group, found, out).confirm(token, found)

    def delete_all(self, group_id: str, _now: Now, token: Token) -> Decision:
        """Replies a Deletion of everything: the group is to be deleted."""
        group = _empty(self._require(group_id))
        found = Deletion(topics=group.shares.topics())
        return self._doom(group, found, Decision()).confirm(token, found)

    def deleted(self, group_id: str, topics: Iterable[UUID], _now: Now, token: Token) -> Decision:
        """The persister has deleted the states of these topics."""
        group, out = self._require(group_id), Decision()
        gone, shares = set(topics), group.shares
        left = {t: name for t, name in shares.deleting.items() if t not in gone}
        if left != shares.deleting:
            after = SharePartitions(shares.initializing, shares.initialized, left)
            out.records.append(records.shares_record(group_id, after))
        return out.confirm(token, None)

    def _doom(self, group: ShareGroup, found: Deletion, out: Decision) -> Decision:
        for topic in found.topics:
            indexes = group.shares.of_topic(topic)
            known = self._topics.by_id(topic)
            if known is not None:  # also those that an earlier attempt has left
                indexes |= frozenset(range(known.partitions))
            found.partitions += [(topic, index) for index in sorted(indexes)]
        if found.topics:
            self._store(group, group.shares.doomed(found.topics), out)
        return out

    def _store(self, group: ShareGroup, shares: SharePartitions, out: Decision) -> None:
        """With the group's next epoch: the states that begin then fence leaders of these."""
        out.records.append(records.shares_record(group.group_id, shares))
        out.records.append(
            records.group_record(group.group_id, group.epoch + 1, group.metadata_hash)
        )


def _empty(group: ShareGroup) -> ShareGroup:
    if not group.is_empty:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP, f"Group {group.group_id} has members: stop them first."
        )
    return group
