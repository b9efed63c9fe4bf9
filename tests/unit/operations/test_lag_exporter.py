"""The lag exporter: kafka_exporter's families, and what a scrape tells when parts do not answer."""

from __future__ import annotations

from typing import cast
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headwater.client.admin.client import EARLIEST, Admin
from headwater.client.values import (
    Broker,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.operations.lag_exporter.collector import LagCollector
from headwater.operations.lag_exporter.facts import ClusterFacts, Wanted, read_facts
from headwater.testing.clocks import ManualClock

FLIGHTS = TopicPartition("flights", 0)
LOST = TopicPartition("flights", 1)


class Cluster:
    """What the exporter asks of an Admin: a topic of two partitions, one without a leader."""

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 0, (Broker(0, "h", 9092),))

    def list_topics(self) -> list[str]:
        return ["flights", "weather"]

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        assert names == ["flights"]
        led = PartitionDescription(0, 1, 0, (0, 1), (1,), ())
        lost = PartitionDescription(1, -1, 0, (0, 1), (0, 1), ())
        return {"flights": TopicDescription("flights", uuid4(), False, (led, lost))}

    def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, object]:
        assert list(wanted) == [FLIGHTS]
        offset = 3 if wanted[FLIGHTS] == EARLIEST else 10
        return {FLIGHTS: OffsetAndTimestamp(offset, -1, -1)}

    def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "consumer", "Stable", "classic") for name in ("g", "gone")]

    def describe_groups(self, names: list[str]) -> dict[str, GroupDescription]:
        return {name: GroupDescription(name, "Stable", "consumer", "range", ()) for name in names}

    def list_group_offsets(self, name: str) -> dict[TopicPartition, OffsetAndMetadata]:
        if name == "gone":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "deleted")
        ahead = TopicPartition("weather", 0)
        return {
            FLIGHTS: OffsetAndMetadata(7),
            LOST: OffsetAndMetadata(5),
            ahead: OffsetAndMetadata(1),
        }


def scraped(collector: LagCollector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_a_scrape_has_kafka_exporter_s_families() -> None:
    wanted = Wanted.parse("flights", ".*")
    cluster = cast(Admin, Cluster())
    text = scraped(LagCollector(lambda: read_facts(cluster, wanted), ManualClock()))
    for line in (
        "kafka_brokers 1.0",
        'kafka_broker_info{address="h:9092",id="0"} 1.0',
        'kafka_topic_partitions{topic="flights"} 2.0',
        'kafka_topic_partition_current_offset{partition="0",topic="flights"} 10.0',
        'kafka_topic_partition_oldest_offset{partition="0",topic="flights"} 3.0',
        'kafka_topic_partition_leader{partition="1",topic="flights"} -1.0',
        'kafka_topic_partition_leader_is_preferred{partition="0",topic="flights"} 0.0',
        'kafka_topic_partition_under_replicated_partition{partition="0",topic="flights"} 1.0',
        'kafka_consumergroup_current_offset{consumergroup="g",partition="0",topic="flights"} 7.0',
        'kafka_consumergroup_lag{consumergroup="g",partition="0",topic="flights"} 3.0',
        'kafka_consumergroup_lag_sum{consumergroup="g",topic="flights"} 3.0',
        'kafka_consumergroup_current_offset_sum{consumergroup="g",topic="flights"} 12.0',
        'kafka_consumergroup_members{consumergroup="g"} 0.0',
        "headwater_lag_exporter_up 1.0",
    ):
        assert line in text
    assert "weather" not in text and "gone" not in text
    assert 'kafka_consumergroup_lag{consumergroup="g",partition="1"' not in text, "no end known"


def test_a_cluster_that_does_not_answer_is_told() -> None:
    def away() -> ClusterFacts:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "away")

    text = scraped(LagCollector(away, ManualClock()))
    assert "headwater_lag_exporter_up 0.0" in text and "kafka_" not in text


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--groups '\(' is no regular expression"):
        Wanted.parse(".*", "(")
