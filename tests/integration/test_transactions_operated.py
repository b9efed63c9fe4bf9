"""What an operator sees of transactions and does to them: `Admin` and `headwater transactions`.

The same test runs against Apache Kafka and against our brokers: both answer alike. Stock producers
of librdkafka open the transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from peers import KafkaPeer, bench_folder

from headwater import Admin, Consumer, KafkaError, NewTopic, ProducerIdAndEpoch, TopicPartition
from headwater.cli.main import run_command
from headwater.cli.transactions import transactions
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.errors import ProducerFencedError
from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from integration import clients
from integration.cluster import LocalCluster

pytestmark = pytest.mark.integration

WAIT_S = 60.0
BEFORE_IMPLICIT_ADD = 11
"""The last Produce version that does not add the partition to the transaction (KIP-890)."""
UNVERIFIED = "transaction.partition.verification.enable"


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """The bootstrap servers of a broker of Apache Kafka."""
    peer = KafkaPeer(bench_folder("operated"))
    try:
        yield peer.start().bootstrap
    finally:
        peer.stop()


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Of Apache Kafka, or of three brokers of ours."""
    if request.param == "kafka":
        return str(request.getfixturevalue("kafka"))
    cluster: LocalCluster = request.getfixturevalue("shared_cluster")
    return str(cluster.bootstrap)


BROKERS = [pytest.param("kafka", marks=pytest.mark.long), "ours"]
both = pytest.mark.parametrize("bootstrap", BROKERS, indirect=True)


def until(holds: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.1)
    return found


def topic_of(bootstrap: str, name: str, partitions: int = 1) -> str:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)])
        until(lambda: admin.list_offsets({(name, 0): -1}), "it has a leader")
    return name


def opened(bootstrap: str, name: str, topic: str) -> confluent_kafka.Producer:
    more = {"client.id": "app-1", "log_level": 0}
    return clients.begin_transaction(bootstrap, name, topic, **more)


def run(bootstrap: str, *arguments: str, code: int = 0) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        given = [*arguments, "--bootstrap-server", bootstrap]
        found = run_command(transactions, given, "headwater transactions")
    assert found == code, f"{arguments}: {found}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


def answer(bootstrap: str, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(bootstrap, *arguments, "--json", code=code)[0])


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """What a reader of read_committed gets up to the last stable offset."""
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(topic, 0)])
        rows = consumer.poll(3_000)
        return [record.value for part in rows.values() for record in part]


@both
def test_a_live_transaction_is_listed_shown_and_found_as_a_blocker(bootstrap: str) -> None:
    topic = topic_of(bootstrap, "seen")
    producer = opened(bootstrap, "seen-1", topic)
    with Admin(bootstrap) as admin:
        (row,) = admin.list_transactions(states=["Ongoing"], transactional_id_pattern="seen-.*")
        assert (row.transactional_id, row.state) == ("seen-1", "Ongoing")
        assert admin.list_transactions(producer_ids=[row.producer_id]) == [row]
        assert row in admin.list_transactions(older_than_ms=0)
        assert row not in admin.list_transactions(older_than_ms=3_600_000)
        assert row not in admin.list_transactions(states=["Empty", "CompleteCommit"])
        described = admin.describe_transactions(["seen-1"])["seen-1"]
        assert described.partitions == (TopicPartition(topic, 0),)
        assert (described.producer_id, described.state) == (row.producer_id, "Ongoing")
        assert described.timeout_ms == 60_000 and described.start_ms is not None
        (blocker,) = admin.transaction_blockers([topic])
        assert (blocker.transactional_id, blocker.producer_id) == ("seen-1", row.producer_id)
        assert (blocker.first_offset, blocker.last_stable_offset) == (0, 0)
        assert blocker.high_watermark == 1 and not blocker.is_hanging
        assert blocker.coordinator == row.coordinator
        assert blocker.times_out_in_ms is not None and 0 < blocker.times_out_in_ms <= 60_000
        everywhere = {(b.topic, b.transactional_id) for b in admin.transaction_blockers()}
        assert (topic, "seen-1") in everywhere
        assert admin.find_hanging_transactions([topic], max_transaction_timeout_ms=0) == []
        with pytest.raises(KafkaError) as error:
            admin.describe_transactions(["never-made"])
        assert error.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    (shown,) = answer(bootstrap, "blockers", topic)
    assert (shown["topic"], shown["partition"], shown["state"]) == (topic, 0, "Ongoing")
    table = run(bootstrap, "blockers", topic)[0]
    assert f"{topic}-0" in table and "seen-1" in table
    assert "seen-1" in run(bootstrap, "list", "--state", "ongoing")[0]
    assert f"{topic}-0" in run(bootstrap, "show", "seen-1")[0]
    assert "never-made does not exist" in run(bootstrap, "show", "never-made", code=1)[1]
    assert "no transaction hangs" in run(bootstrap, "find-hanging", topic)[0]
    producer.commit_transaction(WAIT_S)
    until(lambda: "no open transaction" in run(bootstrap, "blockers", topic)[0], "it is free")
    assert committed(bootstrap, topic) == [b"v"]


