"""Which partitions `headwater topics describe` shows, by Kafka's rules; replicas that a move adds
need not be in sync yet (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headwater.client.admin.client import Admin
from headwater.client.values import PartitionDescription, TopicDescription, TopicPartition
from headwater.errors import KafkaError

MOVES_TIMEOUT_MS = 5_000
"""So long the controller is asked for moves; without an answer none counts as under way."""

Adding = Mapping[TopicPartition | tuple[str, int], int]
"""How many of a partition's replicas a move adds; 0 where it is not named."""
Filter = Callable[[PartitionDescription, int, int], bool]
"""(partition, replicas that a move adds, its min.insync.replicas) -> whether to show it."""

FILTERS: dict[str, Filter] = {
    "under_replicated": lambda p, adding, _: len(p.isr) < len(p.replicas) - adding,
    "unavailable": lambda p, _adding, _: p.leader < 0,
    "under_min_isr": lambda p, _, least: len(p.isr) < least,
    "at_min_isr": lambda p, _, least: len(p.isr) == least,
}


def adding_replicas(admin: Admin, topics: Iterable[TopicDescription]) -> Adding:
    """Of the partitions that are moved; the controller is asked only when one of these is not
    wholly in sync."""
    short = [
        TopicPartition(topic.name, p.partition)
        for topic in topics
        for p in topic.partitions
        if len(p.isr) < len(p.replicas)
    ]
    if not short:
        return {}
    try:
        moves = admin.list_partition_reassignments(short, timeout_ms=MOVES_TIMEOUT_MS)
    except KafkaError:
        return {}
    return {tp: len(move.adding_replicas) for tp, move in moves.items()}
