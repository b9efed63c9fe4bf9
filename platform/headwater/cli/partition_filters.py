"""The partition filters of `headwater topics describe`, with Kafka's definitions.

Replicas that a reassignment adds need not be in sync yet (KIP-455).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headwater.client.admin.client import Admin
from headwater.client.values import PartitionDescription, TopicDescription, TopicPartition
from headwater.errors import KafkaError

REASSIGNMENTS_TIMEOUT_MS = 5_000
"""Time limit of the controller's answer; without one, no reassignment counts as in progress."""

Adding = Mapping[TopicPartition | tuple[str, int], int]
"""Partition -> number of replicas that a reassignment adds; 0 for partitions that are absent."""
Filter = Callable[[PartitionDescription, int, int], bool]
"""(partition, replicas that a reassignment adds, min.insync.replicas) -> whether to show it."""

FILTERS: dict[str, Filter] = {
    "under_replicated": lambda p, adding, _: len(p.isr) < len(p.replicas) - adding,
    "unavailable": lambda p, _adding, _: p.leader < 0,
    "under_min_isr": lambda p, _, least: len(p.isr) < least,
    "at_min_isr": lambda p, _, least: len(p.isr) == least,
}


def adding_replicas(admin: Admin, topics: Iterable[TopicDescription]) -> Adding:
    """The replicas that reassignments add to these topics. Only partitions with a replica out of
    sync are asked for."""
    short = [
        TopicPartition(topic.name, p.partition)
        for topic in topics
        for p in topic.partitions
        if len(p.isr) < len(p.replicas)
    ]
    if not short:
        return {}
    try:
        moves = admin.list_partition_reassignments(short, timeout_ms=REASSIGNMENTS_TIMEOUT_MS)
    except KafkaError:
        return {}
    return {tp: len(move.adding_replicas) for tp, move in moves.items()}