@both
def test_an_operator_aborts_a_live_transaction_and_fences_its_producer(bootstrap: str) -> None:
    topic = topic_of(bootstrap, "aborted")
    producer = opened(bootstrap, "aborted-1", topic)
    dry = answer(bootstrap, "abort", "aborted-1")
    assert (dry["state"], dry["executed"]) == ("Ongoing", False)
    assert "a dry run" in run(bootstrap, "abort", "aborted-1")[0]
    assert answer(bootstrap, "show", "aborted-1")[0]["state"] == "Ongoing"
    where = ("--partition", f"{topic}:0", "--start-offset", "0")
    refused = run(bootstrap, "abort", *where, "--execute", code=1)[1]
    assert "does not hang" in refused and "headwater transactions abort aborted-1" in refused
    assert "aborted the transaction" in run(bootstrap, "abort", "aborted-1", "--execute")[0]
    until(lambda: "no open transaction" in run(bootstrap, "blockers", topic)[0], "it is free")
    with pytest.raises(confluent_kafka.KafkaException) as error:
        producer.commit_transaction(WAIT_S)
    assert error.value.args[0].fatal(), error.value
    assert committed(bootstrap, topic) == []
    ended = run(bootstrap, "abort", "aborted-1", "--execute", code=1)[1]
    assert "has no open transaction" in ended


@both
def test_an_operator_commits_what_a_dead_producer_prepared(bootstrap: str) -> None:
    topic = topic_of(bootstrap, "prepared")
    producer = opened(bootstrap, "prepared-1", topic)
    with Admin(bootstrap) as admin:
        d = admin.describe_transactions(["prepared-1"])["prepared-1"]
        handle = ProducerIdAndEpoch(d.producer_id, d.producer_epoch)
        with pytest.raises((ProducerFencedError, KafkaError)) as fenced:
            later = ProducerIdAndEpoch(handle.producer_id, handle.producer_epoch + 5)
            admin.end_transaction("prepared-1", later, commit=True)
        assert fenced.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        admin.end_transaction("prepared-1", handle, commit=True)
        until(lambda: not admin.transaction_blockers([topic]), "it is free")
        admin.end_transaction("prepared-1", handle, commit=True)  # a repeated call succeeds
        with pytest.raises(KafkaError) as other:
            admin.end_transaction("prepared-1", handle, commit=False)
        assert other.value.code is ErrorCode.INVALID_TXN_STATE
    assert committed(bootstrap, topic) == [b"v"]
    del producer
    again = opened(bootstrap, "prepared-1", topic)
    said = run(bootstrap, "commit", "prepared-1", "--execute")[0]
    assert "committed the transaction of prepared-1" in said
    until(lambda: len(committed(bootstrap, topic)) == 2, "both are there")
    del again


