"""Subscriptions, assignments and calls that a consumer refuses."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    ClosedError,
    Consumer,
    IllegalStateError,
    InvalidGroupIdError,
    OffsetAndMetadata,
    TopicPartition,
    UsageError,
)
from headwater.topic_names import OFFSETS_TOPIC
from unit.client.served_broker import ServedBroker
from unit.client.test_positions import TIME_MS, one_record

TP = TopicPartition("t", 0)
LIMIT_MS = 20_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path, group_initial_rebalance_delay_ms="0") as broker:
        for topic, partitions in (("t", 2), ("u", 1), (OFFSETS_TOPIC, 1)):
            broker.do(lambda b, t=topic, p=partitions: b.create_topic(t, p))
        yield broker


@pytest.fixture
def consumer(served: ServedBroker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=served.bootstrap, auto_offset_reset="earliest") as made:
        yield made


def test_topics_patterns_and_assigned_partitions_exclude_each_other(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match="to topics or to a pattern, not to both"):
        consumer.subscribe(["t"], pattern="u.*")
    consumer.subscribe(["t"])
    consumer.subscribe("u")  # another list replaces it
    assert consumer.assignment() == [TopicPartition("u", 0)]
    for other in (lambda: consumer.subscribe(pattern="t"), lambda: consumer.assign([TP])):
        with pytest.raises(IllegalStateError, match="subscribes to topics: call unsubscribe"):
            other()
    consumer.subscribe([])
    consumer.subscribe(pattern=re.compile("[tu]"))
    assert len(consumer.assignment()) == 3
    with pytest.raises(IllegalStateError, match="subscribes to a pattern"):
        consumer.subscribe(["t"])
    consumer.unsubscribe()
    consumer.assign([TP])
    for other in (lambda: consumer.subscribe(["t"]), lambda: consumer.subscribe(pattern="t")):
        with pytest.raises(IllegalStateError, match=r"partitions that assign\(\) gave it"):
            other()
    consumer.assign([])
    with pytest.raises(IllegalStateError, match="nothing to poll"):
        consumer.poll()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": None}, "topics is None, of type NoneType"),
        ({"topics": 3}, "of type int"),
        ({"topics": [b"t"]}, "of type bytes"),
        ({"topics": [""]}, "name is empty"),
        ({"topics": ["a b"]}, "only ASCII letters"),
        ({"pattern": "(["}, r"pattern '\(\[' is no regular expression"),
        ({"pattern": b"t"}, "of type bytes"),
        ({"topics": "t", "on_assign": "x"}, "a listener is 'x'"),
    ],
)
def test_wrong_subscriptions_are_named(
    consumer: Consumer, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        consumer.subscribe(**arguments)
    assert consumer.assignment() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.assign("t"), "give a list of TopicPartition"),
        (lambda c: c.assign(TP), "is one partition: give a list"),
        (lambda c: c.assign([("t", "0")]), "is no partition"),
        (lambda c: c.seek(TP, "0"), "offset is '0'"),
        (lambda c: c.seek(TP, -1), "it is negative"),
        (lambda c: c.seek("t", 0), "is no partition"),
        (lambda c: c.poll(0, 0), "max_records is 0"),
        (lambda c: c.poll_arrow("5"), "max_records is '5'"),
        (lambda c: c.offsets_for_times({TP: "now"}), "timestamp is 'now'"),
        (lambda c: c.partitions_for(5), "of type int"),
        (lambda c: c.pause(0), "0 is no partition"),
    ],
)
def test_wrong_arguments_are_named(consumer: Consumer, call: Any, message: str) -> None:
    consumer.assign([TP])
    with pytest.raises(UsageError, match=message):
        call(consumer)
    assert consumer.assignment() == [TP]


def test_a_consumer_without_a_group_commits_nothing(consumer: Consumer) -> None:
    for call in (consumer.commit, lambda: consumer.committed(TP)):
        with pytest.raises(InvalidGroupIdError, match="no group_id"):
            call()


def test_wrong_commits_are_named(served: ServedBroker) -> None:
    with Consumer(bootstrap_servers=served.bootstrap, group_id="g") as consumer:
        for offsets, message in (
            ([TP], "commit of"),
            ({TP: "0"}, "offset is '0'"),
            ({TP: OffsetAndMetadata(-2)}, "it is negative"),
        ):
            with pytest.raises(UsageError, match=message):
                consumer.commit(offsets)  # type: ignore[arg-type]


CALLS: dict[str, Any] = {
    "poll": lambda c: c.poll(),
    "poll_arrow": lambda c: c.poll_arrow(),
    "subscribe": lambda c: c.subscribe(["t"]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "assign": lambda c: c.assign([TP]),
    "seek": lambda c: c.seek(TP, 0),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "seek_to_end": lambda c: c.seek_to_end(),
    "position": lambda c: c.position(TP),
    "pause": lambda c: c.pause(TP),
    "resume": lambda c: c.resume(TP),
    "commit": lambda c: c.commit(),
    "committed": lambda c: c.committed(TP),
    "partitions_for": lambda c: c.partitions_for("t"),
    "end_offsets": lambda c: c.end_offsets([TP]),
    "beginning_offsets": lambda c: c.beginning_offsets([TP]),
    "offsets_for_times": lambda c: c.offsets_for_times({TP: 0}),
}


def test_each_call_refuses_a_second_thread_while_another_polls(served: ServedBroker) -> None:
    with Consumer(bootstrap_servers=served.bootstrap, group_id="g") as consumer:
        polling = threading.Event()
        consumer.subscribe(["t"], on_assign=lambda _: polling.set())
        thread = threading.Thread(target=lambda: consumer.poll(LIMIT_MS))
        thread.start()
        assert polling.wait(LIMIT_MS / 1000)
        for name, call in CALLS.items():
            with pytest.raises(IllegalStateError, match="another thread uses this consumer"):
                call(consumer)
                pytest.fail(name)
        consumer.wakeup()
        thread.join(LIMIT_MS / 1000)
        assert consumer.partitions_for("t") == 2


def test_each_call_refuses_a_closed_consumer(consumer: Consumer) -> None:
    consumer.close()
    consumer.close()
    for name, call in CALLS.items():
        with pytest.raises(ClosedError):
            call(consumer)
            pytest.fail(name)


def test_a_listener_may_call_its_consumer(served: ServedBroker) -> None:
    served.do(lambda broker: broker.replicas.partitions[TP].append(one_record(), 1, TIME_MS))
    done: list[int] = []
    with Consumer(bootstrap_servers=served.bootstrap, group_id="g") as consumer:

        def on_assign(partitions: list[TopicPartition]) -> None:
            consumer.seek_to_beginning(*partitions)
            done.append(consumer.position(TP, LIMIT_MS))
            consumer.commit()

        consumer.subscribe(["t"], on_assign=on_assign)
        while not done:
            consumer.poll(50)
        assert done == [0] and consumer.committed(TP)[TP].offset == 0


def append(served: ServedBroker, *places: TopicPartition) -> None:
    for tp in places:
        served.do(lambda b, tp=tp: b.replicas.partitions[tp].append(one_record(), 1, TIME_MS))


def test_what_an_iteration_leaves_is_polled_next(served: ServedBroker, consumer: Consumer) -> None:
    append(served, TP, TP, TP, TP)
    consumer.assign([TP])
    assert next(iter(consumer)).offset == 0
    assert [row.offset for row in consumer.poll(500, max_records=1)[TP]] == [1]
    assert consumer.positions()[TP].offset == 2
    rows = consumer.poll_arrow(timeout_ms=LIMIT_MS)
    assert rows.column("offset").to_pylist() == [2, 3]


def test_a_pause_holds_back_what_an_iteration_has_not_given(
    served: ServedBroker, consumer: Consumer
) -> None:
    other = TopicPartition("t", 1)
    append(served, TP, TP, TP)
    consumer.assign([TP, other])
    records = iter(consumer)
    assert next(records).offset == 0
    consumer.pause(TP)
    append(served, other)
    assert next(records).partition == 1
    consumer.resume(TP)
    assert [next(records)[1:3] for _ in range(2)] == [(0, 1), (0, 2)]


@pytest.mark.parametrize("leaves_pending", [False, True])
@pytest.mark.parametrize(
    "options",
    [{"partition_assignment_strategy": "cooperative-sticky"}, {"group_protocol": "consumer"}],
)
def test_a_topic_that_is_subscribed_to_no_more_gives_no_record(
    served: ServedBroker, options: dict[str, Any], leaves_pending: bool
) -> None:
    """The partition stays assigned until the group has rebalanced."""
    append(served, TP, TP, TP, TopicPartition("u", 0))
    with Consumer(
        bootstrap_servers=served.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    ) as consumer:
        consumer.subscribe(["t"])
        if leaves_pending:
            next(iter(consumer))
        else:
            while not consumer.poll(50, max_records=1):
                pass
        consumer.subscribe(["u"])
        assert consumer.positions()[TP].offset == 1, "the others are forgotten, not passed"
        assert next(iter(consumer)).topic == "u"


def test_closing_in_another_thread_ends_a_poll(served: ServedBroker) -> None:
    consumer = Consumer("t", bootstrap_servers=served.bootstrap)
    ended = threading.Event()

    def iterate() -> None:
        for _ in consumer:
            pass
        ended.set()

    thread = threading.Thread(target=iterate)
    thread.start()
    while not consumer.statistics().fetches:
        assert thread.is_alive()
    consumer.close()
    assert ended.wait(LIMIT_MS / 1000)


def test_statistics_of_what_is_read(served: ServedBroker) -> None:
    for _ in range(3):
        served.do(lambda broker: broker.replicas.partitions[TP].append(one_record(), 1, TIME_MS))
    options: Any = {"auto_offset_reset": "earliest", "group_id": "g"}
    options["enable_auto_commit"] = False  # only the commit below is to be counted
    with Consumer(bootstrap_servers=served.bootstrap, **options) as consumer:
        consumer.assign([TP, ("u", 0)])
        assert sum(map(len, consumer.poll(LIMIT_MS, 2).values())) == 2
        consumer.pause(("u", 0))
        consumer.commit()
        now = consumer.statistics()
        assert (now.records_consumed, now.commits, now.outages) == (2, 1, [])
        assert now.fetches >= 1 and now.bytes_fetched >= 3 * len(one_record())
        row = now.partitions[TP]
        assert (row.position, row.high_watermark, row.lag) == (2, 3, 1)
        assert row.buffered_bytes > 0 and not row.is_paused
        assert now.partitions[TopicPartition("u", 0)].is_paused
        metrics = consumer.metrics()
        assert metrics["records-lag-max"] == 1 and metrics["records-consumed-total"] == 2
        assert metrics["commit-total"] == 1 and metrics["assigned-partitions"] == 2
