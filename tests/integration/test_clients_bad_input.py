"""Bad input from clients: a clear error for its sender, no effect on others, no lost record."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import kafka
import kafka.errors
import pytest

from headwater import Consumer, Producer
from headwater.client.admin.client import Admin
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import NewTopic
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater.records.batch import AT_CRC, AT_MAGIC
from headwater.records.builder import BatchBuilder
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.headers import RequestHeader
from headwater.wire.schema import decode, encode
from integration import clients
from integration.clients import CANONICAL, same
from integration.cluster import LocalCluster
from integration.conftest import Start

pytestmark = pytest.mark.integration

PRODUCE_VERSION = 9
CONTROL_TIMEOUT_S = 30.0
HEADWATER = str(Path(sys.executable).parent / "headwater")


def connect(cluster: LocalCluster, broker_id: int = 0) -> socket.socket:
    """A bare connection to a broker."""
    return socket.create_connection(("127.0.0.1", cluster.spec.slot(broker_id).port), 10)


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; fewer when the other side closes."""
    out = b""
    while len(out) < size:
        part = sock.recv(size - len(out))
        if not part:
            break
        out += part
    return out


def produce_batch(cluster: LocalCluster, topic: str, batch: bytes, partition: int = 0) -> int:
    """Send a batch as it is to the partition's leader (partition 0's); the error code."""
    body = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=(
            TopicProduceData(
                name=topic,
                partition_data=(PartitionProduceData(index=partition, records=batch),),
            ),
        ),
    )
    header = RequestHeader(
        request_api_key=0,
        request_api_version=PRODUCE_VERSION,
        correlation_id=1,
        client_id="raw",
    )
    frame = encode(header, 2) + encode(body, PRODUCE_VERSION)
    with connect(cluster, cluster.leader_of(topic)) as sock:
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", receive(sock, 4))[0]
        reply = receive(sock, size)
    response = decode(ProduceResponse, PRODUCE_VERSION, memoryview(reply)[5:])
    return response.responses[0].partition_responses[0].error_code


def good_batch() -> bytearray:
    """A batch of one record."""
    builder = BatchBuilder()
    builder.append(clients.T0, b"k", b"v")
    return builder.build()


@pytest.mark.parametrize("fault", ["crc", "magic", "cut", "size"])
def test_a_bad_batch_is_refused_and_the_log_is_as_before(
    shared_cluster: LocalCluster, fault: str
) -> None:
    topic = shared_cluster.create_topic(f"bad-batch-{fault}", max_message_bytes="2000")
    clients.write_sdk(shared_cluster.bootstrap, topic, [clients.Rec(b"k", b"before")])
    batch = good_batch()
    expected = {ErrorCode.CORRUPT_MESSAGE}
    if fault == "crc":
        batch[AT_CRC] ^= 1
    elif fault == "magic":
        batch[AT_MAGIC] = 7
        expected = {ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
        expected.add(ErrorCode.CORRUPT_MESSAGE)
    elif fault == "cut":
        del batch[-3:]
    else:
        builder = BatchBuilder()
        builder.append(clients.T0, b"k", b"v" * 3_000)
        batch = builder.build()
        expected = {ErrorCode.MESSAGE_TOO_LARGE}
    assert produce_batch(shared_cluster, topic, bytes(batch)) in expected
    assert produce_batch(shared_cluster, topic, bytes(good_batch())) == 0
    rows = clients.read_confluent(shared_cluster.bootstrap, topic, 2)
    assert [r.value for r in rows] == [b"before", b"v"]


def test_an_oversized_record_is_told_by_every_client(shared_cluster: LocalCluster) -> None:
    topic = shared_cluster.create_topic("oversized", max_message_bytes="5000")
    record = [clients.Rec(b"k", b"v" * 20_000)]
    for name in ("kafka-python", "aiokafka", "sdk"):
        with pytest.raises(Exception, match=r"(?i)too.?large|larger|MessageSizeTooLarge"):
            clients.WRITERS[name](shared_cluster.bootstrap, topic, record)
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        clients.write_confluent(shared_cluster.bootstrap, topic, record)
    same(_after_a_good_write(shared_cluster, topic), CANONICAL[:1])


def _after_a_good_write(cluster: LocalCluster, topic: str) -> list[clients.Seen]:
    clients.write_confluent(cluster.bootstrap, topic, CANONICAL[:1])
    return clients.read_sdk(cluster.bootstrap, topic, 1)


def test_a_partition_out_of_range(shared_cluster: LocalCluster) -> None:
    topic = shared_cluster.create_topic("one-partition")
    code = produce_batch(shared_cluster, topic, bytes(good_batch()), partition=7)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Producer(shared_cluster.bootstrap) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 0"):
            producer.send(topic, b"v", partition=7)
        assert producer.send(topic, b"v", partition=0).result(10).offset == 0
    with (
        Consumer(bootstrap_servers=shared_cluster.bootstrap) as consumer,
        pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 0"),
    ):
        consumer.assign([(topic, 7)])


def test_an_unknown_topic(start_cluster: Start) -> None:
    """Without automatic creation."""
    cluster = start_cluster(brokers=1, auto_create_topics_enable="false")
    with (
        Producer(cluster.bootstrap, max_block_ms=1_000) as ours,
        pytest.raises(UnknownTopicOrPartitionError, match="absent"),
    ):
        ours.send("absent", b"v")
    with (
        Consumer(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=1_000) as consumer,
        pytest.raises(KafkaError, match="absent"),
    ):
        consumer.assign([("absent", 0)])
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    error = producer.list_topics("absent", timeout=10).topics["absent"].error
    assert error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    client = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, max_block_ms=1_000)
    with pytest.raises(kafka.errors.KafkaError):
        client.send("absent", b"v").get(5)
    client.close(5)


