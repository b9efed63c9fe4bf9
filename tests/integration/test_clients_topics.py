"""Requests of stock clients about all topics: their list, and subscriptions by pattern."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from integration.cluster import LocalCluster

WAIT_S = 60.0
Poll = Callable[[], Iterable[bytes]]
"""The values that came within half a second."""


def _by_librdkafka(bootstrap: str) -> Iterable[str]:
    return ConfluentAdmin({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S).topics


def _by_a_producer_of_librdkafka(bootstrap: str) -> Iterable[str]:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    return producer.list_topics(timeout=WAIT_S).topics


def _by_kafka_python(bootstrap: str) -> Iterable[str]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return list(admin.list_topics())
    finally:
        admin.close()


def _by_aiokafka(bootstrap: str) -> Iterable[str]:
    async def ask() -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return list(await admin.list_topics())
        finally:
            await admin.close()

    return asyncio.run(ask())


LISTERS = (_by_librdkafka, _by_a_producer_of_librdkafka, _by_kafka_python, _by_aiokafka)


@pytest.mark.parametrize("lister", LISTERS)
def test_all_topics_are_listed(
    shared_cluster: LocalCluster, lister: Callable[[str], Iterable[str]]
) -> None:
    names = {shared_cluster.create_topic(f"listed-{n}-{lister.__name__}") for n in range(2)}
    assert names <= set(lister(shared_cluster.bootstrap))


@contextmanager
def _librdkafka(bootstrap: str, pattern: str) -> Iterator[Poll]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"pattern-{pattern}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([pattern])
    try:
        yield lambda: [m.value() or b"" for m in consumer.consume(10, 0.5) if m.error() is None]
    finally:
        consumer.close()


@contextmanager
def _kafka_python(bootstrap: str, pattern: str) -> Iterator[Poll]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"pattern-{pattern}",
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    consumer.subscribe(pattern=pattern)
    try:
        yield lambda: [r.value for rows in consumer.poll(timeout_ms=500).values() for r in rows]
    finally:
        consumer.close()


@contextmanager
def _aiokafka(bootstrap: str, pattern: str) -> Iterator[Poll]:
    async def subscribed() -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=f"pattern-{pattern}",
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        )
        consumer.subscribe(pattern=pattern)
        await consumer.start()
        return consumer

    async def poll() -> list[bytes]:
        found = await consumer.getmany(timeout_ms=500)
        return [row.value or b"" for rows in found.values() for row in rows]

    with asyncio.Runner() as runner:
        consumer = runner.run(subscribed())
        try:
            yield lambda: runner.run(poll())
        finally:
            runner.run(consumer.stop())


@pytest.mark.parametrize("subscribed", [_librdkafka, _kafka_python, _aiokafka])
def test_a_pattern_finds_its_topics(
    shared_cluster: LocalCluster,
    subscribed: Callable[[str, str], AbstractContextManager[Poll]],
) -> None:
    start = f"pattern{subscribed.__name__.replace('_', '-')}"
    wanted, other = [f"{start}-a", f"{start}-b"], f"other-{start}"
    producer = confluent_kafka.Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for name in (*wanted, other):
        producer.produce(shared_cluster.create_topic(name), name.encode())
    assert producer.flush(WAIT_S) == 0
    seen: set[bytes] = set()
    with subscribed(shared_cluster.bootstrap, f"^{start}-.*") as poll:
        end = time.monotonic() + WAIT_S
        while len(seen) < len(wanted) and time.monotonic() < end:
            seen.update(poll())
    assert seen == {name.encode() for name in wanted}
