"""Limits and settings that handlers use, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.config.layers import BrokerSettings

SENDFILE_MIN_BYTES = 32 * 1024
"""Slices at least this large go by sendfile; smaller ones are read and joined (measured)."""
FETCH_SESSION_EVICTION_MS = 120_000
"""A session idle for this long may give its slot to another (KIP-227)."""
COLD_PROBE_BYTES = 128 * 1024
"""One byte in this many is probed for presence in the page cache: the kernel's read-ahead."""
WARM_BYTES_MAX = 1024 * 1024
"""How much a disk thread reads ahead of one cold fetch."""
HOT_TAIL_BYTES = 4 * 1024 * 1024
"""The end of an open log counts as hot without a probe."""
REMOTE_READS_PER_FETCH = 4
"""How many partitions of one fetch are served from the table at once; the others come next."""
PARTITIONS_PER_REPLY_MAX = 2000
"""Of one DescribeTopicPartitions reply (max.request.partition.size.limit)."""


@dataclass(frozen=True, slots=True)
class InternalTopicConfig:
    """How an internal topic is created."""

    num_partitions: int = 50
    replication_factor: int = 3
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Broker settings that handlers read (Kafka's names in the comments)."""

    auto_create_topics: bool = True  # auto.create.topics.enable
    num_partitions: int = 1  # num.partitions
    default_replication_factor: int = 1  # default.replication.factor
    min_insync_replicas: int = 1  # min.insync.replicas
    fetch_max_bytes: int = 55 * 1024 * 1024  # fetch.max.bytes
    fetch_session_slots: int = 1000  # max.incremental.fetch.session.cache.slots
    internal_topics: Mapping[str, InternalTopicConfig] = field(default_factory=dict)
    """By name: offsets.topic.*, transaction.state.log.*."""
    internal_topic_wait_ms: int = 3_000
    """How long FindCoordinator waits for the internal topic that it had created; then the client
    asks again."""
    awaits_restored_groups: bool = False
    """`headwater restore` has not committed the groups' offsets yet."""
    request_timeout_ms: int = 30_000  # request.timeout.ms
    selects_by_rack: bool = False  # replica.selector.class
    table_bases: tuple[str, ...] = ()  # headwater.tables.allowed.uris
    settings: BrokerSettings = field(default_factory=BrokerSettings)
    """The broker's settings as given, for DescribeConfigs."""
