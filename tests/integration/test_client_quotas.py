"""A real producer over a byte rate: librdkafka gets throttle_time_ms and slows down (KIP-219)."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

RATE = 200_000
"""Bytes per second; ten times that may pass at once."""
MESSAGE = b"m" * 50_000
COUNT = 46


def test_a_producer_is_throttled_to_its_rate(shared_cluster: LocalCluster) -> None:
    shared_cluster.create_topic("throttled")
    entity = {"client-id": "greedy"}
    told: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": shared_cluster.bootstrap,
            "client.id": "greedy",
            "linger.ms": 0,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    with shared_cluster.admin() as admin:
        admin.alter_client_quotas(entity, {"producer_byte_rate": RATE})
        try:
            for _ in range(COUNT):
                producer.produce("throttled", MESSAGE, partition=0)
            assert producer.flush(60) == 0
            began = time.monotonic()
            producer.produce("throttled", b"more", partition=0)
            assert producer.flush(60) == 0
            took = time.monotonic() - began
        finally:
            admin.alter_client_quotas(entity, {"producer_byte_rate": None})
    excess_s = COUNT * len(MESSAGE) / RATE - 10  # beyond what ten windows allow
    assert told and max(told) >= excess_s * 0.5
    assert took >= excess_s * 0.5