@both
def test_fence_producers_ends_what_is_open(bootstrap: str) -> None:
    topic = topic_of(bootstrap, "fenced")
    producer = opened(bootstrap, "fenced-1", topic)
    with Admin(bootstrap) as admin:
        before = admin.describe_transactions(["fenced-1"])["fenced-1"]
        after = admin.fence_producers(["fenced-1"])["fenced-1"]
        assert after.producer_id == before.producer_id
        assert after.producer_epoch > before.producer_epoch
        until(lambda: not admin.transaction_blockers([topic]), "it is free")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(WAIT_S)


def write_unverified(bootstrap: str, topic: str, producer: ProducerIdAndEpoch) -> int:
    """Append a transactional batch that no coordinator knows of; its offset."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000) - 5_000, b"k", b"lost", [])
    records = builder.build(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=30_000,
        topic_data=(
            TopicProduceData(
                name=topic,
                partition_data=(PartitionProduceData(index=0, records=bytes(records)),),
            ),
        ),
    )

    async def send() -> int:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        cluster = Cluster([(host, int(port))], ClusterOptions())
        try:
            await cluster.bootstrap(10_000)
            connection = await cluster.connection(await cluster.leader(topic, 0))
            reply = await connection.call(request, ProduceResponse, version=BEFORE_IMPLICIT_ADD)
            row = reply.responses[0].partition_responses[0]
            assert not row.error_code, row
            return row.base_offset
        finally:
            await cluster.close()

    return asyncio.run(send())


@pytest.mark.long
def test_a_hanging_transaction_is_found_and_aborted(kafka: str) -> None:
    """As a broker before KIP-890 left it: the leader did not ask the coordinator."""
    topic = topic_of(kafka, "hangs")
    with Admin(kafka) as admin:
        admin.alter_configs("broker", "", {UNVERIFIED: "false"})
        lost = ProducerIdAndEpoch(987_654, 3)
        offset = until(lambda: _written(kafka, topic, lost), "the broker does not verify")
        admin.alter_configs("broker", "", {UNVERIFIED: None})
        assert admin.find_hanging_transactions([topic]) == [], "its last batch is too new"
        (row,) = admin.find_hanging_transactions([topic], max_transaction_timeout_ms=1_000)
        assert (row.topic, row.partition, row.first_offset) == (topic, 0, offset[0])
        assert (row.producer_id, row.producer_epoch, row.transactional_id) == (*lost, None)
        node = admin.describe_topics([topic])[topic].partitions[0].leader
        found = admin.find_hanging_transactions(broker=node, max_transaction_timeout_ms=1_000)
        assert row in found
        (blocker,) = admin.transaction_blockers([topic])
        assert blocker.is_hanging and blocker.state is None and blocker.age_ms >= 5_000
        with pytest.raises(KafkaError, match="begins at offset 77: its open transactions begin at"):
            admin.abort_transaction((topic, 0), first_offset=77)
    short = ("--max-transaction-timeout", "1000")
    (shown,) = answer(kafka, "find-hanging", topic, *short, code=1)
    assert tuple(shown.values()) == row
    assert str(lost.producer_id) in run(kafka, "find-hanging", topic, *short, code=1)[0]
    assert "hanging" in run(kafka, "blockers", topic)[0]
    where = ("--partition", f"{topic}:0", "--start-offset", str(offset[0]))
    assert "a dry run" in run(kafka, "abort", *where)[0]
    assert (
        "no transaction of hangs-0 from offset 5"
        in (run(kafka, "abort", "--partition", f"{topic}:0", "--start-offset", "5", code=1)[1])
    )
    assert answer(kafka, "abort", *where, "--execute")["executed"]
    assert "no transaction hangs" in run(kafka, "find-hanging", topic, *short)[0]
    assert "no open transaction blocks" in run(kafka, "blockers", topic)[0]


def _written(bootstrap: str, topic: str, producer: ProducerIdAndEpoch) -> list[int]:
    """The offset of the batch in a list; empty while the broker refuses."""
    try:
        return [write_unverified(bootstrap, topic, producer)]
    except AssertionError:
        return []
