"""What real clients ask of all topics at once: their list, and patterns to subscribe to."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from integration.cluster import LocalCluster

WAIT_S = 60.0


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


def _librdkafka(bootstrap: str, pattern: str, wanted: set[bytes]) -> set[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"pattern-{pattern}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([f"^{pattern}"])
    seen: set[bytes] = set()
    try:
        end = time.monotonic() + WAIT_S
        while not wanted <= seen and time.monotonic() < end:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.add(message.value() or b"")
        return seen
    finally:
        consumer.close()


def _kafka_python(bootstrap: str, pattern: str, wanted: set[bytes]) -> set[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"pattern-{pattern}",
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    consumer.subscribe(pattern=f"^{pattern}")
    seen: set[bytes] = set()
    try:
        end = time.monotonic() + WAIT_S
        while not wanted <= seen and time.monotonic() < end:
            for rows in consumer.poll(timeout_ms=500).values():
                seen.update(row.value for row in rows)
        return seen
    finally:
        consumer.close()


def _aiokafka(bootstrap: str, pattern: str, wanted: set[bytes]) -> set[bytes]:
    async def read() -> set[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=f"pattern-{pattern}",
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        )
        consumer.subscribe(pattern=f"^{pattern}")
        await consumer.start()
        seen: set[bytes] = set()
        try:
            end = time.monotonic() + WAIT_S
            while not wanted <= seen and time.monotonic() < end:
                for rows in (await consumer.getmany(timeout_ms=500)).values():
                    seen.update(row.value or b"" for row in rows)
            return seen
        finally:
            await consumer.stop()

    return asyncio.run(read())


@pytest.mark.parametrize("read", [_librdkafka, _kafka_python, _aiokafka])
def test_a_pattern_finds_its_topics(
    shared_cluster: LocalCluster, read: Callable[[str, str, set[bytes]], set[bytes]]
) -> None:
    start = f"pattern{read.__name__.replace('_', '-')}"
    producer = confluent_kafka.Producer({"bootstrap.servers": shared_cluster.bootstrap})
    wanted = set()
    for name in (f"{start}-a", f"{start}-b", f"other-{start}"):
        producer.produce(shared_cluster.create_topic(name), name.encode())
        if re.match(start, name):
            wanted.add(name.encode())
    assert producer.flush(WAIT_S) == 0
    assert read(shared_cluster.bootstrap, f"{start}-.*", wanted) == wanted
