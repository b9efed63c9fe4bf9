"""The mirror between Apache Kafka and ours, both ways, killed in between; compacted logs too."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from peers import KafkaPeer

from headwater import Admin, NewTopic, Producer
from headwater.client.values import TopicPartition
from mirror_pair import (
    MirrorProcess,
    RunningMirror,
    mirrored,
    payloads,
    properties,
    read_all,
    run_cli,
    until,
)
from whole_cluster import ServedCluster

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(280)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of Apache Kafka."""
    fast_cleaner = {
        "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.bytes": "1048576",
    }  # fmt: skip
    peer = KafkaPeer(tmp_path_factory.mktemp("kafka") / "peer", properties=fast_cleaner)
    try:
        yield peer.start().bootstrap
    finally:
        peer.stop()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a broker of ours."""
    with ServedCluster(tmp_path_factory.mktemp("ours"), 1) as cluster:
        yield cluster.bootstrap


def write(servers: str, topic: str, turn: int) -> None:
    """Every codec, a committed transaction and an aborted one."""
    for codec in CODECS:
        with Producer(servers, compression_type=codec) as producer:
            for n in range(60):
                producer.send(topic, b"%d-%d" % (turn, n), key=b"k%d" % (n % 5), partition=n % 2)
    with Producer(servers, transactional_id=f"writer-{topic}") as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for n in range(6):
                producer.send(topic, end.__name__.encode(), partition=n % 2)
            end()


@pytest.mark.parametrize("direction", ["kafka to ours", "ours to kafka"])
def test_records_once_and_in_order_over_kills_and_offsets_translated(
    kafka: str, ours: str, tmp_path: Path, direction: str
) -> None:
    source, target = (kafka, ours) if direction.startswith("kafka") else (ours, kafka)
    topic = direction.replace(" ", "-")
    with Admin(source) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "7200000"})])
    given = {
        **properties(source, target, topics=topic, mirror_id=topic),
        "group.instance.id": "one", "replication.factor": "1",
    }  # fmt: skip
    with MirrorProcess(tmp_path, given) as mirror:
        for turn in range(4):
            write(source, topic, turn)
            time.sleep(0.3 * turn)
            mirror.end(signal.SIGKILL)
            mirror.start()
        until(lambda: mirrored(source, target, topic), "it catches up", 90)
        tp = TopicPartition(topic, 0)
        rows = read_all(source, topic)[0]
        with Admin(source) as there, Admin(target) as here:
            there.alter_group_offsets(f"group-{topic}", {tp: rows[100].offset})
            until(lambda: here.list_group_offsets(f"group-{topic}"), "the group is translated")
            at = here.list_group_offsets(f"group-{topic}")[tp].offset
            assert here.describe_configs("topic", topic)["retention.ms"].value == "7200000"
        copied = read_all(target, topic)
        assert next(r.value for r in copied[0] if r.offset >= at) == rows[100].value
        assert payloads(copied) == payloads(read_all(source, topic))
        report = json.loads(run_cli(tmp_path, given, "promote", "--json")[1])
        assert report["gap_records"] == 0
        until(lambda: mirror.ended() == 0, "the promoted mirror ends")


def test_what_kafkas_cleaner_left_is_rebuilt_and_keeps_its_places(kafka: str, ours: str) -> None:
    """Gaps within batches, which a target refuses, and delete horizons of tombstones."""
    topic = "compacted"
    configs = {
        "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "3600000",
    }  # fmt: skip
    with Admin(kafka) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs)])
    with Producer(kafka, compression_type="lz4", linger_ms=50) as producer:
        for n in range(200):
            key = b"once-%d" % n if n % 10 == 0 else b"k%d" % (n % 10)
            producer.send(topic, None if n % 50 == 0 else b"v%d" % n, key=key, partition=0)
    for n in range(3):  # a segment is cleaned once another is active
        time.sleep(0.3)
        with Producer(kafka) as producer:
            producer.send(topic, b"roll", key=b"roll-%d" % n, partition=0)
    until(partial(has_gaps, kafka, topic), "the cleaner ran", 60)
    given = properties(kafka, ours, topics=topic, mirror_id=topic)
    with RunningMirror(given):
        until(lambda: mirrored(kafka, ours, topic), "mirrored")
    copied, original = read_all(ours, topic), read_all(kafka, topic)
    assert payloads(copied) == payloads(original)
    assert any(r.value is None for r in copied[0])


def has_gaps(servers: str, topic: str) -> bool:
    rows = read_all(servers, topic)[0]
    return len(rows) < 150
