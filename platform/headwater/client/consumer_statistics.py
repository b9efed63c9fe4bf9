"""The statistics of a consumer, and the same as metrics with Kafka's names."""

from __future__ import annotations

from headwater.client.consumer_options import ISOLATION_LEVELS, ConsumerOptions
from headwater.client.core.partition_fetch_state import PartitionFetchState
from headwater.client.fetcher import FetchCounters
from headwater.client.group_link import GroupLink
from headwater.client.outages import OutageLog
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import ConsumerStatistics, PartitionStatistics


def consumer_statistics(
    state: SubscriptionState,
    options: ConsumerOptions,
    fetches: FetchCounters,
    membership: GroupLink | None,
    outages: OutageLog,
    records_consumed: int,
) -> ConsumerStatistics:
    """The statistics of one consumer now."""
    is_committed = options.isolation_level == ISOLATION_LEVELS["read_committed"]
    with state.condition:
        partitions = {
            tp: _partition(entry, is_committed=is_committed)
            for tp, entry in state.partitions.items()
        }
    average_s = fetches.latency_sum_s / fetches.fetches if fetches.fetches else 0.0
    return ConsumerStatistics(
        records_consumed=records_consumed,
        bytes_fetched=fetches.bytes_fetched,
        fetches=fetches.fetches,
        fetch_latency_ms_avg=average_s * 1000,
        fetch_latency_ms_max=fetches.latency_max_s * 1000,
        commits=0 if membership is None else membership.commits,
        rebalances=0 if membership is None else membership.rebalances,
        partitions=partitions,
        outages=outages.outages(),
    )


def _partition(entry: PartitionFetchState, *, is_committed: bool) -> PartitionStatistics:
    end = entry.last_stable_offset if is_committed else entry.high_watermark
    is_known = entry.position is not None and end >= 0
    return PartitionStatistics(
        position=entry.position,
        high_watermark=entry.high_watermark,
        last_stable_offset=entry.last_stable_offset,
        log_start_offset=entry.log_start_offset,
        lag=max(0, end - (entry.position or 0)) if is_known else None,
        buffered_bytes=entry.unread_bytes,
        is_paused=entry.is_paused,
    )


def consumer_metrics(now: ConsumerStatistics) -> dict[str, float]:
    """Statistics by the names of Kafka's consumer metrics (consumer-fetch-manager-metrics)."""
    lags = [row.lag for row in now.partitions.values() if row.lag is not None]
    return {
        "records-consumed-total": now.records_consumed,
        "bytes-consumed-total": now.bytes_fetched,
        "fetch-total": now.fetches,
        "fetch-latency-avg": now.fetch_latency_ms_avg,
        "fetch-latency-max": now.fetch_latency_ms_max,
        "records-lag-max": max(lags, default=0),
        "commit-total": now.commits,
        "rebalance-total": now.rebalances,
        "assigned-partitions": len(now.partitions),
    }
