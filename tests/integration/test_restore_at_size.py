"""A gigabyte in fifty topics, with a group each, lost and restored: minutes, so `make long`."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import confluent_kafka
import pytest

from headwater.client.values import OffsetAndMetadata
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.tiered_topics import cli, verify

pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPICS = [f"topic-{number:02}" for number in range(50)]
PARTITIONS = 4
VALUE_BYTES = 10_000
RECORDS = 2_000
"""Of each topic: 20 MB."""
GROUP_AT = 300


def produce(bootstrap: str, topic: str, count: int) -> None:
    values = [os.urandom(VALUE_BYTES) for _ in range(16)]
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % 16], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


@pytest.mark.timeout(1_200)
def test_a_gigabyte_of_fifty_topics_is_back(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, next_base_port(tmp_path), 1)
    at = ("--bootstrap-server", cluster.bootstrap, "--zookeeper", cluster.zookeeper)
    with cluster:
        for topic in TOPICS:
            cluster.create_topic(
                topic, PARTITIONS, 1, retention_ms="-1", remote_storage_enable="true"
            )
            produce(cluster.bootstrap, topic, RECORDS)
        with cluster.admin() as admin:
            for topic in TOPICS:
                rows = {(topic, p): OffsetAndMetadata(GROUP_AT + p) for p in range(PARTITIONS)}
                admin.alter_group_offsets(f"group-{topic}", rows)
        cli("tier", "serve", "--once", *at)
        cli("tier", "catalog", "--once", *at)
    for path in tmp_path.iterdir():
        if path.name != "tables":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    began = time.monotonic()
    base, port = str(tmp_path / "tables"), str(cluster.spec.base_port)
    cli("restore", "--from", base, "--dir", str(tmp_path), "--port", port)
    print(f"restored in {time.monotonic() - began:.1f} s")
    with cluster:
        for topic in TOPICS:
            found = verify(cluster, topic)
            assert sum(p["table_digest"]["rows"] for p in found["partitions"]) == RECORDS
            assert found["hot_offsets"] == 0
        with cluster.admin() as admin:
            for topic in TOPICS:
                offsets = admin.list_group_offsets(f"group-{topic}")
                assert {p: o.offset for (_, p), o in offsets.items()} == {
                    p: GROUP_AT + p for p in range(PARTITIONS)
                }
