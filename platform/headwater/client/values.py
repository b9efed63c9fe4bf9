"""What the client hands to its callers: small values with Kafka's words."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

Headers = list[tuple[str, bytes | None]]
"""In the order they were sent; a key may come twice."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a sent record went. `offset` is -1 with acks=0, or when the broker saw a duplicate."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """One record as consumed. `timestamp_type` is 0 for create time, 1 for log append time."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ClientQuotas(NamedTuple):
    """The quotas of one entity: {"client-id": "app"}, where the name None is the default."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class Broker(NamedTuple):
    """A live broker's address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionDescription(NamedTuple):
    """One partition as metadata tells it; `leader` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic with its partitions in order."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """Who is in the cluster. `controller_id` is -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


class NewTopic(NamedTuple):
    """A topic to create; -1 takes the broker's default. `assignments`: partition -> replicas."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] | None = None
    assignments: dict[int, list[int]] | None = None


class ConfigEntry(NamedTuple):
    """One configuration value. `is_default` when nothing set it for this resource."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    is_sensitive: bool
    config_type: str = "unknown"
    documentation: str | None = None
    default: str | None = None
    """What counts when nothing sets it anywhere."""


class PartitionReassignment(NamedTuple):
    """A move under way: all replicas now, those that come and those that leave."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ReplicaInfo(NamedTuple):
    """One replica in a data folder. `is_future`: a copy that is to replace the one elsewhere."""

    size: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A broker's data folder; `error` names why it is offline. -1 bytes: not known."""

    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, ReplicaInfo]


class ProducerDescription(NamedTuple):
    """An idempotent producer as a partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int | None


class GroupListing(NamedTuple):
    """A group as its coordinator lists it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class MemberDescription(NamedTuple):
    """A member of a group and what it was assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group, its state and members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]


class SendSummary(NamedTuple):
    """What `send_table` did: rows and bytes, and the offsets each partition took."""

    rows: int
    bytes_sent: int
    batches: int
    offsets: dict[int, tuple[int, int]]
    """partition -> (first offset, end offset exclusive) of this table's rows; the range may
    hold other producers' records too."""
