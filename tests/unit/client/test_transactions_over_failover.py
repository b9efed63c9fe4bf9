"""The SDK's transactions against three brokers of ours: the coordinators and leaders go away."""

from __future__ import annotations

from pathlib import Path

from headwater import (
    Admin,
    CheckpointedProducer,
    Consumer,
    ConsumerGroupMetadata,
    NewTopic,
    Producer,
    TopicPartition,
)
from whole_cluster import ServedCluster

PARTITIONS = [TopicPartition("out", p) for p in range(3)]


def values(c: ServedCluster) -> list[bytes]:
    """All visible values, sorted."""
    with Consumer(bootstrap_servers=c.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(PARTITIONS)
        ends = consumer.end_offsets(PARTITIONS)
        found: list[bytes] = []
        while any(consumer.position(tp) < ends[tp] for tp in PARTITIONS):
            for rows in consumer.poll(200).values():
                found += [row.value or b"" for row in rows]
    return sorted(found)


def test_transactions_and_checkpoints_go_on_over_the_loss_of_each_broker(tmp_path: Path) -> None:
    """Each of them coordinates a transactional id or a group, or leads a partition."""
    with ServedCluster(tmp_path, 3, min_insync_replicas="2") as c:
        with Admin(c.bootstrap) as admin:
            admin.create_topics([NewTopic("out", 3, 3), NewTopic("in", 1, 3)])
        expected: list[bytes] = []
        with (
            Producer(c.bootstrap, transactional_id="x") as producer,
            CheckpointedProducer(c.bootstrap, transactional_id_prefix="job") as sink,
        ):
            sink.recover(None)
            for broker in range(3):
                producer.begin_transaction()
                for partition in range(3):
                    value = b"%d-%d" % (broker, partition)
                    producer.send("out", value, partition=partition)
                    sink.send("out", b"sink-" + value, partition=partition)
                    expected += [value, b"sink-" + value]
                producer.send_offsets({("in", 0): broker + 1}, ConsumerGroupMetadata("g"))
                sink.pre_commit(broker)
                c.stop(broker)
                producer.commit_transaction()
                sink.commit(broker)
                c.start(broker)
                producer.begin_transaction()
                producer.send("out", b"aborted", partition=broker)
                producer.abort_transaction()
        assert values(c) == sorted(expected)
        with Admin(c.bootstrap) as admin:
            assert admin.list_group_offsets("g")[TopicPartition("in", 0)].offset == 3