def test_unknown_options_and_configs_name_what_is_wrong(shared_cluster: LocalCluster) -> None:
    bootstrap = shared_cluster.bootstrap
    with pytest.raises(UsageError, match="did you mean 'group_id'"):
        Consumer(bootstrap_servers=bootstrap, groupid="g")
    with pytest.raises(UsageError, match="brotli"):
        Producer(bootstrap, compression_type="brotli")
    with shared_cluster.admin() as admin:
        with pytest.raises(HeadwaterError, match=r"retention\.sm"):
            admin.create_topics([NewTopic("bad", 1, 1, {"retention.sm": "1"})])
        with pytest.raises(HeadwaterError, match=r"retention\.ms.*soon"):
            admin.create_topics([NewTopic("bad", 1, 1, {"retention.ms": "soon"})])
        assert "bad" not in admin.list_topics()
    for arguments in (
        ("topics", "create", "bad", "--config", "retention.sm=1"),
        ("configs", "alter", "topic", "absent", "--set", "retention.ms=1"),
    ):
        command = [HEADWATER, *arguments, "--bootstrap-server", bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in {1, 2}, done
        assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr


MALFORMED = {
    "negative size": struct.pack(">i", -5),
    "absurd size": struct.pack(">i", 0x7FFFFFFF) + b"x" * 100,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unknown key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "too short": struct.pack(">ih", 2, 3),
    "client id past the end": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "metadata body cut": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1_000_000),
    "produce body cut": struct.pack(">ihhihhhi", 18, 0, 3, 1, -1, -1, -1, 5000),
    "fetch body cut": struct.pack(">ihhihiii", 22, 1, 4, 1, -1, -1, 100, 1),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_frame_closes_its_connection_only(
    shared_cluster: LocalCluster, what: str
) -> None:
    api_versions = struct.pack(">ihhih", 10, 18, 0, 77, -1)
    with connect(shared_cluster) as bystander, connect(shared_cluster) as bad:
        bystander.sendall(api_versions)
        size = struct.unpack(">i", receive(bystander, 4))[0]
        first = receive(bystander, size)
        bad.sendall(MALFORMED[what])
        bad.settimeout(10)
        try:
            assert bad.recv(1) == b"", "answered"
        except ConnectionResetError:
            pass  # closed with bytes of ours unread
        bystander.sendall(api_versions)
        size = struct.unpack(">i", receive(bystander, 4))[0]
        assert receive(bystander, size) == first


@pytest.mark.long
def test_zookeeper_gone_and_back(start_cluster: Start) -> None:
    """Records flow on without it; control operations fail clearly, and work again after."""
    cluster = start_cluster(brokers=3)
    topic = cluster.create_topic("steady", partitions=3, replication_factor=3)
    cluster.wait_isr(topic, 3)
    cluster.kill_zookeeper()
    clients.write_confluent(cluster.bootstrap, topic, CANONICAL)
    for slot in cluster.spec.slots:  # each of them has producer ids in reserve
        clients.write_sdk(slot.address, topic, CANONICAL)
    same(clients.read_confluent(cluster.bootstrap, topic, len(CANONICAL) * 4), CANONICAL * 4)
    began = time.monotonic()
    with (
        Admin(cluster.bootstrap, default_api_timeout_ms=20_000) as admin,
        pytest.raises(KafkaError, match=r"controller did not answer.*ZooKeeper") as refused,
    ):
        admin.create_topics([NewTopic("meanwhile", 1, 1)])
    assert refused.value.retriable
    assert time.monotonic() - began < CONTROL_TIMEOUT_S
    cluster.restart_zookeeper()

    def can_create() -> bool:
        try:
            cluster.create_topic("after", replication_factor=3)
        except KafkaError as error:
            assert error.retriable or error.code == ErrorCode.TOPIC_ALREADY_EXISTS, error
            return error.code == ErrorCode.TOPIC_ALREADY_EXISTS
        return True

    cluster.wait_until(can_create, "control operations after ZooKeeper is back", 60)
    for name in (topic, "after"):
        cluster.wait_isr(name, 3)
        clients.write_kafka_python(cluster.bootstrap, name, CANONICAL[:1])
    rows = clients.read_aiokafka(cluster.bootstrap, topic, len(CANONICAL) * 4 + 1)
    same(rows, CANONICAL * 4 + CANONICAL[:1])
