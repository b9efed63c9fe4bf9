"""The client's metadata: brokers, topics, leaders and their epochs. Pure.

The leader epoch of a partition never decreases for the same topic id (KIP-320): a broker that lags
behind must not send producers to a former leader, nor a consumer whose offset has a newer epoch.
A topic with a new id starts afresh (KIP-516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headwater.client.errors import error_code
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


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic in the cache; `partitions[i]` is partition i."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    def describe(self) -> TopicDescription:
        """As `Admin.describe_topics` returns it."""
        return TopicDescription(self.name, self.topic_id, self.is_internal, self.partitions)


def metadata_request(topics: Iterable[str] | None, *, auto_create: bool) -> MetadataRequest:
    """A request for these topics, or with None for all."""
    rows = None
    if topics is not None:
        rows = tuple(MetadataRequestTopic(name=name) for name in topics)
    return MetadataRequest(topics=rows, allow_auto_topic_creation=auto_create)


class MetadataCache:
    """Brokers and topics by the last responses. Values are replaced, never changed in place."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.names: dict[UUID, str] = {}
        self.errors: dict[str, ErrorCode] = {}
        """Topic -> the error code of its last response, if it was one."""
        self.required_epochs: dict[tuple[str, int], int] = {}
        """(topic, partition) -> an offset's leader epoch, while brokers know only older ones."""
        self.updates = 0
        """Counts the updates, so that a waiting caller sees a change."""

    def update(self, response: MetadataResponse) -> None:
        """Apply a response. A topic with an error keeps its entry, unless it does not exist."""
        self.updates += 1
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers
        }
        for topic in response.topics:
            if topic.name:
                self._update_topic(topic.name, topic)
        self._check_required()

    def _update_topic(self, name: str, answer: MetadataResponseTopic) -> None:
        code = error_code(answer.error_code)
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
            self.required_epochs = {k: v for k, v in self.required_epochs.items() if k[0] != name}
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
        self.topics[name] = TopicMetadata(
            name, answer.topic_id, answer.is_internal, tuple(partitions)
        )
        self.names[answer.topic_id] = name

    def forget(self, name: str) -> None:
        """Remove a topic that does not exist any more."""
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
        """The leader's node id; -1 without a leader, or while its epoch is older than required."""
        entry = self.partition(topic, partition)
        if entry is None or (topic, partition) in self.required_epochs:
            return NO_LEADER
        return entry.leader

    def move_leader(self, topic: str, partition: int, leader: int, epoch: int) -> bool:
        """Apply the leader that a Produce or Fetch response names (KIP-951). True if it is new."""
        entry = self.partition(topic, partition)
        if entry is None or leader < 0 or epoch <= entry.leader_epoch:
            return False
        if leader not in self.brokers:
            return False
        old = self.topics[topic]
        changed = entry._replace(leader=leader, leader_epoch=epoch)
        partitions = (*old.partitions[:partition], changed, *old.partitions[partition + 1 :])
        self.topics[topic] = TopicMetadata(old.name, old.topic_id, old.is_internal, partitions)
        self._check_required()
        self.updates += 1
        return True

    def require_epoch(self, topic: str, partition: int, epoch: int) -> None:
        """An offset has this leader epoch: a broker that knows an older one lags behind (KIP-320).

        The partition has no leader until a response names one with this epoch or a newer one, or
        until `drop_required_epoch`.
        """
        if epoch >= 0 and not self._has_epoch(topic, partition, epoch):
            known = self.required_epochs.get((topic, partition), -1)
            self.required_epochs[topic, partition] = max(known, epoch)

    def drop_required_epoch(self, topic: str, partition: int) -> None:
        """Undo `require_epoch`: the known leader counts, whatever its epoch."""
        self.required_epochs.pop((topic, partition), None)

    def _check_required(self) -> None:
        for (topic, partition), epoch in list(self.required_epochs.items()):
            if self._has_epoch(topic, partition, epoch):
                del self.required_epochs[topic, partition]

    def _has_epoch(self, topic: str, partition: int, epoch: int) -> bool:
        entry = self.partition(topic, partition)
        return entry is not None and not -1 < entry.leader_epoch < epoch  # -1: older than epochs

    def add_broker(self, broker: Broker) -> None:
        """Add the address in a response's node endpoints (KIP-951)."""
        self.brokers = {**self.brokers, broker.node_id: broker}

    def describe_cluster(self) -> ClusterDescription:
        """As `Admin.describe_cluster` returns it."""
        rows = tuple(self.brokers[node] for node in sorted(self.brokers))
        return ClusterDescription(self.cluster_id, self.controller_id, rows)


class _StaleCount(NamedTuple):
    since: float
    last: float
    responses: int


class StaleMetadata:
    """Decides when to stop waiting for a leader epoch that no broker knows.

    Brokers that lag behind learn the epoch in time. But no broker ever will if the topic was
    deleted and created again: its epochs begin with 0. Java's consumer waits without end.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._counts: dict[tuple[tuple[str, int], int], _StaleCount] = {}

    def on_response(
        self, required: Mapping[tuple[str, int], int], brokers: int, now: float
    ) -> tuple[int, list[tuple[str, int]]]:
        """Call it after a metadata response at `now` (monotonic s) that left `required` epochs.

        Gives the highest number of such responses for one partition, and the partitions to wait for
        no longer: those for which more than `brokers` responses in `timeout_s` had older epochs.
        """
        # Counts from before a pause of the caller say nothing; a rebalance is no such pause.
        self._counts = {k: v for k, v in self._counts.items() if now - v.last < self._timeout_s}
        most, given_up = 0, []
        for place, epoch in required.items():
            since, _, responses = self._counts.get((place, epoch), _StaleCount(now, now, 0))
            responses += 1
            self._counts[place, epoch] = _StaleCount(since, now, responses)
            most = max(most, responses)
            if now - since >= self._timeout_s and responses > brokers:
                given_up.append(place)
        return most, given_up
