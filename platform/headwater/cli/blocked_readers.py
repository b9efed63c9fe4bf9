"""Partitions whose readers of read_committed wait, from the brokers' status documents. Pure.

A partition's leader names the producer that blocks it; the coordinator's document has its
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SHOWN_AFTER_MS = 3_000
"""Most transactions last milliseconds: tables show only those that do not."""
ONGOING = "Ongoing"


@dataclass(frozen=True, slots=True)
class BlockedRow:
    """A partition with records that readers of read_committed do not get yet."""

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    producer_id: int | None
    """None: all transactions are decided, and a marker is not replicated yet."""
    producer_epoch: int | None
    age_ms: int
    """Since the transaction began; without a coordinator, since the producer's last batch."""
    transactional_id: str | None = None
    """None: no coordinator knows the producer id. So are the fields below."""
    state: str | None = None
    coordinator: int | None = None
    times_out_in_ms: int | None = None
    """None: never, or its end is decided."""
    principal: str | None = None
    client_id: str | None = None
    client_host: str | None = None


def blocked_rows(documents: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[BlockedRow, ...]:
    """(broker id, its document) -> blocked partitions, the longest blocked first."""
    known = list(documents)
    owners = {
        row["producer_id"]: (broker_id, row)
        for broker_id, document in known
        for row in document.get("transactions", ())
    }
    rows = [
        _row(row, owners.get(row["producer_id"]), document["now_ms"])
        for _, document in known
        for row in document.get("blocked", ())
    ]
    return tuple(sorted(rows, key=lambda row: (-row.age_ms, row.topic, row.partition)))


def _row(
    blocked: Mapping[str, Any], owner: tuple[int, Mapping[str, Any]] | None, now_ms: int
) -> BlockedRow:
    known: dict[str, Any] = {}
    began_ms = blocked["last_timestamp_ms"]
    if owner is not None:
        coordinator, transaction = owner
        if transaction["start_ms"] >= 0:
            began_ms = transaction["start_ms"]
        timeout_ms = transaction["timeout_ms"]
        times_out = transaction["state"] == ONGOING and timeout_ms is not None
        known = {
            "transactional_id": transaction["transactional_id"],
            "state": transaction["state"],
            "coordinator": coordinator,
            "times_out_in_ms": transaction["start_ms"] + timeout_ms - now_ms if times_out else None,
            "principal": transaction["principal"],
            "client_id": transaction["client_id"],
            "client_host": transaction["client_host"],
        }
    return BlockedRow(
        topic=blocked["topic"],
        partition=blocked["partition"],
        last_stable_offset=blocked["last_stable_offset"],
        high_watermark=blocked["high_watermark"],
        producer_id=blocked["producer_id"],
        producer_epoch=blocked["producer_epoch"],
        age_ms=0 if began_ms is None else max(0, now_ms - began_ms),
        **known,
    )
