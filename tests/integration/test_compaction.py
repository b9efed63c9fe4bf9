"""Compaction in real brokers, by the worker process: reads of every client, failovers, and
`__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater import Producer
from headwater.client.admin.client import Admin
from headwater.client.consumer import Consumer
from integration import clients
from integration.clients import READERS, Seen
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

KEYS = 50
ROUNDS = 40
OFFSETS_TOPIC = "__consumer_offsets"
WAIT_S = 60.0

Start = Callable[..., LocalCluster]


def write(cluster: LocalCluster, topic: str, round_: int, codec: str) -> None:
    """A value for each key but those of this round, which are deleted."""
    with Producer(cluster.bootstrap, compression_type=codec, linger_ms=5) as producer:
        for number in range(KEYS):
            value = None if number == round_ % KEYS else b"%d of round %d" % (number, round_)
            producer.send(topic, value, key=b"key %d" % number, headers=[("round", b"%d" % round_)])
        producer.flush()


def sizes(cluster: LocalCluster, topic: str) -> list[int]:
    """Bytes of each replica of partition 0, on disk."""
    folders = [
        folder
        for broker in range(cluster.spec.brokers)
        for folder in cluster.spec.slot(broker).folder.rglob(f"{topic}-0")
    ]
    return [sum(file.stat().st_size for file in folder.glob("*.log")) for folder in folders]


def everything(cluster: LocalCluster, topic: str) -> list[Seen]:
    """Every record, however many there are."""
    at = (topic, 0)
    rows: list[Seen] = []
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([at])
        end = consumer.end_offsets([at])[at]
        consumer.seek_to_beginning(at)
        while consumer.position(at) < end:
            for part in consumer.poll(1000).values():
                rows += [
                    Seen(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in part
                ]
    return rows


def latest(rows: list[Seen]) -> dict[bytes | None, bytes | None]:
    """What a table of the topic holds."""
    table = {row.key: row.value for row in rows}
    return {key: value for key, value in table.items() if value is not None}


def test_every_client_reads_a_compacted_topic_and_failovers_lose_nothing(
    start_cluster: Start,
) -> None:
    cluster = start_cluster(brokers=3, log_cleaner_backoff_ms="3600000")
    topic = cluster.create_topic(
        "compacted", 1, 3, cleanup_policy="compact", segment_bytes="4000",
        min_cleanable_dirty_ratio="0.2",
    )  # fmt: skip
    for round_ in range(ROUNDS):
        write(cluster, topic, round_, clients.CODECS[round_ % len(clients.CODECS)])
    written = KEYS * ROUNDS
    rows = everything(cluster, topic)
    assert (len(rows), rows[-1].offset) == (written, written - 1)
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs("broker", "", {"log.cleaner.backoff.ms": "200"})
    cluster.wait_until(lambda: len(everything(cluster, topic)) < written / 3, "compacted", WAIT_S)
    cluster.wait_until(lambda: max(sizes(cluster, topic)) < 14_000, "all replicas", WAIT_S)
    wanted = {
        b"key %d" % n: b"%d of round %d" % (n, ROUNDS - 1) for n in range(KEYS) if n != ROUNDS - 1
    }
    rows = everything(cluster, topic)
    assert latest(rows) == wanted
    assert [row.offset for row in rows] == sorted({row.offset for row in rows})
    for name, read in READERS.items():
        assert latest(read(cluster.bootstrap, topic, len(rows))) == wanted, name
    middle = clients.Start("offset", rows[0].offset + 1)
    assert clients.read_confluent(cluster.bootstrap, topic, len(rows) - 1, middle)[-1].offset == (
        rows[-1].offset
    )
    leader = cluster.leader_of(topic)
    cluster.kill_broker(leader)
    cluster.wait_until(lambda: cluster.leader_of(topic) != leader, "another leader")
    write(cluster, topic, ROUNDS, "lz4")
    cluster.restart(leader)
    cluster.wait_isr(topic, 3)
    wanted = {b"key %d" % n: b"%d of round %d" % (n, ROUNDS) for n in range(KEYS) if n != ROUNDS}
    assert latest(everything(cluster, topic)) == wanted


@pytest.mark.long
def test_committed_offsets_are_compacted_and_outlive_every_broker(start_cluster: Start) -> None:
    cluster = start_cluster(
        brokers=3,
        log_cleaner_backoff_ms="200",
        offsets_topic_num_partitions="1",
        offsets_topic_segment_bytes="10000",
    )
    topic = cluster.create_topic("read", 1, 3)
    write(cluster, topic, 0, "none")
    with Consumer(
        bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(100)
        for number in range(600):
            consumer.commit({(topic, 0): number % KEYS})
        consumer.commit({(topic, 0): 17})
    cluster.wait_until(lambda: max(sizes(cluster, OFFSETS_TOPIC)) < 25_000, "compacted", WAIT_S)
    for broker in range(3):
        cluster.stop_broker(broker)
        cluster.restart(broker)
        cluster.wait_isr(OFFSETS_TOPIC, 3)
        with Consumer(bootstrap_servers=cluster.bootstrap, group_id="g") as consumer:
            assert [at.offset for at in consumer.committed((topic, 0)).values()] == [17]
