"""The broker in the test's process, by the fixtures that users have: real clients, no ports."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from confluent_kafka import Consumer as ConfluentConsumer

from headwater import (
    Consumer,
    KafkaError,
    KafkaTimeoutError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TopicPartition,
    UsageError,
)
from headwater.aio import AsyncProducer
from headwater.client.admin.client import Admin
from headwater.client.blocking.connection import BlockingConnection
from headwater_broker.testing import BrokerFailedError, InProcessBroker

PLUGINS_OWN = {
    "headwater_broker",
    "headwater_broker.testing",
    "headwater_broker.testing.plugin",
}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a thread or a descriptor."""
    threads, descriptors = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    yield
    left = [t for t in threading.enumerate() if t not in threads and t.is_alive()]
    assert left == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def values(broker: InProcessBroker, topic: str, count: int, **options: object) -> list[bytes]:
    with broker.consumer(topic, **options) as consumer:
        found: list[bytes] = []
        while len(found) < count:
            for rows in consumer.poll(5000).values():
                found += [row.value or b"" for row in rows]
    return found


def test_pytest_compiles_no_module_of_headwater_anew(headwater_broker: InProcessBroker) -> None:
    """pytest would rewrite the asserts of a plugin's whole distribution: 30 s in a first run."""
    ours = [m for name, m in sys.modules.items() if name.startswith(("headwater.", "headwater_"))]
    rewritten = [m.__name__ for m in ours if isinstance(m.__loader__, AssertionRewritingHook)]
    assert len(ours) > 300
    assert set(rewritten) <= PLUGINS_OWN


def test_no_port_is_open(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    with Producer(headwater_broker.bootstrap) as producer:
        assert producer.send(headwater_topic, b"v", key=b"k").result(10).offset == 0
    assert values(headwater_broker, headwater_topic, 1) == [b"v"]
    inodes = {
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)
    }
    listening = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]
    ]
    assert [r for r in listening if r[3] == "0A" and f"socket:[{r[9]}]" in inodes] == []
    with pytest.raises(UsageError, match="headwater_bootstrap"):
        _ = headwater_broker.tcp_bootstrap


