"""Stock clients with a rack read from a follower there, and go on without it (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import kafka
import pytest

from whole_cluster import served_in_racks

pytestmark = pytest.mark.integration

WAIT_S = 20
Poll = Callable[[], list[int]]


def kafka_python(bootstrap: str, rack: str) -> tuple[Poll, Callable[[], None]]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), client_rack=rack, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition("t", 0)])

    def poll() -> list[int]:
        polled = consumer.poll(timeout_ms=WAIT_S * 1000)
        return [int(r.value) for rows in polled.values() for r in rows]

    return poll, consumer.close


def librdkafka(bootstrap: str, rack: str) -> tuple[Poll, Callable[[], None]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.rack": rack,
            "group.id": "near",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])

    def poll() -> list[int]:
        messages = consumer.consume(100, 1.0)
        return [int(m.value()) for m in messages if m.error() is None]

    return poll, consumer.close


@pytest.mark.parametrize(
    "client",
    [librdkafka, pytest.param(kafka_python, marks=pytest.mark.long)],
    ids=lambda c: c.__name__,
)
def test_a_rack_is_read_from_its_follower_and_then_from_the_leader(
    client: Callable[[str, str], tuple[Poll, Callable[[], None]]], tmp_path: Path
) -> None:
    with served_in_racks(tmp_path) as (served, near):
        sent = served.cluster.brokers[near].services.meters.topic("t")
        producer = confluent_kafka.Producer({"bootstrap.servers": served.bootstrap, "acks": "all"})
        poll, close = client(served.bootstrap, f"rack-{near}")
        seen: list[int] = []
        for end in (100, 200):
            for number in range(len(seen), end):
                producer.produce("t", str(number).encode())
            assert producer.flush(WAIT_S) == 0
            for _ in range(WAIT_S):
                seen += poll()
                if len(seen) >= end:
                    break
            assert seen == list(range(end))
            if end == 100:
                assert sent.bytes_out > 0, "the leader alone has served it"
                served.stop(near)
        close()
