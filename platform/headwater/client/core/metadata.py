"""What the client knows of the cluster: brokers, topics, leaders and their epochs. Pure.

A leader epoch never goes back for the same topic id (KIP-320): a broker that lags behind must not
send producers to a deposed leader, nor a consumer that has heard of a newer epoch from an offset.
A topic under a new id starts afresh (KIP-516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headwater.client.values import (
    Broker,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from headwater.errors import ErrorCode
from headwater.wire.apis.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

NO_LEADER = -1
STALE_PATIENCE_S = 30.0
"""How long brokers that tell of older leader epochs than an offset's are not believed. Java's
consumer waits for ever: for a group whose topic was made anew under its name, say."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cache; `partitions[i]` is partition i."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    def describe(self) -> TopicDescription:
        """The caller's form."""
        return TopicDescription(self.name, self.topic_id, self.is_internal, self.partitions)


def metadata_request(topics: Iterable[str] | None, *, auto_create: bool) -> MetadataRequest:
    """Ask for these topics, or for all of them with None."""
    rows = None
    if topics is not None:
        rows = tuple(MetadataRequestTopic(name=name) for name in topics)
    return MetadataRequest(topics=rows, allow_auto_topic_creation=auto_create)


class MetadataCache:
    """Brokers and topics by the newest answers seen. Replaced values, never changed in place."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, Topic] = {}
        self.names: dict[UUID, str] = {}
        self.errors: dict[str, ErrorCode] = {}
        """Topics whose last answer was an error."""
        self.awaited_epochs: dict[tuple[str, int], int] = {}
        """(topic, partition) -> the epoch of an offset, while older ones only are told."""
        self.generation = 0
        """Counts updates, so that waiters see change."""

    def update(self, response: MetadataResponse) -> None:
        """Take in an answer. A topic with an error keeps its old entry, unless it is gone."""
        self.generation += 1
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers
        }
        for topic in response.topics:
            if topic.name:
                self._update_topic(topic.name, topic)
        self._look_for_awaited()

    def _update_topic(self, name: str, answer: MetadataResponseTopic) -> None:
        code = _code(answer.error_code)
        gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        if code != ErrorCode.NONE:
            self.errors[name] = code
            if code in gone:
                self.forget(name)
            return
        self.errors.pop(name, None)
        old = self.topics.get(name)
        if old is not None and old.topic_id != answer.topic_id:
            self.names.pop(old.topic_id, None)
            old = None
            self.awaited_epochs = {k: v for k, v in self.awaited_epochs.items() if k[0] != name}
        rows = sorted(answer.partitions, key=lambda p: p.partition_index)
        partitions = []
        for index, row in enumerate(rows):
            fresh = PartitionDescription(
                row.partition_index,
                row.leader_id,
                row.leader_epoch,
                row.replica_nodes,
                row.isr_nodes,
                row.offline_replicas,
            )
            known = old.partitions[index] if old and index < len(old.partitions) else None
            stale = known is not None and -1 < fresh.leader_epoch < known.leader_epoch
            partitions.append(known if stale and known is not None else fresh)
        self.topics[name] = Topic(name, answer.topic_id, answer.is_internal, tuple(partitions))
        self.names[answer.topic_id] = name

    def forget(self, name: str) -> None:
        """Drop a topic that is gone."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)

    def partition(self, topic: str, partition: int) -> PartitionDescription | None:
        """The partition, or None when it is not known."""
        entry = self.topics.get(topic)
        if entry is None or not 0 <= partition < len(entry.partitions):
            return None
        return entry.partitions[partition]

    def leader(self, topic: str, partition: int) -> int:
        """The leader's node id; -1 when there is none, or none as new as `heed_epoch` asks for."""
        entry = self.partition(topic, partition)
        if entry is None or (topic, partition) in self.awaited_epochs:
            return NO_LEADER
        return entry.leader

    def move_leader(self, topic: str, partition: int, leader: int, epoch: int) -> bool:
        """Take a leader told by a Produce or Fetch reply (KIP-951). True when it is news."""
        entry = self.partition(topic, partition)
        if entry is None or leader < 0 or epoch <= entry.leader_epoch:
            return False
        if leader not in self.brokers:
            return False
        old = self.topics[topic]
        changed = entry._replace(leader=leader, leader_epoch=epoch)
        partitions = (*old.partitions[:partition], changed, *old.partitions[partition + 1 :])
        self.topics[topic] = Topic(old.name, old.topic_id, old.is_internal, partitions)
        self._look_for_awaited()
        self.generation += 1
        return True

    def heed_epoch(self, topic: str, partition: int, epoch: int) -> None:
        """An offset is known to be of this epoch, so who tells of an older one lags behind
        (KIP-320): the partition has no leader until one as new is told, or `ignore_epoch`."""
        if epoch >= 0 and not self._is_told(topic, partition, epoch):
            awaited = self.awaited_epochs.get((topic, partition), -1)
            self.awaited_epochs[topic, partition] = max(awaited, epoch)

    def ignore_epoch(self, topic: str, partition: int) -> None:
        """Undo `heed_epoch`: whoever is known to lead does."""
        self.awaited_epochs.pop((topic, partition), None)

    def _look_for_awaited(self) -> None:
        for (topic, partition), epoch in list(self.awaited_epochs.items()):
            if self._is_told(topic, partition, epoch):
                del self.awaited_epochs[topic, partition]

    def _is_told(self, topic: str, partition: int, epoch: int) -> bool:
        entry = self.partition(topic, partition)
        return entry is not None and not -1 < entry.leader_epoch < epoch  # -1: they tell none

    def add_broker(self, broker: Broker) -> None:
        """Learn an address from a reply's node endpoints (KIP-951)."""
        self.brokers = {**self.brokers, broker.node_id: broker}

    def describe_cluster(self) -> ClusterDescription:
        """The caller's form."""
        rows = tuple(self.brokers[node] for node in sorted(self.brokers))
        return ClusterDescription(self.cluster_id, self.controller_id, rows)


class _Stale(NamedTuple):
    since: float
    last: float
    answers: int


class StaleAnswers:
    """Patience with brokers that know no leader as new as an offset's: it has an end."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._told: dict[tuple[tuple[str, int], int], _Stale] = {}

    def judge(
        self, awaited: Mapping[tuple[str, int], int], brokers: int, now: float
    ) -> tuple[int, list[tuple[str, int]]]:
        """After an answer at `now` (monotonic), with these epochs awaited still by partition.

        Gives the most such answers that a partition has had, and the partitions to wait for no
        longer: for all its patience as many as there are `brokers` told of older epochs only.
        """
        # What was told before a pause says nothing; a rebalance is none.
        self._told = {k: v for k, v in self._told.items() if now - v.last < self._patience_s}
        most, given_up = 0, []
        for place, epoch in awaited.items():
            since, _, answers = self._told.get((place, epoch), _Stale(now, now, 0))
            answers += 1
            self._told[place, epoch] = _Stale(since, now, answers)
            most = max(most, answers)
            if now - since >= self._patience_s and answers > brokers:
                given_up.append(place)
        return most, given_up


def _code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
