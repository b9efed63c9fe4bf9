"""`Producer` against a broker in this process: arguments, memory, splits, statistics, the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater import (
    Admin,
    BufferExhaustedError,
    ClosedError,
    Consumer,
    ConsumerRecord,
    IllegalStateError,
    MessageTooLargeError,
    NewTopic,
    OptionError,
    Producer,
    UsageError,
)
from whole_cluster import ServedCluster

LIMIT_S = 30.0
SMALL_BATCH = {"max.message.bytes": "2000"}


@pytest.fixture
def c(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, 1) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1), NewTopic("small", 1, 1, SMALL_BATCH)])
        yield cluster


def read(c: ServedCluster, topic: str, count: int) -> list[ConsumerRecord]:
    with Consumer(
        bootstrap_servers=c.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    ) as consumer:
        consumer.assign([(topic, p) for p in range(consumer.partitions_for(topic))])
        rows = []
        for row in consumer:
            rows.append(row)
            if len(rows) == count:
                return rows
    raise AssertionError(f"{len(rows)} of {count} records")


def test_timestamps_may_be_datetimes_with_a_time_zone(c: ServedCluster) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    east = at.astimezone(timezone(timedelta(hours=9)))
    with Producer(c.bootstrap) as producer:
        for timestamp in (at, east, 7, np.int64(8)):
            producer.send("t", b"v", timestamp=timestamp)
        with pytest.raises(UsageError, match="has no time zone"):
            producer.send("t", b"v", timestamp=at.replace(tzinfo=None))
        with pytest.raises(UsageError, match="give milliseconds since 1970"):
            producer.send("t", b"v", timestamp=datetime(1969, 1, 1, tzinfo=UTC))
        for wrong in ("2026", 1.5, True):
            with pytest.raises(OptionError, match="timestamp is"):
                producer.send("t", b"v", timestamp=wrong)  # type: ignore[arg-type]
    found = [row.timestamp for row in read(c, "t", 4)]
    assert found == [1_767_323_045_678] * 2 + [7, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topic": None}, "topic None is of type NoneType"),
        ({"topic": "a b"}, "only ASCII letters"),
        ({"value": 5}, "value is of type int"),
        ({"key": 1.5}, "key is of type float"),
        ({"partition": "0"}, "partition is '0'"),
        ({"headers": [("a",)]}, "give \\(name, value\\)"),
        ({"headers": [(b"a", b"b")]}, "the name a string"),
        ({"headers": {"a": 1}}, "header a is of type int"),
    ],
)
def test_wrong_arguments_of_send_are_named(
    c: ServedCluster, arguments: dict[str, Any], message: str
) -> None:
    with Producer(c.bootstrap) as producer, pytest.raises(UsageError, match=message):
        producer.send(**{"topic": "t", "value": b"v", **arguments})


def test_buffer_memory_bounds_what_waits_and_max_block_ms_acts(c: ServedCluster) -> None:
    """Batches grow beyond the buffer otherwise: it was looked at only when one was opened."""
    limit = 256 * 1024
    with Producer(
        c.bootstrap,
        buffer_memory=limit,
        batch_size=8 << 20,
        max_request_size=8 << 20,
        max_block_ms=100,
    ) as producer:
        producer.send("t", b"first").result(LIMIT_S)
        c.stop(0)
        accepted = 0
        with pytest.raises(BufferExhaustedError, match=f"of {limit} bytes of buffer_memory"):
            while accepted < 2 * limit:
                producer.send("t", bytes(1000))
                accepted += 1000
        now = producer.statistics()
        assert accepted <= now.buffer_bytes <= limit == now.buffer_bytes_max
        assert producer.metrics()["buffer-available-bytes"] == limit - now.buffer_bytes
        assert now.blocked_threads == 0 and now.records_waiting == accepted // 1000
        with pytest.raises(MessageTooLargeError, match=f"buffer_memory is {limit}"):
            producer.send("t", bytes(limit + 1))
        producer.close(timeout=0)


def test_a_sender_that_waits_for_room_goes_on_once_there_is_some(c: ServedCluster) -> None:
    """Also without lingering: the batches that fill the buffer are sent at once."""
    with Producer(c.bootstrap, buffer_memory=100_000, linger_ms=600_000) as producer:
        sent = [producer.send("t", bytes(1000)) for _ in range(1000)]
        producer.flush(LIMIT_S)
        assert all(f.done() for f in sent)
        assert producer.statistics().buffer_bytes == 0


def test_closing_ends_the_wait_for_room(c: ServedCluster) -> None:
    with Producer(c.bootstrap, buffer_memory=2000) as producer:
        producer.send("t", b"first").result(LIMIT_S)
        c.stop(0)
        outcome: list[BaseException] = []

        def send() -> None:
            try:
                for _ in range(3):
                    producer.send("t", bytes(900))
            except ClosedError as e:
                outcome.append(e)

        thread = threading.Thread(target=send)
        thread.start()
        while not producer.statistics().blocked_threads:
            assert thread.is_alive()
        producer.close(timeout=0)
        thread.join(LIMIT_S)
        assert len(outcome) == 1


def test_batches_stay_within_max_request_size(c: ServedCluster) -> None:
    limit = 20_000
    with Producer(
        c.bootstrap, batch_size=1 << 20, max_request_size=limit, linger_ms=50
    ) as producer:
        for _ in range(200):
            producer.send("t", bytes(1000))
        producer.flush(LIMIT_S)
        now = producer.statistics()
        assert now.records_sent == 200
        assert now.bytes_sent / now.batches_sent <= limit
        assert now.requests_sent >= 200_000 / limit
        with pytest.raises(MessageTooLargeError, match=f"max_request_size is {limit}"):
            producer.send("t", bytes(limit))


@pytest.mark.parametrize("options", [{}, {"compression_type": "zstd"}, {"acks": 1}])
def test_a_batch_too_large_for_the_topic_is_split(c: ServedCluster, options: Any) -> None:
    """As Java's producer does: each record is legal, and all of them arrive, in order, once."""
    values = [bytes([n]) * 10 + np.random.default_rng(n).bytes(690) for n in range(9)]
    with Producer(c.bootstrap, linger_ms=600_000, **options) as producer:
        sent = [producer.send("small", v, key=b"k", headers=[("h", v[:1])]) for v in values]
        told: list[int] = []
        sent[3].add_done_callback(lambda done: told.append(done.result().offset))
        producer.flush(LIMIT_S)
        assert [f.result(0).offset for f in sent] == list(range(9))
        assert told == [3]
        now = producer.statistics()
        assert now.batches_split >= 3 and now.records_failed == 0
        assert now.records_sent == 9 and now.buffer_bytes == 0
    rows = read(c, "small", 9)
    assert [r.value for r in rows] == values
    assert [r.headers for r in rows] == [[("h", v[:1])] for v in values]


