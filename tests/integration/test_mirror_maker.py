"""Kafka's MirrorMaker 2 from one cluster of Headwater to another: records, configs, groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater import Admin, Consumer, Producer
from headwater.client.values import TopicPartition
from integration.cluster import LocalCluster
from integration.conftest import Start
from suites import java_programs, parts
from suites.killing import KillableProgram, wait_until
from suites.parts import INTEGRATIONS, MissingPartError

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(300)]
TOPIC, OTHER, LATER = "flights-2026", "not-mirrored", "flights-2027"
GROUP = "delays"
PARTITIONS = 3
RECORDS = 300
READ_BY_GROUP = 200
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 120.0


def test_topics_configs_and_groups_are_mirrored(start_cluster: Start, tmp_path: Path) -> None:
    try:
        jars = parts.mirror_maker_jars()
    except MissingPartError as error:
        pytest.skip(str(error))
    source, target = start_cluster(brokers=1), start_cluster(brokers=1)
    source.create_topic(TOPIC, PARTITIONS, retention_ms="86400001")
    source.create_topic(OTHER)
    produce(source, TOPIC, 0, RECORDS)
    with Consumer(TOPIC, **options(source), group_id=GROUP) as consumer:
        assert len(list(itertools.islice(consumer, READ_BY_GROUP))) == READ_BY_GROUP
        consumer.commit()
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    command = java_programs.java(jars, main, configured(tmp_path, source, target))
    with KillableProgram(command, tmp_path / "mm2.log") as mirror, target.admin() as admin:

        def wait(holds: Callable[[], bool], what: str) -> None:
            wait_until(lambda: mirror.exit_code() is not None or holds(), what, WAIT_S)
            assert mirror.exit_code() is None, mirror.last_words()

        wait(lambda: has_records(admin, target, TOPIC, RECORDS), "records")
        source.create_topic(LATER)
        produce(source, LATER, 0, 10)
        wait(lambda: has_records(admin, target, LATER, 10), "a topic that came later")
        wait(lambda: GROUP in [group.group_id for group in admin.list_groups()], "the group")
        assert read(target, TOPIC) == read(source, TOPIC)
        assert OTHER not in admin.list_topics()
        configs = admin.describe_configs("topic", TOPIC)
        assert configs["retention.ms"].value == "86400001"
        translated = admin.list_group_offsets(GROUP)
    with source.admin() as admin:
        committed = admin.list_group_offsets(GROUP)
    # Some records may be read again, none is passed over.
    for partition, at in translated.items():
        assert 0 <= at.offset <= behind(target, source, partition, committed[partition].offset)


def produce(cluster: LocalCluster, topic: str, start: int, end: int) -> None:
    """Records of every codec, with a key, a header and a timestamp."""
    for number, codec in enumerate(CODECS):
        with Producer(cluster.bootstrap, compression_type=codec) as producer:
            for i in range(start + number, end, len(CODECS)):
                headers = [("codec", codec.encode())]
                producer.send(topic, f"v{i}", f"k{i % 7}", headers, 1_700_000_000_000 + i)


def read(cluster: LocalCluster, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """What is in each partition, in order, without the offsets: a transaction takes one, too."""
    found: dict[int, list[tuple[object, ...]]] = {}
    with Consumer(topic, **options(cluster)) as consumer:
        for r in consumer:
            row = (r.key, r.value, tuple(r.headers), r.timestamp)
            found.setdefault(r.partition, []).append(row)
    return found


def behind(
    target: LocalCluster, source: LocalCluster, partition: TopicPartition, offset: int
) -> int:
    """The target's offset of the source's record at `offset`, or of the end behind the last one."""
    order = (TOPIC, partition.partition)
    with Consumer(TOPIC, **options(source)) as consumer:
        before = sum(1 for r in consumer if (r.topic, r.partition) == order and r.offset < offset)
    with Consumer(TOPIC, **options(target)) as consumer:
        offsets = [r.offset for r in consumer if (r.topic, r.partition) == order]
    return offsets[before] if before < len(offsets) else offsets[-1] + 2  # the marker behind it


def has_records(admin: Admin, cluster: LocalCluster, topic: str, count: int) -> bool:
    """Whether the topic is there with so many committed records."""
    if topic not in admin.list_topics():
        return False
    return sum(len(rows) for rows in read(cluster, topic).values()) >= count


def options(cluster: LocalCluster) -> dict[str, object]:
    """Of a reader of all that is there."""
    return {
        "bootstrap_servers": cluster.bootstrap,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "consumer_timeout_ms": 1_000,
    }


def configured(folder: Path, source: LocalCluster, target: LocalCluster) -> str:
    """The example's file with the addresses of the test."""
    text = (INTEGRATIONS / "mirrormaker" / "mm2.properties").read_text()
    for old, new in (("127.0.0.1:9092", source.bootstrap), ("127.0.0.1:9192", target.bootstrap)):
        assert old in text
        text = text.replace(old, new)
    file = folder / "mm2.properties"
    file.write_text(text)
    return str(file)
