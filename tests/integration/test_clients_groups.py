"""Stock clients in groups: subscribe, rebalance, commit, resume, and the coordinator's death."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer

from headwater import Consumer
from headwater.client.values import TopicPartition
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.coordinator.common.placement import partition_of
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.jvm_tools import kafka_tool

pytestmark = pytest.mark.integration

PARTITIONS = 4
ROWS = 200
WAIT_S = 40.0
POLL_MS = 200
_names = itertools.count()


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers, for this module alone: brokers die here."""
    folder = tmp_path_factory.mktemp("groups")
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with LocalCluster(folder, next_base_port(folder), properties=properties) as made:
        yield made


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The module's, whole again after each test."""
    yield module_cluster
    module_cluster.make_whole()


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A topic with ROWS rows, over all partitions."""
    name = cluster.create_topic(f"rows-{next(_names)}", PARTITIONS, 3)
    fill(cluster, name)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_names)}"


def fill(cluster: LocalCluster, topic: str) -> None:
    """ROWS more rows."""
    producer = ConfluentProducer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    )
    for row in range(ROWS):
        producer.produce(topic, str(row).encode(), partition=row % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


class Confluent:
    """confluent-kafka (librdkafka)."""

    def __init__(self, cluster: LocalCluster, topic: str, group: str, **options: Any) -> None:
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            **options,
        }
        self.consumer = ConfluentConsumer(settings)
        self.consumer.subscribe([topic])

    def poll(self) -> int:
        found = self.consumer.consume(100, 0.2)
        return sum(1 for message in found if message.error() is None)

    def owned(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class Sdk:
    """Our own."""

    kind: ClassVar[Any] = Consumer

    def __init__(self, cluster: LocalCluster, topic: str, group: str) -> None:
        self.consumer = self.kind(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )

    def poll(self) -> int:
        return sum(len(rows) for rows in self.consumer.poll(timeout_ms=POLL_MS).values())

    def owned(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class KafkaPython(Sdk):
    """kafka-python, which has the same calls, in a thread of its own.

    kafka-python 3.0 throws a join away that ends while nobody polls, and begins anew: two members
    polled in turn by one thread make each other join again and again. And it may join before it
    knows the topic, joins anew when it does, and if a poll times out during that, the assignment
    is lost for good (docs/clients.md). One that knows the topic has no reason to.
    """

    kind = KafkaConsumer

    def __init__(self, cluster: LocalCluster, topic: str, group: str) -> None:
        super().__init__(cluster, topic, group)
        known = set(range(PARTITIONS))
        until(lambda: self.consumer.partitions_for_topic(topic) == known, "the topic is known")
        self._rows: deque[int] = deque()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll_on, daemon=True)
        self._thread.start()

    def _poll_on(self) -> None:
        while not self._ended.is_set():
            self._rows.append(super().poll())

    def poll(self) -> int:
        self._thread.join(POLL_MS / 1000)
        assert self._thread.is_alive(), "a poll failed"
        return sum(self._rows.popleft() for _ in range(len(self._rows)))

    def _end_polls(self) -> None:
        """The consumer belongs to one thread at a time."""
        self._ended.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def commit(self) -> None:
        self._end_polls()
        super().commit()

    def close(self) -> None:
        self._end_polls()
        super().close()


Make = Callable[[LocalCluster, str, str], Any]
clients = pytest.mark.parametrize("make", [Confluent, KafkaPython, Sdk])


def until(step: Callable[[], bool], what: str) -> None:
    """Call `step`, which polls its consumers, until it holds."""
    deadline = time.monotonic() + WAIT_S
    while not step():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"


def read_all(consumer: Any, rows: int = ROWS) -> None:
    """Exactly `rows` come, then nothing."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += consumer.poll()
        return count >= rows

    until(step, f"{rows} rows")
    count += consumer.poll()
    assert count == rows


@clients
def test_two_members_share_and_the_one_left_takes_over(
    cluster: LocalCluster, topic: str, group: str, make: Make
) -> None:
    first, second = make(cluster, topic, group), make(cluster, topic, group)

    def shared() -> bool:
        first.poll(), second.poll()
        ours, theirs = first.owned(), second.owned()
        return bool(ours and theirs) and ours | theirs == set(range(PARTITIONS))

    until(shared, "both own partitions")
    assert not first.owned() & second.owned()
    with cluster.admin() as admin:
        described = admin.describe_groups([group])[group]
    assert described.state == "Stable"
    assert len(described.members) == 2

    second.close()

    def alone() -> bool:
        first.poll()
        return first.owned() == set(range(PARTITIONS))

    until(alone, "the one left owns all")
    first.close()


@clients
def test_a_restarted_member_resumes_at_its_commit(
    cluster: LocalCluster, topic: str, group: str, make: Make
) -> None:
    consumer = make(cluster, topic, group)
    read_all(consumer)
    consumer.commit()
    consumer.close()
    fill(cluster, topic)
    again = make(cluster, topic, group)
    read_all(again)
    again.close()


def test_aiokafka_shares_commits_and_resumes(cluster: LocalCluster, topic: str, group: str) -> None:
    def made() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )

    async def poll(consumer: AIOKafkaConsumer) -> int:
        return sum(len(rows) for rows in (await consumer.getmany(timeout_ms=200)).values())

    async def read(consumer: AIOKafkaConsumer, rows: int) -> None:
        count, deadline = 0, time.monotonic() + WAIT_S
        while count < rows:
            assert time.monotonic() < deadline
            count += await poll(consumer)
        assert count == rows

    async def run() -> None:
        first = made()
        await first.start()
        await read(first, ROWS)
        await first.commit()
        second = made()
        await second.start()
        deadline = time.monotonic() + WAIT_S

        def is_shared() -> bool:
            # The first may hold all of it still when the second has been told its part.
            mine, other = first.assignment(), second.assignment()
            return bool(mine and other and not mine & other)

        while not is_shared():
            assert time.monotonic() < deadline
            await asyncio.gather(poll(first), poll(second))
        await first.stop()
        await second.stop()
        fill(cluster, topic)
        third = made()
        await third.start()
        await read(third, ROWS)
        await third.stop()

    asyncio.run(run())


