"""Expiration of committed offsets (offsets.retention.minutes, KIP-211). Pure."""

from __future__ import annotations

from collections.abc import Container

from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.states import GroupState
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.records import TopicPartition
from headwater_broker.coordinator.group.table import AnyGroup


def expired(
    group: AnyGroup, now: Now, config: GroupConfig, pending: Container[TopicPartition]
) -> list[TopicPartition]:
    """Partitions whose offset has expired (KIP-211). An offset does not expire while a member reads
    its topic, or while an open transaction may change it (`pending`).

    The time counts from when a group became empty; without any members ever, from each commit.
    """
    began_ms = _empty_since_ms(group, now)
    subscribed = set() if began_ms is not None else group.subscribed_topics()
    if subscribed is None or (began_ms is None and isinstance(group, ConsumerGroup)):
        return []
    found = []
    for key, value in group.offsets.items():
        if key[0] in subscribed or key in pending:
            continue
        if value.expire_timestamp >= 0:
            is_old = now.wall_ms >= value.expire_timestamp
        else:
            began = max(value.commit_timestamp, -1 if began_ms is None else began_ms)
            is_old = now.wall_ms - began >= config.offsets_retention_ms
        if is_old:
            found.append(key)
    return found


def _empty_since_ms(group: AnyGroup, now: Now) -> int | None:
    """When the group became empty; -1: it never had members; None: it has some.

    A consumer group's log does not say: it counts from when this coordinator first saw it empty, so
    that a group whose members were away for a moment keeps the offsets of quiet topics.
    """
    if isinstance(group, ConsumerGroup):
        if group.members:
            group.empty_since_ms = -1
            return None
        if group.empty_since_ms < 0:
            group.empty_since_ms = now.wall_ms
        return group.empty_since_ms
    if not isinstance(group, Group) or not group.is_in(GroupState.EMPTY):
        return None
    return group.state_timestamp_ms if group.protocol_type else -1
