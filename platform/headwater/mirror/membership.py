"""Shares the buckets among the processes of a mirror: a group on the target assigns them."""

from __future__ import annotations

import inspect

from headwater.client.classic_membership import ClassicMembership
from headwater.client.cluster import Cluster
from headwater.client.consumer import Consumer
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.classic_group import ClassicMember
from headwater.client.option_rules import checked
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import TopicPartition
from headwater.mirror.config import MirrorConfig

ASSIGNOR = "cooperative-sticky"
"""A rebalance stops only the buckets that move."""
SESSION_TIMEOUT_MS = 10_000
"""A process that died keeps its buckets for so long."""
HEARTBEAT_MS = 2_000
MAX_POLL_MS = 60_000


def group_membership(cluster: Cluster, config: MirrorConfig, topic: str) -> ClassicMembership:
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
    return ClassicMembership(cluster, options, member, watch, lambda: None)


def buckets_of(partitions: list[TopicPartition]) -> list[int]:
    """The buckets of an assignment."""
    return sorted(tp.partition for tp in partitions)


def _options(config: MirrorConfig) -> ConsumerOptions:
    """Those of a `Consumer`, with its defaults for all that a member without fetches needs not."""
    cluster = config.target.options
    parameters = inspect.signature(Consumer.__init__).parameters.values()
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    given |= {
        "bootstrap_servers": config.target.servers,
        "group_id": config.group_id,
        "group_instance_id": config.instance_id,
        "client_id": cluster.client_id,
        "partition_assignment_strategy": ASSIGNOR,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "max_poll_interval_ms": MAX_POLL_MS,
        "exclude_internal_topics": False,
        "metadata_max_age_ms": cluster.metadata_max_age_ms,
    }
    return checked("Consumer", ConsumerOptions, given, {})