def test_only_the_record_that_is_too_large_fails(c: ServedCluster) -> None:
    values = [b"a" * 700, b"b" * 700, b"c" * 5000, b"d" * 700, b"e" * 700]
    with Producer(c.bootstrap, linger_ms=600_000) as producer:
        sent = [producer.send("small", v) for v in values]
        producer.flush(LIMIT_S)
        failed = [isinstance(f.exception(0), MessageTooLargeError) for f in sent]
        assert failed == [False, False, True, False, False]
        assert producer.statistics().records_failed == 1
        last = producer.send("small", b"f")
        producer.flush(LIMIT_S)
        assert last.result(0).offset == 4
    assert [r.value[:1] for r in read(c, "small", 5) if r.value] == [b"a", b"b", b"d", b"e", b"f"]


def test_a_tables_batches_are_split_too(c: ServedCluster) -> None:
    table = pa.table({"v": [bytes([n]) * 700 for n in range(10)]})
    with Producer(c.bootstrap) as producer:
        summary = producer.send_table("small", table, value="v").result(LIMIT_S)
    assert summary.rows == 10 and summary.batches >= 5
    assert summary.offsets == {0: (0, 10)}


def test_a_callback_that_raises_does_not_keep_others_from_being_called(c: ServedCluster) -> None:
    called = threading.Event()
    with Producer(c.bootstrap, linger_ms=600_000) as producer:
        sent = [producer.send("t", b"v") for _ in range(2)]
        sent[0].add_done_callback(lambda _: 1 / 0)
        sent[1].add_done_callback(lambda _: called.set())
        producer.flush(LIMIT_S)
        assert called.wait(LIMIT_S)


def test_a_callback_cannot_wait_for_room_on_the_producers_own_thread(c: ServedCluster) -> None:
    errors: list[BaseException] = []
    done = threading.Event()
    with Producer(c.bootstrap, buffer_memory=3000, linger_ms=600_000) as producer:

        def send_more(_: object) -> None:
            try:
                for _ in range(4):
                    producer.send("t", bytes(900))
            except BufferExhaustedError as e:
                errors.append(e)
            done.set()

        producer.send("t", b"v").add_done_callback(send_more)
        producer.flush(LIMIT_S)
        assert done.wait(LIMIT_S)
    assert len(errors) == 1 and "own thread" in str(errors[0])


def test_a_callback_cannot_wait_for_its_producer(c: ServedCluster) -> None:
    errors: list[BaseException] = []
    with Producer(c.bootstrap) as producer:

        def wait(_: object) -> None:
            for call in (producer.flush, producer.close, lambda: producer.partitions_for("small")):
                try:
                    call()
                except IllegalStateError as e:
                    errors.append(e)

        producer.send("t", b"v").add_done_callback(wait)
        producer.flush(LIMIT_S)
        assert producer.send("t", b"v").result(LIMIT_S).offset == 1
    assert len(errors) == 3
