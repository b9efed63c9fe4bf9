"""The metric families of kafka_exporter, made of `ClusterFacts` at each scrape."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.operations.lag_exporter.facts import ClusterFacts

PARTITION = ("topic", "partition")
GROUP_PARTITION = ("consumergroup", "topic", "partition")

logger = logging.getLogger(__name__)


class LagCollector:
    """Asks the cluster at each scrape; scrapes at the same time share one answer."""

    def __init__(self, read: Callable[[], ClusterFacts], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """All families; after a failed look only `headwater_lag_exporter_up`, which is then 0."""
        began = self._clock.monotonic()
        with self._lock:
            try:
                facts = self._read()
            except HeadwaterError as error:
                logger.warning("the cluster did not answer: %s", error)
                facts = None
        up = "1 when the cluster answered this scrape."
        yield GaugeMetricFamily("headwater_lag_exporter_up", up, value=int(facts is not None))
        took = "How long the cluster took to answer this scrape."
        seconds = self._clock.monotonic() - began
        yield GaugeMetricFamily("headwater_lag_exporter_scrape_seconds", took, value=seconds)
        if facts is not None:
            yield from families(facts)

    def describe(self) -> list[Metric]:
        """No families: the registration of a collector must not ask the cluster."""
        return []


def families(facts: ClusterFacts) -> Iterator[Metric]:
    """kafka_exporter's families."""
    brokers = "Number of Brokers in the Kafka Cluster."
    yield GaugeMetricFamily("kafka_brokers", brokers, value=len(facts.brokers))
    info = _family("kafka_broker_info", "Information about the Kafka Broker.", ("id", "address"))
    for broker in facts.brokers:
        info.add_metric([str(broker.node_id), f"{broker.host}:{broker.port}"], 1)
    yield info
    yield from _topics(facts)
    yield from _groups(facts)


def _topics(facts: ClusterFacts) -> Iterator[Metric]:
    count = _family("kafka_topic_partitions", "Number of partitions for this Topic.", ("topic",))
    for topic, number in sorted(Counter(name.topic for name in facts.partitions).items()):
        count.add_metric([topic], number)
    yield count
    about = " of this Topic at Broker's Partition."
    newest = _family("kafka_topic_partition_current_offset", "Current Offset" + about, PARTITION)
    oldest = _family("kafka_topic_partition_oldest_offset", "Oldest Offset" + about, PARTITION)
    leader = _family("kafka_topic_partition_leader", "Leader Broker ID" + about, PARTITION)
    preferred = _family(
        "kafka_topic_partition_leader_is_preferred",
        "1 if Topic/Partition is using the Preferred Broker.",
        PARTITION,
    )
    replicas = _family("kafka_topic_partition_replicas", "Number of Replicas" + about, PARTITION)
    in_sync = _family(
        "kafka_topic_partition_in_sync_replica", "Number of In-Sync Replicas" + about, PARTITION
    )
    under = _family(
        "kafka_topic_partition_under_replicated_partition",
        "1 if Topic/Partition is under Replicated.",
        PARTITION,
    )
    for name, one in sorted(facts.partitions.items()):
        labels = [name.topic, str(name.partition)]
        if name in facts.newest:
            newest.add_metric(labels, facts.newest[name])
        if name in facts.oldest:
            oldest.add_metric(labels, facts.oldest[name])
        leader.add_metric(labels, one.leader)
        preferred.add_metric(labels, int(one.leader == one.replicas[0]))
        replicas.add_metric(labels, len(one.replicas))
        in_sync.add_metric(labels, len(one.isr))
        under.add_metric(labels, int(len(one.isr) < len(one.replicas)))
    yield from (newest, oldest, leader, preferred, replicas, in_sync, under)


def _groups(facts: ClusterFacts) -> Iterator[Metric]:
    members = _family("kafka_consumergroup_members", "Amount of members in a consumer group.",
                      ("consumergroup",))  # fmt: skip
    by_topic = ("consumergroup", "topic")
    at = "Current Offset of a ConsumerGroup at Topic"
    behind = "Current Approximate Lag of a ConsumerGroup at Topic"
    offset = _family("kafka_consumergroup_current_offset", f"{at}/Partition.", GROUP_PARTITION)
    offsets = _family("kafka_consumergroup_current_offset_sum", f"{at}.", by_topic)
    lag = _family("kafka_consumergroup_lag", f"{behind}/Partition.", GROUP_PARTITION)
    lags = _family("kafka_consumergroup_lag_sum", f"{behind} for all partitions.", by_topic)
    for group, found in sorted(facts.groups.items()):
        members.add_metric([group], found.members)
        offset_sums: Counter[str] = Counter()
        lag_sums: Counter[str] = Counter()
        for name, committed in sorted(found.offsets.items()):
            labels = [group, name.topic, str(name.partition)]
            offset.add_metric(labels, committed)
            offset_sums[name.topic] += committed
            behind_by = facts.lag(group, name)
            if behind_by is not None:
                lag.add_metric(labels, behind_by)
                lag_sums[name.topic] += behind_by
        for topic in sorted(offset_sums):
            offsets.add_metric([group, topic], offset_sums[topic])
        for topic in sorted(lag_sums):
            lags.add_metric([group, topic], lag_sums[topic])
    yield from (members, offset, offsets, lag, lags)


def _family(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))
