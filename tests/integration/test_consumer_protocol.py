"""Consumers of `group_protocol="consumer"` (KIP-848): Apache Kafka's coordinator, and ours."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers import KafkaPeer

from headwater import Admin, Consumer, NewTopic, Producer, TopicPartition
from headwater.aio import AsyncConsumer
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.testing import InProcessBroker

pytestmark = pytest.mark.integration
PARTITIONS = 6
MODERN = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`bootstrap_servers` of Apache Kafka."""
    folder: Path = tmp_path_factory.mktemp("kafka") / "peer"
    peer = KafkaPeer(
        folder,
        properties={
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.assignment.interval.ms": "0",
            "offsets.topic.num.partitions": "4",
        },
    )
    try:
        yield peer.start().bootstrap
    finally:
        peer.stop()


@pytest.fixture(
    scope="module", params=[pytest.param("apache", marks=pytest.mark.long), "headwater"]
)
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    """`bootstrap_servers` of either broker."""
    if request.param == "apache":
        yield request.getfixturevalue("apache")
        return
    with InProcessBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(kafka: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")[:80]
    with Admin(kafka) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    return name


def fill(kafka: str, topic: str, count: int, start: int = 0) -> None:
    with Producer(bootstrap_servers=kafka) as producer:
        for n in range(start, start + count):
            producer.send(topic, str(n).encode(), partition=n % PARTITIONS)
        producer.flush()


def poll_until(done: Callable[[], bool], *consumers: Consumer, seconds: float = 40) -> Counter[str]:
    seen: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, [c.assignment() for c in consumers]
        for consumer in consumers:
            for rows in consumer.poll(50).values():
                seen.update(bytes(r.value or b"").decode() for r in rows)
    return seen


def test_members_share_and_take_over(kafka: str, topic: str) -> None:
    fill(kafka, topic, 60)
    story: list[tuple[str, int]] = []
    one = Consumer(bootstrap_servers=kafka, group_id=topic, **MODERN)
    one.subscribe(
        [topic],
        on_assign=lambda tps: story.append(("assigned", len(tps))),
        on_revoke=lambda tps: story.append(("revoked", len(tps))),
    )
    seen = poll_until(lambda: len(one.assignment()) == 6, one)
    with Consumer(topic, bootstrap_servers=kafka, group_id=topic, **MODERN) as two:
        seen += poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 3, one, two)
        assert not set(one.assignment()) & set(two.assignment())
        assert ("revoked", 3) in story and story[0] == ("assigned", 6)
        with Admin(kafka) as admin:
            found = admin.describe_groups([topic])[topic]
            assert (found.group_type, found.assignor, found.protocol_type) == (
                "consumer", "uniform", "consumer",
            )  # fmt: skip
            assert found.epoch == found.target_epoch >= 2
            assert [len(m.target or ()) for m in found.members] == [3, 3]
            listed = {g.group_id: g.group_type.lower() for g in admin.list_groups()}
            assert listed[topic] == "consumer"
            unknown = admin.describe_groups([f"{topic}-none"])[f"{topic}-none"]
            assert (unknown.state, unknown.group_type) == ("Dead", "classic")
    seen += poll_until(lambda: len(one.assignment()) == 6, one)
    fill(kafka, topic, 30, start=60)
    while len(seen) < 90:
        seen += poll_until(lambda: True, one)
        for rows in one.poll(200).values():
            seen.update(bytes(r.value or b"").decode() for r in rows)
    assert set(seen.values()) == {1}, "each record once: the positions were committed on the way"
    stats = one.statistics()
    assert stats.rebalances >= 3 and stats.commits >= 1
    one.close()


def test_a_pattern_is_resolved_by_the_coordinator(kafka: str, topic: str) -> None:
    with Consumer(bootstrap_servers=kafka, group_id=topic, **MODERN) as one:
        one.subscribe(pattern=f"{re.escape(topic)}(-more)?")
        poll_until(lambda: len(one.assignment()) == PARTITIONS, one)
        with pytest.raises(KafkaError) as refused:
            one.unsubscribe()
            one.subscribe(pattern="a(?=b)")
            poll_until(lambda: False, one, seconds=20)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_unknown_assignor_is_refused_and_range_is_not(kafka: str, topic: str) -> None:
    bad = Consumer(topic, bootstrap_servers=kafka, group_id=f"{topic}-bad",
                   group_remote_assignor="best", **MODERN)  # fmt: skip
    with bad, pytest.raises(KafkaError) as refused:
        poll_until(lambda: False, bad, seconds=20)
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    good = Consumer(topic, bootstrap_servers=kafka, group_id=topic,
                    group_remote_assignor="range", **MODERN)  # fmt: skip
    with good:
        poll_until(lambda: len(good.assignment()) == PARTITIONS, good)


