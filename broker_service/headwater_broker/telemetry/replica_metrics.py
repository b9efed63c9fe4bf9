"""Metric families of replicas, flushes, compaction and the tiered log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from headwater_broker.log.cleaner import CleanerMeter
from headwater_broker.replica.isr import below_min_isr
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.runtime.histogram import Histogram
from headwater_broker.telemetry.request_metrics import buckets


def replica_metrics(replicas: ReplicaManager) -> Iterator[Metric]:
    """Replicas hosted here, and the ISRs of those that lead."""
    leaders = under = offline = below_min = isr = 0
    for partition in replicas.partitions.values():
        offline += bool(partition.offline_reason)
        if not partition.is_leader:
            continue
        leaders += 1
        isr += len(partition.isr)
        settled = len(partition.replicas) - len(partition.adding_replicas)
        under += len(partition.isr) < settled
        below_min += below_min_isr(
            len(partition.isr), partition.min_insync_replicas, len(partition.replicas)
        )
    gauges = (
        ("partitions", "Replicas hosted here.", len(replicas.partitions)),
        ("leaders", "Partitions led here.", leaders),
        ("isr_members", "In-sync replicas of the partitions led here.", isr),
        (
            "under_replicated_partitions",
            "Led here with an ISR below the replicas; those that a reassignment adds do not count.",
            under,
        ),
        ("under_min_isr_partitions", "Led here below min.insync.replicas.", below_min),
        ("offline_replicas", "Replicas hosted here that are offline.", offline),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"headwater_{name}", text, value=value)
    for name, text, count in (
        ("isr_shrinks", "ISRs that a leader here made smaller.", replicas.isr_shrinks_total),
        ("isr_expands", "ISRs that a leader here made larger.", replicas.isr_expands_total),
    ):
        yield CounterMetricFamily(f"headwater_{name}", text, value=count)


def log_dir_metrics(
    folders: Iterable[tuple[str, bool, object]], disk_space: Callable[[str], tuple[int, int]]
) -> Iterator[Metric]:
    """Data folders (`LogManager.by_folder`), and the disks below them."""
    labels = ["log_dir"]
    online = GaugeMetricFamily(
        "headwater_log_dir_online", "1 while the data folder is in use, 0 after it failed.",
        labels=labels,
    )  # fmt: skip
    total = GaugeMetricFamily(
        "headwater_log_dir_disk_bytes", "Size of the data folder's disk.", labels=labels
    )
    usable = GaugeMetricFamily(
        "headwater_log_dir_usable_bytes", "Bytes free on the data folder's disk.", labels=labels
    )
    for path, is_online, _ in folders:
        online.add_metric([path], int(is_online))
        if not is_online:
            continue
        try:
            size, free = disk_space(path)
        except OSError:  # DescribeLogDirs tells of it; the folder fails at the next write
            continue
        total.add_metric([path], size)
        usable.add_metric([path], free)
    yield from (online, total, usable)


def flush_metrics(flush_times: Histogram) -> Iterator[Metric]:
    """fsyncs of logs (Kafka's LogFlushRateAndTimeMs)."""
    family = HistogramMetricFamily(
        "headwater_log_flush_seconds",
        "Time of an fsync of a log: of flush.ms and flush.messages, of a segment that was rolled, "
        "of a clean stop.",
    )
    family.add_metric([], buckets(flush_times), flush_times.sum_s)
    yield family


def cleaner_metrics(meter: CleanerMeter) -> Iterator[Metric]:
    """Compaction."""
    gauges = (
        ("max_dirty_percent", "Dirty share of the dirtiest log.", 100 * meter.max_dirty_ratio),
        (
            "last_run_timestamp_seconds",
            "When a log was last compacted.",
            meter.last_run_ms / 1000,
        ),
        ("last_run_seconds", "Duration of the last compaction.", meter.last_took_s),
        ("longest_run_seconds", "Duration of the longest compaction.", meter.longest_s),
        (
            "uncleanable_partitions",
            "Logs that cannot be compacted and are left alone.",
            meter.uncleanable_partitions,
        ),
        (
            "uncleanable_bytes",
            "Bytes of the logs that cannot be compacted.",
            meter.uncleanable_bytes,
        ),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"headwater_log_cleaner_{name}", text, value=value)
    counters = (
        ("runs", "Logs compacted.", meter.runs),
        ("failures", "Compactions that failed or were interrupted.", meter.failures),
        ("bytes_read", "Bytes read by compaction.", meter.bytes_read),
        ("bytes_written", "Bytes written by compaction.", meter.bytes_written),
        ("records_dropped", "Records that compaction removed.", meter.records_dropped),
    )
    for name, text, value in counters:
        yield CounterMetricFamily(f"headwater_log_cleaner_{name}", text, value=value)
