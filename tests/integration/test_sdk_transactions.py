"""The SDK's transactions against real brokers: Apache Kafka in both versions, and ours."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from peers import KafkaPeer, kafka_tool

from headwater import (
    AbortableTransactionError,
    Admin,
    CheckpointedProducer,
    Consumer,
    ErrorCode,
    FatalTransactionError,
    NewTopic,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from integration.cluster import LocalCluster
from integration.conftest import Start

WAIT_S = 30.0
END_PREPARED = """
import sys
from headwater import PreparedTransaction
getattr(PreparedTransaction.from_json(sys.argv[2]), sys.argv[3])(sys.argv[1])
"""
FEATURES = "org.apache.kafka.tools.FeatureCommand"
_numbers = itertools.count()
ON_KAFKA = [pytest.param(peer, marks=pytest.mark.long) for peer in ("kafka-v2", "kafka-v1")]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    peer = KafkaPeer(tmp_path_factory.mktemp("peer") / "kafka")
    try:
        yield peer.start()
    finally:
        peer.stop()


@pytest.fixture(scope="module", params=[*ON_KAFKA, "headwater"])
def servers(request: pytest.FixtureRequest) -> str:
    """`bootstrap_servers` of a cluster."""
    if request.param == "headwater":
        cluster: LocalCluster = request.getfixturevalue("shared_cluster")
        return cluster.bootstrap
    peer: KafkaPeer = request.getfixturevalue("kafka")
    version = int(request.param[-1])
    verb = "upgrade" if version == 2 else "downgrade"
    feature = f"transaction.version={version}"
    kafka_tool(FEATURES, "--bootstrap-server", peer.bootstrap, verb, "--feature", feature)
    return peer.bootstrap


class Names(NamedTuple):
    """What one test writes to."""

    topic: str
    source: str
    transactional_id: str
    group: str


@pytest.fixture
def n(servers: str) -> Names:
    number = next(_numbers)
    names = Names(*(f"{kind}-{number}" for kind in ("out", "in", "id", "group")))
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(names.topic, 2, 1), NewTopic(names.source, 2, 1)])
    return names


def values(servers: str, topic: str, **options: Any) -> list[bytes]:
    """All visible values, sorted; the reader has read to the end of each partition."""
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
        partitions = [TopicPartition(topic, p) for p in range(2)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        rows: list[bytes] = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for found in consumer.poll(200).values():
                rows += [row.value or b"" for row in found]
    return sorted(rows)


def test_committed_records_are_read_and_aborted_ones_are_not(servers: str, n: Names) -> None:
    """By records and by columns; a table is part of the transaction too."""
    table = pa.table({"v": [f"table-{i}" for i in range(10)]})
    with Producer(servers, transactional_id=n.transactional_id) as producer:
        with producer.transaction():
            for i in range(4):
                producer.send(n.topic, b"a%d" % i, partition=i % 2)
            producer.send_table(n.topic, table, value="v", partition=0)
        producer.begin_transaction()
        producer.send(n.topic, b"aborted", partition=0).result(WAIT_S)
        producer.send_table(n.topic, table, value="v", partition=0).result(WAIT_S)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(n.topic, b"c", partition=0)
    expected = sorted([b"a0", b"a1", b"a2", b"a3", b"c", *(b"table-%d" % i for i in range(10))])
    assert values(servers, n.topic) == expected
    everything = values(servers, n.topic, isolation_level="read_uncommitted")
    assert everything.count(b"aborted") == 1 and everything.count(b"table-3") == 2
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(n.topic, p) for p in range(2)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[bytes] = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            found += consumer.poll_arrow(timeout_ms=200).column("value").to_pylist()
    assert sorted(found) == expected


def test_an_open_transaction_holds_readers_back(servers: str, n: Names) -> None:
    tp = TopicPartition(n.topic, 0)
    with (
        Producer(servers) as plain,
        Producer(servers, transactional_id=n.transactional_id) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        plain.send(n.topic, b"before", partition=0).result(WAIT_S)
        producer.begin_transaction()
        producer.send(n.topic, b"open", partition=0).result(WAIT_S)
        plain.send(n.topic, b"behind", partition=0).result(WAIT_S)
        consumer.assign([tp])
        assert consumer.end_offsets([tp]) == {tp: 1}
        rows = [r.value for r in consumer.poll(5_000).get(tp, [])]
        rows += [r.value for r in consumer.poll(300).get(tp, [])]
        assert rows == [b"before"]
        producer.commit_transaction()
        while len(rows) < 3:
            rows += [r.value for r in consumer.poll(1_000).get(tp, [])]
        assert rows == [b"before", b"open", b"behind"]


def test_offsets_are_committed_with_the_records(servers: str, n: Names) -> None:
    with Producer(servers) as producer:
        for i in range(20):
            producer.send(n.source, b"%d" % i, partition=i % 2)
    with Producer(servers, transactional_id=n.transactional_id) as producer:
        for aborts in (True, False):
            with Consumer(
                n.source, bootstrap_servers=servers, group_id=n.group, enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer:  # fmt: skip
                read: list[bytes] = []
                producer.begin_transaction()
                while len(read) < 20:
                    for rows in consumer.poll(1_000).values():
                        read += [row.value or b"" for row in rows]
                        for row in rows:
                            producer.send(n.topic, row.value)
                    producer.send_offsets(None, consumer)
                if aborts:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
    assert values(servers, n.topic) == sorted(b"%d" % i for i in range(20))
    with Admin(servers) as admin:
        offsets = admin.list_group_offsets(n.group)
    assert sorted(o.offset for o in offsets.values()) == [10, 10]


def test_a_member_that_the_group_has_left_behind_cannot_commit(servers: str, n: Names) -> None:
    with (
        Consumer(
            n.source, bootstrap_servers=servers, group_id=n.group, enable_auto_commit=False
        ) as consumer,
        Producer(servers, transactional_id=n.transactional_id) as producer,
    ):
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(100)
        stale = consumer.group_metadata()
        assert stale.generation_id >= 1 and stale.member_id
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError) as got:
            old = stale._replace(generation_id=stale.generation_id - 1)
            producer.send_offsets({(n.source, 0): 1}, old)
        assert got.value.code is ErrorCode.ILLEGAL_GENERATION and got.value.remedy == "abort"
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets({(n.source, 0): 1}, stale)


def test_a_newer_producer_fences_the_older_one(servers: str, n: Names) -> None:
    with Producer(servers, transactional_id=n.transactional_id) as old:
        old.begin_transaction()
        old.send(n.topic, b"old", partition=0).result(WAIT_S)
        with Producer(servers, transactional_id=n.transactional_id) as new:
            with new.transaction():
                new.send(n.topic, b"new", partition=0)
            with pytest.raises(ProducerFencedError, match="newer producer"):
                old.commit_transaction()
            with pytest.raises(ProducerFencedError):
                old.begin_transaction()
            with new.transaction():
                new.send(n.topic, b"again", partition=0)
    assert values(servers, n.topic) == [b"again", b"new"]


def test_a_zombie_that_still_sends_is_fenced_at_the_abort(servers: str, n: Names) -> None:
    with Producer(servers, transactional_id=n.transactional_id) as old:
        old.begin_transaction()
        old.send(n.topic, b"old", partition=0).result(WAIT_S)
        with Producer(servers, transactional_id=n.transactional_id) as new:
            new.init_transactions()
            assert old.send(n.topic, b"older", partition=0).exception(WAIT_S) is not None
            with pytest.raises(ProducerFencedError):
                old.abort_transaction()
    assert values(servers, n.topic) == []


def test_another_process_ends_a_prepared_transaction(servers: str, n: Names) -> None:
    for verb in ("commit", "abort"):
        with Producer(servers, transactional_id=f"{n.transactional_id}-{verb}") as producer:
            producer.begin_transaction()
            producer.send(n.topic, verb, partition=0)
            handle = producer.prepare()
        assert verb.encode() not in values(servers, n.topic)
        command = [sys.executable, "-c", END_PREPARED, servers, handle.to_json(), verb]
        subprocess.run(command, check=True, timeout=WAIT_S)
        getattr(handle, verb)(servers)
    assert values(servers, n.topic) == [b"commit"]


def test_a_prepared_transaction_that_is_lost_is_an_error(servers: str, n: Names) -> None:
    with Producer(servers, transactional_id=n.transactional_id) as producer:
        producer.begin_transaction()
        producer.send(n.topic, b"lost", partition=0)
        handle = PreparedTransaction.from_json(producer.prepare().to_json())
    with Producer(servers, transactional_id=n.transactional_id) as producer:
        producer.init_transactions()
    with pytest.raises(FatalTransactionError, match="the transaction is lost"):
        handle.commit(servers)
    assert values(servers, n.topic) == []


def test_checkpoints_survive_crashes_between_any_two_steps(servers: str, n: Names) -> None:
    """Each worker life ends after another step; the records are those of completed checkpoints."""
    saved: str | None = None
    expected: list[bytes] = []
    for life, steps in enumerate((1, 2, 3, 4, 3, 4, 4)):
        sink = CheckpointedProducer(servers, transactional_id_prefix=n.transactional_id)
        sink.recover(saved)
        for number in range(2 * life, 2 * life + 2):
            value = b"%d-%d" % (life, number)
            sink.send(n.topic, value, partition=number % 2)
            sink.flush(WAIT_S)
            if steps == 1:
                break
            state = sink.pre_commit(number)
            if steps == 2:
                break
            saved = state.to_json()
            expected.append(value)
            if steps == 3:
                break
            sink.commit(number)
        if life % 2:
            sink.close()
    with CheckpointedProducer(servers, transactional_id_prefix=n.transactional_id) as last:
        last.recover(saved)
    assert values(servers, n.topic) == sorted(expected)


def test_a_timeout_over_the_brokers_maximum_is_named(servers: str, n: Names) -> None:
    with (
        Producer(
            servers, transactional_id=n.transactional_id, transaction_timeout_ms=900_001
        ) as producer,
        pytest.raises(FatalTransactionError, match=r"transaction\.max\.timeout\.ms") as got,
    ):
        producer.init_transactions()
    assert got.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def wait_for_end(servers: str, topic: str, end: int) -> None:
    """Wait until partition 0 is readable up to this offset: a transaction was ended."""
    tp = TopicPartition(topic, 0)
    deadline = time.monotonic() + WAIT_S
    with Consumer(bootstrap_servers=servers) as consumer:
        while consumer.end_offsets([tp])[tp] < end:
            assert time.monotonic() < deadline, consumer.end_offsets([tp])
            time.sleep(0.05)


def test_a_transaction_over_its_timeout_is_aborted_and_the_job_stops(
    shared_cluster: LocalCluster,
) -> None:
    """Kafka takes up to ten seconds longer, and answers INVALID_TXN_STATE."""
    servers = shared_cluster.bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("slow", 2, 1)])
    with (
        Producer(servers, transactional_id="slow", transaction_timeout_ms=500) as producer,
        CheckpointedProducer(
            servers, transactional_id_prefix="slow-job", transaction_timeout_ms=500
        ) as sink,
    ):
        sink.recover(None)
        producer.begin_transaction()
        producer.send("slow", b"a", partition=0).result(WAIT_S)
        sink.send("slow", b"b", partition=0)
        state = sink.pre_commit(1)
        wait_for_end(servers, "slow", 4)
        with pytest.raises(FatalTransactionError, match="transaction_timeout_ms"):
            sink.commit(1)
        with pytest.raises(AbortableTransactionError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("slow", b"c", partition=0)
    with (
        CheckpointedProducer(servers, transactional_id_prefix="slow-job") as sink,
        pytest.raises(FatalTransactionError, match="the transaction is lost"),
    ):
        sink.recover(state)
    assert values(servers, "slow") == [b"c"]


def test_two_phase_commit_has_no_timeout_and_survives_its_producer(start_cluster: Start) -> None:
    """KIP-939: InitProducerId 6 keeps what is prepared, and says which transaction that is."""
    servers = start_cluster(1, transaction_two_phase_commit_enable="true").bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("prepared", 2, 1)])
    options: dict[str, Any] = {
        "transactional_id": "two-phase",
        "transaction_two_phase_commit_enable": True,
        "transaction_timeout_ms": 100,
    }
    for verb in ("commit", "abort", "forget"):
        with Producer(servers, **options) as producer:
            producer.begin_transaction()
            producer.send("prepared", verb, partition=0)
            handle = producer.prepare()
        with Producer(servers, **options) as producer:
            if verb == "forget":
                producer.init_transactions()
                continue
            assert producer.init_transactions(keep_prepared=True) == handle
            if verb == "commit":
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            with producer.transaction():
                producer.send("prepared", b"after", partition=0)
    assert values(servers, "prepared") == [b"after", b"after", b"commit"]
