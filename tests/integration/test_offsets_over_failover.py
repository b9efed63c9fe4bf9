"""Offsets of a transaction whose group coordinator is killed before the marker comes."""

from __future__ import annotations

import pytest

from headwater import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.coordinator.common.placement import partition_of
from integration.cluster import LocalCluster
from integration.conftest import Start

WAIT_MS = 60_000
GROUP, TOPIC = "group", "offsets"
PLACE = TopicPartition(TOPIC, 0)


def kill_the_coordinator(cluster: LocalCluster) -> None:
    """SIGKILL to the broker of the group's coordinator, which other brokers can replace."""
    with cluster.admin() as admin:
        count = len(admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].partitions)
    home = partition_of(GROUP, count)
    cluster.wait_isr(OFFSETS_TOPIC, 3, home)
    cluster.kill_broker(cluster.leader_of(OFFSETS_TOPIC, home))


@pytest.mark.parametrize(
    "commit",
    [pytest.param(True, id="commit"), pytest.param(False, id="abort", marks=pytest.mark.long)],
)
def test_pending_offsets_outlive_their_coordinator(start_cluster: Start, *, commit: bool) -> None:
    cluster = start_cluster(brokers=3)
    cluster.create_topic(TOPIC, 1, 3)
    member = ConsumerGroupMetadata(GROUP)
    with cluster.admin() as admin:
        admin.alter_group_offsets(GROUP, {PLACE: OffsetAndMetadata(1)})
        with Producer(
            cluster.bootstrap, transactional_id="worker", max_block_ms=WAIT_MS
        ) as producer:
            producer.begin_transaction()
            producer.send(TOPIC, b"first")
            producer.send_offsets({PLACE: OffsetAndMetadata(5)}, member)
            kill_the_coordinator(cluster)
            producer.send(TOPIC, b"second")
            producer.send_offsets({PLACE: OffsetAndMetadata(6)}, member)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            found = admin.list_group_offsets(GROUP)  # waits until they are stable
            assert found[PLACE].offset == (6 if commit else 1)
            producer.begin_transaction()
            producer.send_offsets({PLACE: OffsetAndMetadata(7)}, member)
            producer.commit_transaction()
        assert admin.list_group_offsets(GROUP)[PLACE].offset == 7
