"""Open transactions in the status document: partitions that they block, and their coordinators.

A leader knows producer ids and offsets, a coordinator transactional ids and clients. Each broker's
document has both; their readers join them by producer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Any

from headwater_broker.coordinator.transaction.transaction import Transaction
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_manager import ReplicaManager

ROWS_MAX = 300
"""Blocked partitions, and open transactions, in one document; the oldest ones."""


def blocked_partitions(replicas: ReplicaManager) -> Iterator[Partition]:
    """Partitions led here whose readers of read_committed stop before the high watermark."""
    for partition in replicas.partitions.values():
        if partition.is_leader and partition.last_stable_offset < partition.high_watermark:
            yield partition


def describe_blocked(partition: Partition) -> dict[str, Any]:
    """A blocked partition, and the producer of the transaction that holds its last stable offset.

    The producer is null when all transactions are decided and a marker is not replicated yet.
    """
    producers = partition.log.producers
    producer_id = next(iter(producers.open_transactions), None)
    entry = None if producer_id is None else producers.entries[producer_id]
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "last_stable_offset": partition.last_stable_offset,
        "high_watermark": partition.high_watermark,
        "producer_id": producer_id,
        "producer_epoch": None if entry is None else entry.epoch,
        "first_offset": None if entry is None else entry.transaction_first_offset,
        "last_timestamp_ms": None if entry is None else entry.last_timestamp,
    }


def oldest(transactions: Iterable[Transaction]) -> list[Transaction]:
    """The open transactions that began first."""
    return nsmallest(ROWS_MAX, transactions, key=lambda row: row.start_ms)


def describe_open(transaction: Transaction) -> dict[str, Any]:
    """An open transaction's row of the status document. A participant of an epoch has no timeout
    of its own."""
    times_out = not transaction.is_two_phase and transaction.membership is None
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state.label,
        "start_ms": transaction.start_ms,
        "last_update_ms": transaction.last_update_ms,
        "timeout_ms": transaction.timeout_ms if times_out else None,
        "principal": transaction.client.principal,
        "client_id": transaction.client.client_id,
        "client_host": transaction.client.host,
        "markers_due": len(transaction.partitions) if transaction.state.is_preparing else 0,
    }
