"""Sinks of epoch transactions (docs/epochs.md) in metrics and in the status document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater.wire.epoch_values import EpochState, EpochStatus, SinkKind
from headwater_broker.coordinator.transaction.sink_table import OpenEpoch, SinkTable
from headwater_broker.telemetry.open_transactions import ROWS_MAX


def since_ms(epoch: OpenEpoch) -> int:
    """When the epoch entered its state: its first join, or its decision."""
    return epoch.start_ms if epoch.decision is None else epoch.decision.decided_ms


def open_epochs(tables: Iterable[SinkTable]) -> list[OpenEpoch]:
    """The epochs coordinated here that are not complete."""
    return [e for table in tables for epochs in table.epochs.values() for e in epochs.values()]


def epoch_metrics(
    tables: Sequence[SinkTable], replies: Counter[tuple[str, EpochStatus]], now_ms: int
) -> Iterator[Metric]:
    """Sinks coordinated here, and their epochs. `replies`: (request, status) -> count."""
    kinds = Counter(sink.kind for table in tables for sink in table.sinks.values())
    sinks = GaugeMetricFamily(
        "headwater_sinks",
        "Sinks of epoch transactions coordinated here. batch: of one batch write, forgotten later.",
        labels=["kind"],
    )
    for kind in SinkKind:
        sinks.add_metric([kind.name.lower()], kinds[kind])
    by_state: dict[EpochState, list[int]] = {state: [] for state in EpochState}
    for epoch in open_epochs(tables):
        by_state[epoch.state].append(since_ms(epoch))
    epochs = GaugeMetricFamily(
        "headwater_epochs",
        "Epochs coordinated here that are not complete, by state.",
        labels=["state"],
    )
    oldest = GaugeMetricFamily(
        "headwater_oldest_epoch_seconds",
        "How long the oldest of them is in its state; 0 without one. A prepared epoch has no "
        "timeout: it waits for its query or an operator.",
        labels=["state"],
    )
    for state, times_ms in by_state.items():
        epochs.add_metric([state.label], len(times_ms))
        age_ms = max(0, now_ms - min(times_ms)) if times_ms else 0
        oldest.add_metric([state.label], age_ms / 1000)
    answered = CounterMetricFamily(
        "headwater_epoch_replies",
        "Replies to requests about epochs, by their status.",
        labels=["request", "status"],
    )
    for (request, status), count in sorted(replies.items()):
        answered.add_metric([request, status.name], count)
    yield from (sinks, epochs, oldest, answered)


def oldest_epochs(tables: Iterable[SinkTable]) -> list[OpenEpoch]:
    """The epochs that are in their state for the longest."""
    return nsmallest(ROWS_MAX, open_epochs(tables), key=since_ms)


def describe_epoch(epoch: OpenEpoch) -> dict[str, Any]:
    """An epoch's row of the status document."""
    return {
        "sink": epoch.sink,
        "epoch": epoch.key.epoch,
        "ticket": epoch.key.ticket,
        "state": epoch.state.label,
        "since_ms": since_ms(epoch),
        "deadline_ms": epoch.deadline_ms if epoch.state is EpochState.OPEN else None,
        "participants": len(epoch.members),
        "markers_due": epoch.partitions if epoch.is_decided else 0,
    }
