"""Topics that grow, disappear and are created again, under an open producer or consumer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from headwater.client.core.partitioning import KeyPartitioner
from unit.client.served_broker import wait_until
from whole_cluster import ServedCluster

LIMIT_S = 30.0
AGE_MS = 50
"""metadata_max_age_ms: how soon a change is seen."""
KEYS = [b"k%d" % n for n in range(40)]


@pytest.fixture
def c(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, 1) as cluster:
        yield cluster


@pytest.fixture
def admin(c: ServedCluster) -> Iterator[Admin]:
    with Admin(c.bootstrap) as made:
        made.create_topics([NewTopic("t", 2, 1)])
        yield made


def recreate(admin: Admin, topic: str, partitions: int) -> None:
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics())
    admin.create_topics([NewTopic(topic, partitions, 1)])


def places(producer: Producer) -> list[int]:
    """The partitions that the keys are written to."""
    sent = [producer.send("t", b"v", key=key) for key in KEYS]
    return [future.result(LIMIT_S).partition for future in sent]


def by_hash(count: int) -> list[int]:
    return [KeyPartitioner().partition(key, count) for key in KEYS]


def test_keyed_records_follow_growth_as_with_javas_producer(c: ServedCluster, admin: Admin) -> None:
    with Producer(c.bootstrap, metadata_max_age_ms=AGE_MS) as producer:
        assert places(producer) == by_hash(2)
        admin.create_partitions({"t": 5})
        wait_until(lambda: producer.partitions_for("t") == 5)
        assert places(producer) == by_hash(5)


def test_custom_partitioners_and_tables_follow_growth(c: ServedCluster, admin: Admin) -> None:
    counts: list[int] = []

    def last(_: bytes | None, count: int) -> int:
        counts.append(count)
        return count - 1

    table = pa.table({"k": KEYS, "v": KEYS})
    with Producer(c.bootstrap, metadata_max_age_ms=AGE_MS, partitioner=last) as producer:
        assert producer.send("t", b"v").result(LIMIT_S).partition == 1
        admin.create_partitions({"t": 4})
        wait_until(lambda: producer.partitions_for("t") == 4)
        assert producer.send("t", b"v").result(LIMIT_S).partition == 3
        summary = producer.send_table("t", table, key="k", value="v").result(LIMIT_S)
        assert summary.offsets.keys() == {3}
    assert counts == [2, 4, *[4] * len(KEYS)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_topic_created_again_takes_records_without_a_timeout(
    c: ServedCluster, admin: Admin, count: int
) -> None:
    with Producer(c.bootstrap, metadata_max_age_ms=AGE_MS) as producer:
        places(producer)
        recreate(admin, "t", count)
        wait_until(lambda: producer.partitions_for("t") == count)
        assert places(producer) == by_hash(count)


def test_records_for_a_partition_that_is_gone_fail_soon(c: ServedCluster, admin: Admin) -> None:
    """The topic was created again with fewer partitions, and the producer learns of it only by
    sending to one of them."""
    with Producer(c.bootstrap) as producer:
        producer.send("t", b"v", partition=1).result(LIMIT_S)
        recreate(admin, "t", 1)
        error = producer.send("t", b"v", partition=1).exception(LIMIT_S)
        assert isinstance(error, UnknownTopicOrPartitionError)
        assert "t-1: the topic was deleted and created again with 1 partitions" in str(error)
        assert producer.send("t", b"v", key=b"k").result(LIMIT_S).partition == 0


def test_look_ups_create_no_topic(c: ServedCluster, admin: Admin) -> None:
    unknown = pytest.raises(UnknownTopicOrPartitionError, match="absent")
    with Producer(c.bootstrap, max_block_ms=300) as producer, unknown:
        producer.partitions_for("absent")
    options: Any = {"bootstrap_servers": c.bootstrap, "retry_backoff_ms": 5}
    with Consumer(**options) as consumer:
        for look_up in (
            lambda: consumer.partitions_for("absent"),
            lambda: consumer.assign([("absent", 0)]),
            lambda: consumer.subscribe(["absent"]),
            lambda: consumer.end_offsets([("absent", 0)]),
        ):
            with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
                look_up()
        assert consumer.assignment() == []
        consumer.subscribe(["t"])  # what failed has left no subscription behind
    assert admin.list_topics() == ["t"]


def test_send_creates_a_topic_unless_it_may_not(c: ServedCluster, admin: Admin) -> None:
    with Producer(c.bootstrap, allow_auto_create_topics=False, max_block_ms=300) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="topic absent"):
            producer.send("absent", b"v")
        with pytest.raises(UnknownTopicOrPartitionError, match="topic absent"):
            producer.send_table("absent", pa.table({"v": [b"v"]}), value="v")
    assert admin.list_topics() == ["t"]
    with Producer(c.bootstrap) as producer:
        assert producer.send("absent", b"v").result(LIMIT_S).offset == 0
    assert admin.list_topics() == ["absent", "t"]


def test_a_subscription_creates_a_topic_only_if_it_is_asked_to(
    c: ServedCluster, admin: Admin
) -> None:
    options: Any = {"bootstrap_servers": c.bootstrap, "allow_auto_create_topics": True}
    with Consumer("asked", **options) as consumer:
        assert consumer.assignment() == [TopicPartition("asked", 0)]
    with Consumer("in-group", group_id="g", **options) as consumer:
        while not consumer.assignment():
            consumer.poll(50)
    assert {"asked", "in-group"} <= set(admin.list_topics())


def test_a_deleted_topic_comes_back_for_waiting_records_only_if_it_may(
    c: ServedCluster, admin: Admin
) -> None:
    """As Java's producer creates it again: its metadata requests allow that always."""
    admin.create_topics([NewTopic("one", 1, 1)])
    for may in (False, True):
        options: Any = {"delivery_timeout_ms": LIMIT_S * 1000 if may else 800}
        with Producer(c.bootstrap, allow_auto_create_topics=may, **options) as producer:
            producer.send("one", b"v").result(LIMIT_S)
            admin.delete_topics(["one"])
            wait_until(lambda: "one" not in admin.list_topics())
            error = producer.send("one", b"v").exception(LIMIT_S)
            assert (error is None) is may, error
            assert ("one" in admin.list_topics()) is may
        if not may:
            admin.create_topics([NewTopic("one", 1, 1)])


