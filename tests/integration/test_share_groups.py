"""Java's share consumer, `kafka-share-groups.sh` and Kafka's formatter of `__share_group_state`
against our cluster (KIP-932)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.jvm_tools import kafka_tool

pytestmark = pytest.mark.integration

ROWS, PARTITIONS = 300, 3
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
_names = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("share")
    properties = {
        "share.coordinator.state.topic.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
    }
    with LocalCluster(folder, next_base_port(folder), properties=properties) as made:
        yield made


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = cluster.create_topic(f"rows-{next(_names)}", PARTITIONS, 3)
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap})
    for row in range(ROWS):
        producer.produce(name, str(row).encode(), partition=row % PARTITIONS)
    assert producer.flush(30) == 0
    return name


def from_the_start(cluster: LocalCluster, group: str) -> None:
    kafka_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", "groups"),
        *("--entity-name", group, "--add-config", "share.auto.offset.reset=earliest"),
    )


def consumed(cluster: LocalCluster, topic: str, group: str, rows: int) -> list[str]:
    output = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group),
        *("--max-messages", str(rows), "--timeout-ms", "60000"),
    )
    return [line for line in output.splitlines() if line.isdecimal()]


def offsets(cluster: LocalCluster, group: str) -> list[list[str]]:
    """Rows of --describe: group, topic, partition, start offset, lag."""
    output = kafka_tool(
        GROUPS, "--bootstrap-server", cluster.bootstrap, "--describe", "--group", group
    )
    return sorted(line.split() for line in output.splitlines() if line.startswith(group))


def objects(text: str) -> Iterator[Any]:
    """JSON objects one after the other, as Kafka's formatter prints them."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def test_java_consumes_each_row_once_and_tools_see_and_move_the_group(
    cluster: LocalCluster, topic: str
) -> None:
    group, where = f"{topic}-group", ("--bootstrap-server", cluster.bootstrap)
    from_the_start(cluster, group)
    rows = consumed(cluster, topic, group, ROWS)
    assert sorted(map(int, rows)) == list(range(ROWS))
    assert "Share" in kafka_tool("org.apache.kafka.tools.GroupsCommand", *where, "--list")
    assert group in kafka_tool(GROUPS, *where, "--list")
    each = str(ROWS // PARTITIONS)
    # The stored start may be behind: it moves with the next write, as in Kafka. The lag is exact.
    lags = [(row[2], row[4]) for row in offsets(cluster, group)]
    assert lags == [(str(n), "0") for n in range(PARTITIONS)]
    kafka_tool(
        GROUPS, *where, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest",
        "--execute",
    )  # fmt: skip
    assert offsets(cluster, group) == [[group, topic, str(n), "0", each] for n in range(PARTITIONS)]
    assert len(consumed(cluster, topic, group, ROWS)) == ROWS
    formatter = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
    shown = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--topic",
        "__share_group_state", "--from-beginning", "--formatter", formatter, "--timeout-ms",
        "5000",
    )  # fmt: skip
    of_group = [row for row in objects(shown) if row["key"]["data"]["groupId"] == group]
    assert {row["key"]["data"]["partition"] for row in of_group} == set(range(PARTITIONS))
    assert "Successful" in kafka_tool(
        GROUPS, *where, "--delete-offsets", "--group", group, "--topic", topic
    )
    assert offsets(cluster, group) == []
    kafka_tool(GROUPS, *where, "--delete", "--group", group)
    assert group not in kafka_tool(GROUPS, *where, "--list")
