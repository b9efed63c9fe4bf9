"""The metrics of one process of a mirror: lag, what is stopped, what was copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater.mirror.bucket import Bucket
from headwater.mirror.service import MirrorService

PARTITION = ("mirror", "topic", "partition")
BUCKET = ("mirror", "bucket")


class MirrorCollector:
    """Reads a running service at each scrape; nothing is asked of the clusters."""

    def __init__(self, service: MirrorService) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """No families: they are those of `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, of the buckets that this process has."""
        yield from families(self._service.config.mirror_id, dict(self._service.buckets))


def families(mirror_id: str, buckets: Mapping[int, Bucket]) -> Iterator[Metric]:
    """The families of these buckets."""
    lag = GaugeMetricFamily(
        "headwater_mirror_lag_offsets",
        "Source offsets that are not mirrored yet; markers count.",
        labels=PARTITION,
    )
    position = GaugeMetricFamily(
        "headwater_mirror_position_offset",
        "The source offset to mirror next.",
        labels=PARTITION,
    )
    stopped = GaugeMetricFamily(
        "headwater_mirror_partition_stopped",
        "1 for a partition that is not mirrored until an operator acts.",
        labels=PARTITION,
    )
    failing = GaugeMetricFamily(
        "headwater_mirror_bucket_failing",
        "1 while the bucket's transactions fail.",
        labels=BUCKET,
    )
    counters = {
        "records": "Records mirrored since the process started.",
        "transactions": "Transactions committed since the process started.",
        "bytes_sent": "Bytes of mirrored batches since the process started.",
    }
    sums = {
        name: CounterMetricFamily(f"headwater_mirror_{name}", text, labels=BUCKET)
        for name, text in counters.items()
    }
    for number, bucket in buckets.items():
        for name, family in sums.items():
            family.add_metric([mirror_id, str(number)], getattr(bucket, name))
        failing.add_metric([mirror_id, str(number)], int(bool(bucket.trouble)))
        for tp, copy in list(bucket.copies.items()):
            labels = [mirror_id, tp.topic, str(tp.partition)]
            stopped.add_metric(labels, int(bool(copy.stopped)))
            position.add_metric(labels, max(copy.stored, 0))
            if copy.end.last_stable_offset >= 0:
                lag.add_metric(labels, max(copy.end.last_stable_offset - copy.stored, 0))
    yield from (lag, position, stopped, failing, *sums.values())
