"""Every stock client writes, every stock client reads, and all see the same records."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest

from headwater import Producer
from headwater.errors import UsageError
from integration import clients
from integration.clients import (
    BINARY,
    CANONICAL,
    CODECS,
    READERS,
    T0,
    WRITERS,
    Rec,
    Start,
    same,
    writable,
)
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

PYTHON_WRITERS = [name for name in WRITERS if name != "console"]
PYTHON_READERS = [name for name in READERS if name != "console"]
CLOCK_SLACK_MS = 1_000

Written = Callable[[str], tuple[str, list[Rec]]]


@pytest.fixture(scope="module")
def written(shared_cluster: LocalCluster) -> Written:
    """`written(writer)`: a topic that this client filled, once per codec, and what is in it.

    Text first, then bytes, as no console shows bytes.
    """
    topics: dict[str, tuple[str, list[Rec]]] = {}

    def fill(writer: str) -> tuple[str, list[Rec]]:
        if writer not in topics:
            topic = shared_cluster.create_topic(f"matrix-{writer}")
            records: list[Rec] = []
            for part in (CANONICAL, BINARY):
                rows = writable(writer, part)
                for codec in CODECS if rows else ():
                    told = WRITERS[writer](shared_cluster.bootstrap, topic, rows, codec)
                    here = range(len(records), len(records) + len(rows))
                    assert told == list(here) or writer == "console", (codec, told)
                    records += rows
            topics[writer] = topic, records
        return topics[writer]

    return fill


def long_pair(writer: str, reader: str) -> bool:
    """The console tools start a JVM each time: one of their pairs shows that they read ours."""
    return writer == "console" or (reader == "console" and writer != "sdk")


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param(w, r, marks=pytest.mark.long if long_pair(w, r) else ())
        for w in WRITERS
        for r in READERS
    ],
)
def test_every_reader_sees_what_every_writer_wrote(
    shared_cluster: LocalCluster, written: Written, writer: str, reader: str
) -> None:
    topic, records = written(writer)
    if reader == "console":
        records = [r for r in records if r not in BINARY]
    rows = READERS[reader](shared_cluster.bootstrap, topic, len(records))
    same(rows, records)
    assert [r.offset for r in rows] == list(range(len(records)))


@pytest.mark.parametrize("acks", ["0", "1"])
@pytest.mark.parametrize(
    "writer", [*PYTHON_WRITERS, pytest.param("console", marks=pytest.mark.long)]
)
def test_acks(shared_cluster: LocalCluster, writer: str, acks: str) -> None:
    topic = shared_cluster.create_topic(f"acks-{acks}-{writer}")
    WRITERS[writer](shared_cluster.bootstrap, topic, writable(writer), "none", acks)
    rows = READERS["confluent-kafka"](shared_cluster.bootstrap, topic, len(writable(writer)))
    same(rows, writable(writer))


@pytest.mark.parametrize("writer", PYTHON_WRITERS)
def test_without_a_timestamp_it_is_the_clients_clock(
    shared_cluster: LocalCluster, writer: str
) -> None:
    topic = shared_cluster.create_topic(f"now-{writer}")
    before = time.time() * 1000 - CLOCK_SLACK_MS
    WRITERS[writer](shared_cluster.bootstrap, topic, [Rec(b"k", b"v")])
    after = time.time() * 1000 + CLOCK_SLACK_MS
    for read in (READERS[name] for name in PYTHON_READERS):
        assert before <= read(shared_cluster.bootstrap, topic, 1)[0].timestamp <= after


@pytest.mark.parametrize("writer", ["sdk", "kafka-python", "aiokafka"])
def test_timestamp_minus_one_is_kept(shared_cluster: LocalCluster, writer: str) -> None:
    topic = shared_cluster.create_topic(f"minus-one-{writer}")
    WRITERS[writer](shared_cluster.bootstrap, topic, [Rec(b"k", b"v", (), -1)])
    for name in PYTHON_READERS:
        seen = READERS[name](shared_cluster.bootstrap, topic, 1)[0]
        assert (seen.key, seen.value) == (b"k", b"v")
        assert seen.timestamp == -1, name


@pytest.mark.parametrize("timestamp", [-2, 2**63])
def test_what_is_no_timestamp_is_refused(shared_cluster: LocalCluster, timestamp: int) -> None:
    topic = shared_cluster.create_topic("no-timestamp" if timestamp < 0 else "late-timestamp")
    with Producer(shared_cluster.bootstrap) as producer:
        with pytest.raises(UsageError, match=f"timestamp {timestamp}"):
            producer.send(topic, b"v", timestamp=timestamp)
        assert producer.send(topic, b"v").result(20).offset == 0


def test_a_topic_with_append_time_takes_the_brokers_clock(shared_cluster: LocalCluster) -> None:
    topic = shared_cluster.create_topic("append-time", message_timestamp_type="LogAppendTime")
    before = time.time() * 1000 - CLOCK_SLACK_MS
    for writer in PYTHON_WRITERS:
        WRITERS[writer](shared_cluster.bootstrap, topic, [Rec(b"k", b"v", (), T0)], "lz4")
    after = time.time() * 1000 + CLOCK_SLACK_MS
    for name in PYTHON_READERS:
        rows = READERS[name](shared_cluster.bootstrap, topic, len(PYTHON_WRITERS))
        assert all(before <= r.timestamp <= after for r in rows), (name, rows)


@pytest.mark.parametrize("reader", PYTHON_READERS)
def test_positions(shared_cluster: LocalCluster, reader: str) -> None:
    topic = shared_cluster.create_topic(f"positions-{reader}")
    bootstrap, read = shared_cluster.bootstrap, READERS[reader]
    count = len(CANONICAL)

    def write() -> None:
        clients.write_confluent(bootstrap, topic, CANONICAL, "zstd")

    write()
    same(read(bootstrap, topic, count), CANONICAL)
    for at in (0, 1, count // 2, count - 1):
        rows = read(bootstrap, topic, count - at, Start("offset", at))
        same(rows, CANONICAL[at:])
        assert rows[0].offset == at
    for asked, at in ((0, 0), (T0, 0), (T0 + 1, 1), (T0 + 50, 5), (T0 + 99, count - 1)):
        same(read(bootstrap, topic, count - at, Start("timestamp", asked)), CANONICAL[at:])
    rows = read(bootstrap, topic, count, clients.END, write)
    same(rows, CANONICAL)
    assert rows[0].offset == count


def test_idempotent_producers(shared_cluster: LocalCluster) -> None:
    """The SDK and kafka-python by default (the matrix), the others when asked."""
    topic = shared_cluster.create_topic("idempotent")
    records = writable("aiokafka")
    clients.write_aiokafka_idempotent(shared_cluster.bootstrap, topic, records)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": shared_cluster.bootstrap, "enable.idempotence": True}
    )
    for r in records:
        producer.produce(topic, r.value, r.key, 0, headers=list(r.headers), timestamp=r.timestamp)
    assert producer.flush(30) == 0
    for name in PYTHON_READERS:
        same(READERS[name](shared_cluster.bootstrap, topic, 2 * len(records)), records * 2)
