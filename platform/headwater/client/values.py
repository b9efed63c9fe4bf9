"""The values that the client returns: records, offsets, descriptions and statistics, as tuples."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

Headers = list[tuple[str, bytes | None]]
"""(key, value) pairs in the order sent; a key may occur twice."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a record was written. `timestamp` in ms. `offset` is -1 with acks=0, and when the
    broker answered that it has the batch already."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """One record as consumed. `timestamp` in ms; `timestamp_type` 0: create time, 1: log append
    time."""

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
    """The first offset whose record's timestamp (ms) is at or after the requested one."""

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and the leader epoch of the record before it
    (-1: not known)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A group, and the member that reads for it (KIP-447). Without a member the coordinator does
    not check that the partitions are still assigned to the one that read them."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class ClientQuotas(NamedTuple):
    """The quotas of one entity, as {"client-id": "app"}; the name None is the default entity."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class Broker(NamedTuple):
    """A live broker's address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionDescription(NamedTuple):
    """One partition in the cluster's metadata; `leader` is -1 while it has none."""

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
    """The cluster's id, controller and live brokers. `controller_id` is -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


class NewTopic(NamedTuple):
    """A topic to create; -1: the broker's default. `assignments`: partition -> its replicas."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] | None = None
    assignments: dict[int, list[int]] | None = None


class ConfigEntry(NamedTuple):
    """One configuration value. `is_default`: neither the resource nor a broker sets it."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    is_sensitive: bool
    config_type: str = "unknown"
    documentation: str | None = None
    default: str | None = None
    """The value when nothing sets it."""


class PartitionReassignment(NamedTuple):
    """A reassignment in progress: all replicas now, those being added and those being removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ReplicaInfo(NamedTuple):
    """One replica in a log dir; `size` in bytes. `is_future`: a copy that will replace the replica
    in another log dir (KIP-113)."""

    size: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A broker's log dir; `error` is the code's name while it is offline. -1 bytes: not known."""

    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, ReplicaInfo]


class ProducerDescription(NamedTuple):
    """The state that a partition keeps of an idempotent producer."""

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
    """A member of a group and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int = -1
    """Its epoch (KIP-848); -1 in the classic protocol."""
    target: tuple[TopicPartition, ...] | None = None
    """What it is to have once the group has settled; None in the classic protocol."""


class GroupDescription(NamedTuple):
    """A group with its state and members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    group_type: str = "classic"
    """"consumer": the coordinator assigns (KIP-848)."""
    epoch: int = -1
    """Rises with the members and their subscriptions; -1 in the classic protocol."""
    target_epoch: int = -1
    """The group's epoch when the members' targets were made."""


class SendSummary(NamedTuple):
    """The outcome of `send_table`: rows, bytes, batches, and the offsets in each partition."""

    rows: int
    bytes_sent: int
    batches: int
    offsets: dict[int, tuple[int, int]]
    """partition -> (first offset, end offset exclusive) of this table's rows. The range may contain
    records of other producers."""


class Outage(NamedTuple):
    """Something that a client cannot reach, and for how long."""

    subject: str
    """A partition ("flights-3"), a group ("group delays") or "cluster"."""
    error: str
    """The name of the Kafka error code."""
    cause: str
    detail: str
    seconds: float


class Unacked(NamedTuple):
    """Records of one batch that are neither acknowledged nor failed."""

    topic: str
    partition: int
    records: int
    size: int
    """Bytes before compression, at most."""
    state: Literal["not sent", "in doubt"]
    """ "in doubt": sent at least once, so that the broker may have written them."""
    seconds: float
    """Since the first of them was queued."""
    cause: str
    """What they wait for."""


class ProducerStatistics(NamedTuple):
    """What a producer has done since it was created, and what it waits for now."""

    records_sent: int
    """Acknowledged; with acks=0 handed to the connection."""
    bytes_sent: int
    """Of acknowledged batches, as sent."""
    batches_sent: int
    records_failed: int
    batches_retried: int
    batches_split: int
    requests_sent: int
    request_latency_ms_avg: float
    request_latency_ms_max: float
    records_waiting: int
    """Neither acknowledged nor failed."""
    buffer_bytes: int
    """How much of `buffer_memory` is in use."""
    buffer_bytes_max: int
    blocked_threads: int
    """Threads in `send` that wait for room."""
    requests_in_flight: dict[int, int]
    """Node id -> requests without a reply."""
    outages: list[Outage]


class PartitionStatistics(NamedTuple):
    """What a consumer knows of one partition that it reads."""

    position: int | None
    """The next offset to return; None while it is not known."""
    high_watermark: int
    """Of the last fetch; -1 before it. So are the other two."""
    last_stable_offset: int
    log_start_offset: int
    lag: int | None
    """Records between the position and the end that is visible at the isolation level."""
    buffered_bytes: int
    is_paused: bool


class ConsumerStatistics(NamedTuple):
    """What a consumer has done since it was created, and what it waits for now."""

    records_consumed: int
    """Records that were returned; `poll_arrow` counts rows."""
    bytes_fetched: int
    """Record batches as fetched."""
    fetches: int
    """Fetch responses."""
    fetch_latency_ms_avg: float
    fetch_latency_ms_max: float
    commits: int
    rebalances: int
    partitions: dict[TopicPartition, PartitionStatistics]
    outages: list[Outage]
