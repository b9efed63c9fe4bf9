"""Metric families of transactions: coordinators, markers, verifications, blocked readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater_broker.coordinator.transaction.marker_sender import MarkerTotals
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Transaction
from headwater_broker.coordinator.transaction.transaction_counts import TransactionCounts
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.replica.transaction_verification import TransactionVerifier
from headwater_broker.telemetry.open_transactions import blocked_partitions

LATE_AFTER_S = 10
"""A coordinator that has not ended a transaction so long after its timeout cannot: its own topic,
or a partition that lacks the marker, has too few in-sync replicas or no leader."""
LATE_IN_PARTITION_AFTER_MS = 300_000
"""The same for a partition's leader, which does not know the timeout (KIP-664)."""
STATES = tuple(state for state in TransactionState if state is not TransactionState.DEAD)


def coordinator_metrics(shards: Iterable[TransactionCounts], now_ms: int) -> Iterator[Metric]:
    """Transactional ids coordinated here."""
    by_state: Counter[TransactionState] = Counter()
    still_open: list[Transaction] = []
    for counts in shards:
        by_state.update(counts.by_state)
        still_open += counts.open.values()
    ids = GaugeMetricFamily(
        "headwater_transactional_ids",
        "Transactional ids coordinated here, by state.",
        labels=["state"],
    )
    for state in STATES:
        ids.add_metric([state.label], by_state[state])
    oldest = GaugeMetricFamily(
        "headwater_oldest_open_transaction_seconds",
        "Age of the oldest open transaction coordinated here; 0 without one. two_phase: those that "
        "never time out (KIP-939).",
        labels=["two_phase"],
    )
    for label, two_phase in (("false", False), ("true", True)):
        began = [_began_ms(t) for t in still_open if t.is_two_phase is two_phase]
        oldest.add_metric([label], _seconds_since(began, now_ms))
    due = [t for t in still_open if t.state.is_preparing]
    late = sum(
        now_ms - _began_ms(t) > t.timeout_ms + LATE_AFTER_S * 1000
        for t in still_open
        if not t.is_two_phase and t.membership is None  # an epoch's participants never time out
    )
    gauges = (
        (
            "late_transactions",
            f"Open transactions coordinated here that outlived their timeout by {LATE_AFTER_S} s.",
            late,
        ),
        (
            "transaction_markers_due",
            "Partitions to which coordinators here have yet to write a marker.",
            sum(len(t.partitions) for t in due),
        ),
        (
            "oldest_transaction_marker_seconds",
            "How long the oldest of these markers is due; 0 without one.",
            _seconds_since([t.last_update_ms for t in due], now_ms),
        ),
    )
    yield from (ids, oldest)
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"headwater_{name}", text, value=value)


def _began_ms(transaction: Transaction) -> int:
    """The abort of a transaction without a partition has no start (KIP-890)."""
    has_start = transaction.start_ms >= 0
    return transaction.start_ms if has_start else transaction.last_update_ms


def _seconds_since(times_ms: list[int], now_ms: int) -> float:
    return max(0, now_ms - min(times_ms)) / 1000 if times_ms else 0


def marker_metrics(totals: MarkerTotals) -> Iterator[Metric]:
    """Markers that coordinators here had written."""
    counters = (
        ("markers_written", "Markers of coordinators here that partitions hold.", totals.written),
        (
            "marker_failures",
            "Attempts to write a marker to a partition that failed; they are repeated.",
            totals.failed,
        ),
        (
            "markers_stale",
            "Markers that a partition refused because it knows a newer producer epoch; must be 0.",
            totals.stale_epochs,
        ),
    )
    for name, text, value in counters:
        yield CounterMetricFamily(f"headwater_transaction_{name}", text, value=value)


def verification_metrics(verifier: TransactionVerifier) -> Iterator[Metric]:
    """Questions of leaders here to coordinators (KIP-890)."""
    yield CounterMetricFamily(
        "headwater_transaction_verifications",
        "Partitions that leaders here asked a coordinator about before they appended.",
        value=verifier.verifications_total,
    )
    failed = CounterMetricFamily(
        "headwater_transaction_verification_failures",
        "Those after which the batches were refused.",
        labels=["error"],
    )
    for error, count in sorted(verifier.failures_total.items()):
        failed.add_metric([error], count)
    yield failed


def leader_metrics(replicas: ReplicaManager, max_timeout_ms: int, now_ms: int) -> Iterator[Metric]:
    """Open transactions of the partitions led here, and the readers that they block."""
    open_here = late = 0
    for partition in replicas.partitions.values():
        if partition.is_leader and not partition.log.producers.all_decided:
            open_here += len(partition.log.producers.open_transactions)
            late += has_late_transaction(partition, max_timeout_ms, now_ms)
    yield GaugeMetricFamily(
        "headwater_open_transactions",
        "Open transactions in partitions led here; one counts in each of its partitions.",
        value=open_here,
    )
    yield GaugeMetricFamily(
        "headwater_partitions_with_late_transactions",
        "Partitions led here whose oldest open transaction has no batch since "
        f"transaction.max.timeout.ms and {LATE_IN_PARTITION_AFTER_MS // 60_000} minutes: it hangs.",
        value=late,
    )
    lag = GaugeMetricFamily(
        "headwater_last_stable_offset_lag",
        "Offsets between the last stable offset and the high watermark, of the partitions led here "
        "whose readers of read_committed an open transaction blocks.",
        labels=["topic", "partition"],
    )
    for partition in blocked_partitions(replicas):
        behind = partition.high_watermark - partition.last_stable_offset
        lag.add_metric([partition.topic, str(partition.partition)], behind)
    yield lag


def has_late_transaction(partition: Partition, max_timeout_ms: int, now_ms: int) -> bool:
    """Whether the oldest open transaction hangs (Kafka's PartitionsWithLateTransactionsCount)."""
    producers = partition.log.producers
    producer_id = next(iter(producers.open_transactions), None)
    if producer_id is None:
        return False
    silent_ms = now_ms - producers.entries[producer_id].last_timestamp
    return silent_ms > max_timeout_ms + LATE_IN_PARTITION_AFTER_MS
