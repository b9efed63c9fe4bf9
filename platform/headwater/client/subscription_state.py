"""The subscription of a consumer: how its partitions were chosen, and the state of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import islice

from headwater.client.change_signal import ChangeSignal
from headwater.client.core.partition_fetch_state import PartitionFetchState
from headwater.client.errors import IllegalStateError
from headwater.client.values import ConsumerRecord, OffsetAndMetadata, TopicPartition


class SubscriptionType(Enum):
    """How the partitions were chosen; the value completes "this consumer ..."."""

    NONE = "reads nothing"
    TOPICS = "subscribes to topics"
    PATTERN = "subscribes to a pattern"
    ASSIGNED = "has partitions that assign() gave it"


class SubscriptionState(ChangeSignal):
    """The partitions of one consumer. `condition` guards them: the loop and the caller share them.

    `pending` has the records that a poll returned and iteration has not yielded yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        """Those that are subscribed to by name."""
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self.order: list[TopicPartition] = []
        """The order in which `poll` goes through the partitions."""
        self.pending: deque[ConsumerRecord] = deque()
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        """What this consumer has committed last."""

    @property
    def is_subscribed(self) -> bool:
        """True when topics or a pattern were subscribed to."""
        return self.type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN)

    def set_type(self, wanted: SubscriptionType) -> None:
        """Topics, a pattern and assign() exclude each other. Raises IllegalStateError."""
        if self.type not in (SubscriptionType.NONE, wanted):
            raise IllegalStateError(f"this consumer {self.type.value}: call unsubscribe() first")
        self.type = wanted

    def subscribe(self, topics: Iterable[str]) -> None:
        """These topics are subscribed to by name. The partitions of others stay assigned until the
        group has rebalanced, but are not read any more."""
        self.topics = frozenset(topics)
        self.give_back([tp for tp in self.partitions if not self.reads(tp.topic)])

    def reads(self, topic: str) -> bool:
        """False for a topic that a subscription by name does not have any more."""
        return self.type is not SubscriptionType.TOPICS or topic in self.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions. Those that were read before keep their state."""
        wanted = list(partitions)
        with self.condition:
            known = self.partitions
            self.partitions = {tp: known.get(tp) or PartitionFetchState(*tp) for tp in wanted}
            self.order = wanted
            self._keep_pending(r for r in self.pending if r[:2] in self.partitions)
            self.committed = {tp: o for tp, o in self.committed.items() if tp in self.partitions}

    def entry(self, partition: TopicPartition | tuple[str, int]) -> PartitionFetchState:
        """The state of an assigned partition. Raises IllegalStateError for another one."""
        entry = self.partitions.get(TopicPartition(*partition))
        if entry is None:
            name = f"{partition[0]}-{partition[1]}"
            raise IllegalStateError(f"{name} is not assigned to this consumer")
        return entry

    def give_back(self, partitions: Iterable[TopicPartition]) -> None:
        """The records of these partitions that iteration has not yielded are to be read again."""
        with self.condition:
            left = {TopicPartition(*r[:2]) for r in self.pending}
            for tp in left.intersection(partitions):
                at = self.next_offset(self.partitions[tp])
                self.partitions[tp].seek(at.offset, at.leader_epoch)
                self.drop_pending([tp])

    def take_pending(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records that an iteration has left behind."""
        return [self.pending.popleft() for _ in range(min(limit, len(self.pending)))]

    def drop_pending(self, partitions: list[TopicPartition]) -> None:
        """Forget the records of these partitions that iteration has not yielded."""
        self._keep_pending(r for r in self.pending if r[:2] not in partitions)

    def _keep_pending(self, rows: Iterable[ConsumerRecord]) -> None:
        """In place: an iteration has this deque."""
        kept = list(rows)
        self.pending.clear()
        self.pending.extend(kept)

    def peek(self, limit: int) -> list[ConsumerRecord]:
        """The first pending records; they stay pending."""
        return list(islice(self.pending, limit))

    def drop(self, rows: list[ConsumerRecord]) -> bool:
        """Forget these first pending records, which were dealt with. False, and nothing is
        forgotten, when a seek or a rebalance has changed them."""
        found = list(islice(self.pending, len(rows)))
        if len(found) < len(rows) or any(a is not b for a, b in zip(found, rows, strict=True)):
            return False
        for _ in rows:
            self.pending.popleft()
        return True

    def next_offset(self, entry: PartitionFetchState) -> OffsetAndMetadata:
        """The position, or the first record that iteration has not yielded.

        It has the leader epoch of the record before the position, or of that first record: a
        consumer that continues there reads from no leader with an older one (KIP-320).
        """
        place = (entry.topic, entry.partition)
        first = next((r for r in self.pending if r[:2] == place), None)
        if first is not None:
            return OffsetAndMetadata(first.offset, leader_epoch=first.leader_epoch)
        return OffsetAndMetadata(entry.position or 0, leader_epoch=entry.leader_epoch)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of everything commits: the next offset of each known position."""
        with self.condition:
            return {
                tp: self.next_offset(entry)
                for tp, entry in self.partitions.items()
                if entry.position is not None
            }
