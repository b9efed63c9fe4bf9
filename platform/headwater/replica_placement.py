"""Replica placement of new partitions, by Kafka's algorithm. Pure.

Leaders are assigned round-robin from a start broker. The other replicas follow at a shift that
grows by one with each round, so that a dead broker's load spreads over all others. With racks
(KIP-36) brokers are taken from the racks in turn, and the replicas of a partition are in different
racks as far as there are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.errors import ErrorCode, KafkaError


def assign(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Partition -> replicas, leader first. `brokers` are in round-robin order.

    Raises KafkaError (INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR).
    """
    _check(len(brokers), partitions, replication_factor)
    count = len(brokers)
    placed: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        others = (_further(first, shift, j, count) for j in range(replication_factor - 1))
        placed[partition] = (brokers[first], *(brokers[i] for i in others))
    return placed


def assign_by_rack(
    racks: Mapping[int, str],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Like `assign`, with the rack of every broker."""
    _check(len(racks), partitions, replication_factor)
    order = alternate_racks(racks)
    count = len(order)
    rack_count = len(set(racks.values()))
    placed: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        chosen = [order[first]]
        seen = {racks[order[first]]}
        step = 0
        while len(chosen) < replication_factor:
            broker_id = order[_further(first, shift * rack_count, step, count)]
            step += 1
            if broker_id in chosen:
                continue
            # Skip brokers of used racks while there is a rack without a replica.
            if racks[broker_id] in seen and len(seen) < rack_count:
                continue
            chosen.append(broker_id)
            seen.add(racks[broker_id])
        placed[partition] = tuple(chosen)
    return placed


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers of all racks in turn, racks and brokers in sorted order."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(q) for q in queues), default=0)
    return [q[i] for i in range(longest) for q in queues if i < len(q)]


def _further(first: int, shift: int, step: int, count: int) -> int:
    return (first + 1 + (shift + step) % (count - 1)) % count


def _check(brokers: int, partitions: int, replication_factor: int) -> None:
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "number of partitions must be larger than 0")
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor must be larger than 0"
        )
    if replication_factor > brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor: {replication_factor} larger than available brokers: {brokers}",
        )