def test_a_member_that_does_not_poll_gives_up_and_comes_back(kafka: str, topic: str) -> None:
    story: list[tuple[str, int]] = []
    slow = Consumer(bootstrap_servers=kafka, group_id=topic, max_poll_interval_ms=2_000, **MODERN)
    slow.subscribe([topic], on_revoke=lambda tps: story.append(("lost", len(tps))))
    with slow, Consumer(topic, bootstrap_servers=kafka, group_id=topic, **MODERN) as other:
        poll_until(lambda: len(slow.assignment()) == len(other.assignment()) == 3, slow, other)
        poll_until(lambda: len(other.assignment()) == PARTITIONS, other)
        poll_until(lambda: len(slow.assignment()) == len(other.assignment()) == 3, slow, other)
        assert ("lost", 3) in story


def test_a_static_member_comes_back_to_its_partitions(kafka: str, topic: str) -> None:
    options = {**MODERN, "group_id": topic, "bootstrap_servers": kafka}
    with Consumer(topic, **options) as other:
        first = Consumer(topic, group_instance_id="a", **options)
        poll_until(lambda: len(first.assignment()) == len(other.assignment()) == 3, first, other)
        held = first.assignment()
        first.close()
        with Consumer(topic, group_instance_id="a", **options) as again:
            poll_until(lambda: len(again.assignment()) == 3, again, other)
            assert again.assignment() == held and len(other.assignment()) == 3


def test_offsets_go_with_a_transaction(kafka: str, topic: str) -> None:
    fill(kafka, topic, 12)
    source = Consumer(topic, bootstrap_servers=kafka, group_id=topic, enable_auto_commit=False,
                      **MODERN)  # fmt: skip
    with source, Producer(bootstrap_servers=kafka, transactional_id=topic) as producer:
        seen: Counter[str] = Counter()
        while len(seen) < 12:
            for rows in source.poll(500).values():
                seen.update(bytes(r.value or b"").decode() for r in rows)
        with producer.transaction():
            producer.send_offsets(None, source)
        places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        assert [source.committed(*places)[tp].offset for tp in places] == [2] * PARTITIONS


def test_asyncio_members_share(kafka: str, topic: str) -> None:
    fill(kafka, topic, 30)

    async def story() -> None:
        options = {**MODERN, "group_id": topic, "bootstrap_servers": kafka}
        async with AsyncConsumer(topic, **options) as one, AsyncConsumer(topic, **options) as two:
            values: set[bytes] = set()
            async with asyncio.timeout(40):
                while len(values) < 30 or len(one.assignment()) != 3 or len(two.assignment()) != 3:
                    for rows in (await one.getmany(50), await two.getmany(50)):
                        values |= {bytes(r.value or b"") for r in rows}

    asyncio.run(story())


def test_a_commit_beside_a_rebalance(kafka: str, topic: str) -> None:
    """Commits go on, with whatever epoch the member has, while another joins and leaves."""
    one = Consumer(topic, bootstrap_servers=kafka, group_id=topic, enable_auto_commit=False,
                   **MODERN)  # fmt: skip
    with one:
        poll_until(lambda: len(one.assignment()) == PARTITIONS, one)
        ended = threading.Event()

        def come_and_go() -> None:
            for _ in range(3):
                options = {**MODERN, "group_id": topic, "bootstrap_servers": kafka}
                with Consumer(topic, **options) as other:
                    end = time.monotonic() + 1.5
                    while time.monotonic() < end:
                        other.poll(50)
            ended.set()

        beside = threading.Thread(target=come_and_go)
        beside.start()
        commits = 0
        while not ended.is_set():
            one.poll(20)
            one.commit(dict.fromkeys(one.assignment(), 0))
            commits += 1
        beside.join()
        assert commits > 10
