"""Kafka's own command-line tools against our cluster, and on our files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from peers import kafka_tool

from integration import clients
from integration.clients import CANONICAL, CODECS
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

TOOLS = "org.apache.kafka.tools"
PERF_RECORDS = 20_000
SEGMENT_BYTES = 1 << 20


def replica_folder(cluster: LocalCluster, topic: str, partition: int = 0) -> Path:
    """A replica's folder on the disk of broker 0."""
    return next(cluster.spec.slot(0).folder.rglob(f"{topic}-{partition}"))


def tool(cluster: LocalCluster, name: str, *arguments: str) -> str:
    """Run a tool that wants --bootstrap-server."""
    return kafka_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments)


def dump(*files: Path) -> str:
    """What DumpLogSegments makes of files."""
    return kafka_tool(f"{TOOLS}.DumpLogSegments", "--files", ",".join(map(str, files)))


def test_topics_and_configs_by_the_admin_tools(shared_cluster: LocalCluster) -> None:
    def topics(*arguments: str) -> str:
        return tool(shared_cluster, f"{TOOLS}.TopicCommand", *arguments)

    def configs(*arguments: str) -> str:
        return tool(shared_cluster, "kafka.admin.ConfigCommand", *arguments, "--topic", "by-tool")

    topics("--create", "--topic", "by-tool", "--partitions", "2", "--replication-factor", "3")
    assert "by-tool" in topics("--list").split()
    topics("--alter", "--topic", "by-tool", "--partitions", "3")
    configs("--alter", "--add-config", "retention.ms=1234567")
    assert "retention.ms=1234567 sensitive=false" in configs("--describe")
    with pytest.raises(RuntimeError, match=r"no\.such"):
        configs("--alter", "--add-config", "no.such=1")
    described = topics("--describe", "--topic", "by-tool")
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    assert len(re.findall(r"Isr: \d,\d,\d", described)) == 3
    topics("--delete", "--topic", "by-tool")
    with pytest.raises(RuntimeError, match="does not exist"):
        topics("--describe", "--topic", "by-tool")


def test_offsets_by_get_offset_shell(shared_cluster: LocalCluster) -> None:
    topic = shared_cluster.create_topic("shell", partitions=2)
    clients.write_confluent(shared_cluster.bootstrap, topic, CANONICAL)

    def offsets(time: str) -> list[str]:
        name = f"{TOOLS}.GetOffsetShell"
        return tool(shared_cluster, name, "--topic", topic, "--time", time).split()

    count = len(CANONICAL)
    assert offsets("latest") == [f"{topic}:0:{count}", f"{topic}:1:0"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("max-timestamp")[0] == f"{topic}:0:{count - 1}"
    assert offsets(str(clients.T0 + 21))[0] == f"{topic}:0:3"


def test_performance_tools(shared_cluster: LocalCluster) -> None:
    """The consumer is a member of a group; the producer is idempotent, as is Java's default."""
    topic = shared_cluster.create_topic("perf", partitions=3)
    told = kafka_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", shared_cluster.bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(PERF_RECORDS), "--record-size", "100"),
        *("--command-property", "compression.type=lz4"),
    )
    assert f"{PERF_RECORDS} records sent" in told
    name = f"{TOOLS}.ConsumerPerformance"
    asked = ("--topic", topic, "--num-records", str(PERF_RECORDS), "--timeout", "20000")
    rows = tool(shared_cluster, name, *asked).splitlines()
    assert int(rows[-1].split(", ")[4]) == PERF_RECORDS, rows


def test_dump_log_segments_reads_our_files(shared_cluster: LocalCluster) -> None:
    topic = shared_cluster.create_topic("dumped", segment_bytes=str(SEGMENT_BYTES))
    for codec in CODECS:
        clients.write_kafka_python(
            shared_cluster.bootstrap, topic, clients.writable("kafka-python"), codec
        )
    for _ in range(3):
        big = [clients.Rec(b"k", b"v" * 10_000, (), clients.T0 + n) for n in range(60)]
        clients.write_kafka_python(shared_cluster.bootstrap, topic, big)
    folder = replica_folder(shared_cluster, topic)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 2
    text = dump(*logs)
    assert set(re.findall(r"compresscodec: (\w+)", text)) == set(CODECS)
    assert "isvalid: false" not in text and "invalid" not in text.lower()
    assert re.search(r"baseSequence: 0 .*producerId: \d+ producerEpoch: 0", text)
    last = re.findall(r"lastOffset: (\d+)", text)[-1]
    assert int(last) + 1 == len(CODECS) * len(clients.writable("kafka-python")) + 180
    # The rolled segment's indexes; DumpLogSegments checks each entry against the log.
    index = dump(logs[0].with_suffix(".index"))
    assert re.search(r"offset: \d+ position: \d+", index)
    assert "Mismatch" not in index
    times = dump(logs[0].with_suffix(".timeindex"))
    assert re.search(r"timestamp: \d+ offset: \d+", times)
    for complaint in ("Found timestamp mismatch", "Found out of order", "should be"):
        assert complaint not in times
    snapshot = dump(sorted(folder.glob("*.snapshot"))[0])
    assert re.search(r"producerId: \d+ producerEpoch: 0 ", snapshot)