def test_cooperative_members_keep_what_they_own(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    sticky = {"partition.assignment.strategy": "cooperative-sticky"}
    first = Confluent(cluster, topic, group, **sticky)
    until(lambda: first.poll() >= 0 and len(first.owned()) == PARTITIONS, "one owns all")
    second = Confluent(cluster, topic, group, **sticky)
    least = PARTITIONS

    def shared() -> bool:
        nonlocal least
        first.poll(), second.poll()
        least = min(least, len(first.owned()))
        return len(first.owned()) == len(second.owned()) == PARTITIONS // 2

    until(shared, "two each")
    assert least == PARTITIONS // 2  # never revoked all, as an eager rebalance does
    first.close()
    second.close()


def test_a_static_member_returns_without_a_rebalance(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    first = Confluent(cluster, topic, group, **{"group.instance.id": "a"})
    second = Confluent(cluster, topic, group, **{"group.instance.id": "b"})

    def shared() -> bool:
        first.poll(), second.poll()
        return len(first.owned()) == len(second.owned()) == PARTITIONS // 2

    until(shared, "two each")
    held, others = first.owned(), second.owned()
    first.close()  # a static member does not leave
    first = Confluent(cluster, topic, group, **{"group.instance.id": "a"})

    def back() -> bool:
        second.poll()
        return first.poll() >= 0 and bool(first.owned())

    until(back, "the static member is back")
    assert first.owned() == held
    assert second.owned() == others
    first.close()
    second.close()


def test_commits_survive_the_death_of_the_coordinators_broker(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    consumer = Confluent(cluster, topic, group)
    read_all(consumer)
    consumer.commit()
    with cluster.admin() as admin:
        count = len(admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].partitions)
    home = partition_of(group, count)
    coordinator = cluster.leader_of(OFFSETS_TOPIC, home)
    cluster.wait_isr(OFFSETS_TOPIC, 3, home)
    cluster.kill_broker(coordinator)
    try:
        cluster.wait_until(
            lambda: cluster.leader_of(OFFSETS_TOPIC, home) != coordinator, "another coordinator"
        )
        wanted = [ConfluentPartition(topic, p) for p in range(PARTITIONS)]
        found = consumer.consumer.committed(wanted, timeout=WAIT_S)
        assert sum(p.offset for p in found) == ROWS
        # The member is still one: it reads on and commits without joining anew by hand.
        fill(cluster, topic)
        read_all(consumer)
        until(lambda: _committed(consumer), "a commit at the new coordinator")
    finally:
        cluster.restart(coordinator)
    consumer.close()
    # A member of librdkafka 2.16 that asks for its offsets just as the coordinator moves never
    # starts to fetch (confluentinc/librdkafka#5586): let the partition come home first.
    cluster.make_whole()
    again = Confluent(cluster, topic, group)
    fill(cluster, topic)
    read_all(again)
    again.close()


def _committed(consumer: Confluent) -> bool:
    consumer.poll()
    try:
        consumer.commit()
    except KafkaException as error:
        assert error.args[0].retriable() or "rebalance" in str(error).lower(), error
        return False
    return True


def test_groups_are_listed_described_and_deleted(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    consumer = Sdk(cluster, topic, group)
    read_all(consumer)
    consumer.commit()
    with cluster.admin() as admin:
        assert group in {row.group_id for row in admin.list_groups()}
        committed = consumer.consumer.committed(TopicPartition(topic, 0))
        assert committed is not None
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            admin.delete_groups([group])
        consumer.close()
        assert admin.describe_groups([group])[group].state == "Empty"
        admin.delete_groups([group])
        assert group not in {row.group_id for row in admin.list_groups()}
    fresh = Sdk(cluster, topic, group)
    read_all(fresh)  # the offsets are gone with the group
    fresh.close()


def test_librdkafka_consumes_by_the_consumer_protocol(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    """Two members share the partitions; what the first committed is not read again (KIP-848)."""
    config = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    one, two = ConfluentConsumer(config), ConfluentConsumer(config)
    one.subscribe([topic])
    deadline, seen = time.monotonic() + WAIT_S, 0
    while seen < ROWS:
        assert time.monotonic() < deadline, f"{seen} of {ROWS} records"
        message = one.poll(0.5)
        if message is not None:
            assert message.error() is None
            seen += 1
    one.commit(asynchronous=False)
    two.subscribe([topic])
    while not (two.assignment() and len(one.assignment()) + len(two.assignment()) == PARTITIONS):
        assert time.monotonic() < deadline, (one.assignment(), two.assignment())
        assert one.poll(0.1) is None and two.poll(0.1) is None, "committed, so read by nobody"
    one.close()
    two.close()


def test_java_consumes_by_the_consumer_protocol_and_its_tools_describe_the_group(
    cluster: LocalCluster, topic: str, group: str
) -> None:
    where = ("--bootstrap-server", cluster.bootstrap)
    output = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*where, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(ROWS), "--command-property", "group.protocol=consumer"),
    )
    assert sorted(map(int, output.split())) == list(range(ROWS))
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    listed = kafka_tool(tool, *where, "--list", "--type", "--state")
    assert any({group, "Consumer", "Empty"} <= set(line.split()) for line in listed.splitlines()), (
        listed
    )
    described = kafka_tool(tool, *where, "--describe", "--group", group)
    assert described.count(topic) == PARTITIONS, described