def _is_link(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_has_a_broker_of_its_own(headwater_broker: InProcessBroker, run: int) -> None:
    with headwater_broker.admin() as admin:
        assert admin.list_topics() == []
        admin.create_topics([NewTopic("the-same", 1, 1)])


def test_groups_commit_and_go_on(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    producer = headwater_broker.producer()
    for number in range(4):
        producer.send(headwater_topic, b"%d" % number)
    producer.flush(10)
    with headwater_broker.consumer(
        headwater_topic, group_id="g", enable_auto_commit=False
    ) as consumer:
        rows = [next(iter(consumer)) for _ in range(2)]
        consumer.commit()
    assert [r.value for r in rows] == [b"0", b"1"]
    assert values(headwater_broker, headwater_topic, 2, group_id="g") == [b"2", b"3"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stock_consumer_in_both_group_protocols(
    headwater_bootstrap: str, headwater_broker: InProcessBroker, headwater_topic: str, protocol: str
) -> None:
    with headwater_broker.producer() as producer:
        producer.send(headwater_topic, b"v").result(10)
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": headwater_bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([headwater_topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.value() == b"v"


def test_transactions(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    with headwater_broker.producer(transactional_id="t") as producer:
        with producer.transaction():
            producer.send(headwater_topic, b"kept")
        producer.begin_transaction()
        producer.send(headwater_topic, b"dropped")
        producer.flush(10)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(headwater_topic, b"kept too")
    read = values(headwater_broker, headwater_topic, 2, isolation_level="read_committed")
    assert read == [b"kept", b"kept too"]


@pytest.mark.asyncio
async def test_asyncio(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    async with headwater_broker.async_producer() as producer:
        await asyncio.gather(*(producer.send(headwater_topic, b"%d" % n) for n in range(9)))
        await producer.flush()
    async with headwater_broker.async_consumer(headwater_topic, group_id="a") as consumer:
        assert {(await consumer.getone()).value for _ in range(9)} == {b"%d" % n for n in range(9)}
    async with AsyncProducer(headwater_broker.bootstrap, engine="thread") as producer:
        await (await producer.send(headwater_topic, b"by a thread"))
    async with headwater_broker.async_admin() as admin:
        assert await admin.list_topics() == [headwater_topic]


def test_blocking_connections(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    """Those of `read_topic` and of Spark's tasks."""
    host, _, port = headwater_broker.bootstrap.rpartition(":")
    connection = BlockingConnection(host, int(port), client_id="blocking", timeout_s=5.0)
    assert connection.versions[0][1] >= 11
    connection.close()


@pytest.mark.headwater(properties={"log.cleaner.backoff.ms": "15000"})
def test_compaction_in_memory(headwater_broker: InProcessBroker) -> None:
    configs = {
        "cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }  # fmt: skip
    topic = headwater_broker.topic(configs=configs)
    with headwater_broker.producer() as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, key=b"k").result(10)
        headwater_broker.advance(10)
        now_ms = headwater_broker.clock.now_ms()
        producer.send(topic, b"new segment", key=b"other", timestamp=now_ms).result(10)
        deadline = time.monotonic() + 20
        left = [b""] * 21
        while len(left) > 2:
            assert time.monotonic() < deadline, left
            headwater_broker.advance(16)
            with headwater_broker.consumer(consumer_timeout_ms=300) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                left = [row.value or b"" for row in consumer]
    assert left == [b"19", b"new segment"]


@pytest.mark.headwater(files="disk")
def test_files_on_a_disk(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    value = os.urandom(300_000)
    with headwater_broker.producer() as producer:
        producer.send(headwater_topic, value).result(10)
    assert values(headwater_broker, headwater_topic, 1) == [value]


def test_retention_by_the_clock(headwater_broker: InProcessBroker) -> None:
    topic = headwater_broker.topic(configs={"retention.ms": "600000", "segment.ms": "1000"})
    with headwater_broker.producer() as producer:
        producer.send(topic, b"old").result(10)
        headwater_broker.advance(500)
        producer.send(topic, b"new", timestamp=headwater_broker.clock.now_ms()).result(10)
    headwater_broker.advance(310)
    with headwater_broker.admin() as admin:
        assert admin.list_offsets({(topic, 0): -2})[TopicPartition(topic, 0)].offset == 1


def test_sessions_end_by_the_clock(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    with headwater_broker.consumer(
        headwater_topic, group_id="g", heartbeat_interval_ms=30_000, session_timeout_ms=45_000
    ) as consumer:
        consumer.poll(100)
        with headwater_broker.admin() as admin:
            assert len(admin.describe_groups(["g"])["g"].members) == 1
            headwater_broker.advance(46)
            assert admin.describe_groups(["g"])["g"].members == ()


def test_transactions_end_by_the_clock(
    headwater_broker: InProcessBroker, headwater_topic: str
) -> None:
    with headwater_broker.producer(transactional_id="slow") as producer:
        producer.begin_transaction()
        producer.send(headwater_topic, b"never seen").result(10)
        headwater_broker.advance(75)
        with pytest.raises(KafkaError):
            producer.commit_transaction(5000)


def test_locks_of_a_share_group_end(
    headwater_broker: InProcessBroker, headwater_topic: str
) -> None:
    with headwater_broker.admin() as admin:
        admin.alter_configs("group", "q", {"share.auto.offset.reset": "earliest"})
    with headwater_broker.producer() as producer:
        producer.send(headwater_topic, b"v").result(10)
    with headwater_broker.share_consumer(
        headwater_topic, group_id="q", share_acknowledgement_mode="explicit"
    ) as taken:
        ((record,),) = taken.poll(20_000).values()
        assert record.delivery_count == 1
        with headwater_broker.share_consumer(headwater_topic, group_id="q") as other:
            assert other.poll(300) == {}
            headwater_broker.expire_locks()
            ((again,),) = other.poll(20_000).values()
            assert (again.value, again.delivery_count) == (b"v", 2)
            other.commit()


def test_fence(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    with headwater_broker.producer(transactional_id="t") as producer:
        producer.begin_transaction()
        producer.send(headwater_topic, b"v").result(10)
        headwater_broker.fence("t")
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction(5000)


def test_a_dropped_acknowledgement_doubles_nothing(
    headwater_broker: InProcessBroker, headwater_topic: str
) -> None:
    with headwater_broker.producer(retry_backoff_ms=1) as producer:
        producer.send(headwater_topic, b"one").result(10)
        headwater_broker.drop_next_ack()
        assert producer.send(headwater_topic, b"two").result(10).offset == 1
        headwater_broker.drop_next_ack(count=3)
        assert producer.send(headwater_topic, b"three").result(20).offset == 2
    assert values(headwater_broker, headwater_topic, 3) == [b"one", b"two", b"three"]


def test_a_dropped_acknowledgement_doubles_without_idempotence(
    headwater_broker: InProcessBroker, headwater_topic: str
) -> None:
    with headwater_broker.producer(enable_idempotence=False, retry_backoff_ms=1) as producer:
        headwater_broker.drop_next_ack()
        assert producer.send(headwater_topic, b"v").result(10).offset == 1
    assert values(headwater_broker, headwater_topic, 2) == [b"v", b"v"]


def test_the_reply_of_another_api_is_dropped(
    headwater_broker: InProcessBroker, headwater_topic: str
) -> None:
    with headwater_broker.producer(transactional_id="t", retry_backoff_ms=1) as producer:
        producer.begin_transaction()
        producer.send(headwater_topic, b"v")
        headwater_broker.drop_next_ack("EndTxn")
        producer.commit_transaction()
    assert values(headwater_broker, headwater_topic, 1, isolation_level="read_committed") == [b"v"]
    with pytest.raises(UsageError, match="EndTransaction"):
        headwater_broker.drop_next_ack("EndTransaction")


def test_pause(headwater_broker: InProcessBroker, headwater_topic: str) -> None:
    with headwater_broker.producer() as producer:
        producer.send(headwater_topic, b"before").result(10)
        with headwater_broker.pause():
            waiting = producer.send(headwater_topic, b"meanwhile")
            with pytest.raises(KafkaTimeoutError):
                producer.flush(0.2)
            assert not waiting.done()
            with pytest.raises(UsageError, match="resume"):
                headwater_broker.topic()
        assert waiting.result(10).offset == 1


def test_lose_leader(headwater_broker: InProcessBroker) -> None:
    topic = headwater_broker.topic(partitions=2)
    with headwater_broker.producer(retry_backoff_ms=1) as producer:
        producer.send(topic, b"before", partition=0).result(10)
        with headwater_broker.lose_leader(topic, 0):
            with headwater_broker.admin() as admin:
                found = admin.describe_topics([topic])[topic].partitions
                assert [p.leader for p in found] == [-1, 1]
            assert producer.send(topic, b"led", partition=1).result(10).offset == 0
            waiting = producer.send(topic, b"waits", partition=0)
            with pytest.raises(KafkaTimeoutError):
                producer.flush(0.2)
        assert waiting.result(10).offset == 1
    assert values(headwater_broker, topic, 3) != []
    with pytest.raises(UsageError, match="there is no topic"):
        headwater_broker.lose_leader("none")


def test_errors_of_the_broker_fail_the_test() -> None:
    broker = InProcessBroker().start()

    def fail() -> None:
        raise RuntimeError("a fault of the broker")

    async def fail_soon(_server: object) -> None:
        asyncio.get_running_loop().call_soon(fail)

    broker.call(fail_soon)
    broker.advance(0)
    broker.stop()
    with pytest.raises(BrokerFailedError, match="a fault of the broker"):
        broker.check()
    broker.errors.clear()
    broker.check()


def test_bad_settings() -> None:
    with pytest.raises(UsageError, match=r"log\.retention"):
        InProcessBroker(properties={"log.retention": "1"})
    with pytest.raises(UsageError, match="folder"):
        InProcessBroker(files="disk")
    with pytest.raises(BrokerFailedError, match="does not run"):
        InProcessBroker().topic()


def test_a_stopped_broker_refuses_connections() -> None:
    with InProcessBroker() as broker:
        bootstrap = broker.bootstrap
    with pytest.raises(KafkaError, match="has stopped"):
        Admin(bootstrap, bootstrap_timeout_ms=100)
    with pytest.raises(KafkaError, match="has stopped"):
        Consumer("t", bootstrap_servers=bootstrap, bootstrap_timeout_ms=100).poll(1)