def read(consumer: Consumer, count: int) -> set[tuple[str, int, bytes | None]]:
    found: set[tuple[str, int, bytes | None]] = set()
    while len(found) < count:
        for rows in consumer.poll(100).values():
            found |= {(r.topic, r.partition, r.value) for r in rows}
    return found


def test_a_subscription_without_a_group_sees_growth(c: ServedCluster, admin: Admin) -> None:
    """What was written to the new partitions before they were seen is read too."""
    options: Any = {"bootstrap_servers": c.bootstrap, "metadata_max_age_ms": AGE_MS}
    with Consumer("t", **options) as consumer, Producer(c.bootstrap) as producer:
        assert consumer.poll(0) == {}
        for partition in range(2):
            consumer.position(("t", partition))
        admin.create_partitions({"t": 4})
        sent = {("t", p, b"v%d" % p) for p in range(4)}
        for _, partition, value in sent:
            producer.send("t", value, partition=partition).result(LIMIT_S)
        assert read(consumer, 4) == sent
        assert len(consumer.assignment()) == 4


def test_a_pattern_without_a_group_sees_new_topics_and_no_internal_ones(
    c: ServedCluster, admin: Admin
) -> None:
    admin.alter_group_offsets("g", {("t", 0): 0})  # creates __consumer_offsets
    assert "__consumer_offsets" in admin.list_topics(include_internal=True)
    options: Any = {"bootstrap_servers": c.bootstrap, "metadata_max_age_ms": AGE_MS}
    with Consumer(**options) as consumer, Producer(c.bootstrap) as producer:
        consumer.subscribe(pattern=".*")
        assert {tp.topic for tp in consumer.assignment()} == {"t"}
        producer.send("new", b"v").result(LIMIT_S)
        assert read(consumer, 1) == {("new", 0, b"v")}
        admin.delete_topics(["new"])
        while len(consumer.assignment()) > 2:
            consumer.poll(20)
        assert {tp.topic for tp in consumer.assignment()} == {"t"}
    with Consumer(exclude_internal_topics=False, **options) as consumer:
        consumer.subscribe(pattern=".*")
        assert "__consumer_offsets" in {tp.topic for tp in consumer.assignment()}


def test_a_member_gets_a_topic_that_is_created_after_it_joined(
    c: ServedCluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    options: Any = {"bootstrap_servers": c.bootstrap, "heartbeat_interval_ms": 20}
    with Consumer("late", group_id="g", metadata_max_age_ms=AGE_MS, **options) as consumer:
        while "subscribed topics that do not exist: late" not in caplog.messages:
            consumer.poll(20)
        admin.create_topics([NewTopic("late", 3, 1)])
        while len(consumer.assignment()) < 3:
            consumer.poll(20)
    assert caplog.messages.count("subscribed topics that do not exist: late") == 1
