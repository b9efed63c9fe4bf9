"""Chooses what keeps a consumer in its group, by `group_protocol`."""

from __future__ import annotations

from collections.abc import Callable

from headwater.client.classic_coordinator import ClassicCoordinator
from headwater.client.cluster import Cluster
from headwater.client.consumer_coordinator import ConsumerCoordinator
from headwater.client.consumer_membership import ConsumerMembership
from headwater.client.consumer_options import MODERN, ConsumerOptions
from headwater.client.core.classic_group import ClassicMember
from headwater.client.core.consumer_group import ConsumerMember
from headwater.client.engine_host import EngineHost
from headwater.client.group_membership import GroupMembership
from headwater.client.modern_coordinator import ModernCoordinator
from headwater.client.subscription_state import SubscriptionState
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import TopicPartition
from headwater.ids import id_text


def make_coordinator(
    cluster: Cluster,
    options: ConsumerOptions,
    watch: TopicWatch,
    state: SubscriptionState,
    host: EngineHost,
    assign: Callable[[list[TopicPartition]], None],
) -> ConsumerCoordinator | None:
    """The coordinator of a consumer's group; None without a `group_id`."""
    if options.group_id is None:
        return None
    if options.group_protocol == MODERN:
        member_id = id_text(cluster.entropy.uuid())
        modern = ConsumerMember(options.group_id, member_id, options.group_instance_id)
        link = ConsumerMembership(cluster, options, modern, watch, state.notify)
        return ModernCoordinator(link, state, host, options, cluster.clock, assign)
    member = ClassicMember(
        options.group_id,
        options.partition_assignment_strategy,
        session_timeout_ms=options.session_timeout_ms,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        group_instance_id=options.group_instance_id,
    )
    membership = GroupMembership(cluster, options, member, watch, state.notify)
    return ClassicCoordinator(membership, state, host, options, cluster.clock, assign)
