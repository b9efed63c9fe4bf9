"""Shares the buckets among the processes of a mirror: a group on the target assigns them."""

from __future__ import annotations

from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.assignors import assignors_named
from headwater.client.core.classic_group import ClassicMember
from headwater.client.group_membership import GroupMembership
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import TopicPartition
from headwater.mirror.config import MirrorConfig

ASSIGNOR = "cooperative-sticky"
"""A rebalance stops only the buckets that move."""
SESSION_TIMEOUT_MS = 10_000
"""A process that died keeps its buckets for so long."""
HEARTBEAT_MS = 2_000
MAX_POLL_MS = 60_000


def group_membership(cluster: Cluster, config: MirrorConfig, topic: str) -> GroupMembership:
    """A member of the mirror's group, subscribed to the topic of positions."""
    options = _options(config)
    watch = TopicWatch(cluster, options)
    watch.subscribe([topic], None)
    member = ClassicMember(
        config.group_id,
        options.partition_assignment_strategy,
        session_timeout_ms=options.session_timeout_ms,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        group_instance_id=config.instance_id,
    )
    return GroupMembership(cluster, options, member, watch, lambda: None)


def buckets_of(partitions: list[TopicPartition]) -> list[int]:
    """The buckets of an assignment."""
    return sorted(tp.partition for tp in partitions)


def _options(config: MirrorConfig) -> ConsumerOptions:
    cluster = config.target.options
    return ConsumerOptions(
        bootstrap_servers=config.target.bootstrap,
        group_id=config.group_id,
        group_instance_id=config.instance_id,
        client_id=cluster.client_id,
        client_rack="",
        auto_offset_reset=None,
        isolation_level=1,
        enable_auto_commit=False,
        auto_commit_interval_ms=0,
        partition_assignment_strategy=assignors_named((ASSIGNOR,)),
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=MAX_POLL_MS,
        max_poll_records=1,
        fetch_min_bytes=1,
        fetch_max_bytes=1,
        fetch_max_wait_ms=1,
        max_partition_fetch_bytes=1,
        check_crcs=True,
        exclude_internal_topics=False,
        allow_auto_create_topics=False,
        consumer_timeout_ms=None,
        request_timeout_ms=cluster.request_timeout_ms,
        retry_backoff_ms=cluster.retry_backoff_ms,
        retry_backoff_max_ms=cluster.retry_backoff_max_ms,
        metadata_max_age_ms=cluster.metadata_max_age_ms,
        default_api_timeout_ms=cluster.default_api_timeout_ms,
        socket_connection_setup_timeout_ms=cluster.connect_timeout_ms,
        bootstrap_timeout_ms=10_000,
        server_error_timeout_ms=10_000,
        stale_leader_timeout_ms=30_000,
        outage_report_ms=5_000,
        on_error=None,
        credentials=cluster.credentials,
    )
