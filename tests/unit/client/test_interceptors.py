"""Interceptors, traces through headers, partitioners by name, assignors of one's own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headwater import (
    Admin,
    Assignor,
    Consumer,
    ConsumerRecord,
    Interceptor,
    MessageTooLargeError,
    NewTopic,
    OffsetAndMetadata,
    OptionError,
    Producer,
    RecordMetadata,
    SendRecord,
    TopicPartition,
)
from headwater.aio import AsyncConsumer, AsyncProducer
from headwater.client.core.assignors import Assignment, Counts, Members
from headwater.client.core.sticky_user_data import decode_user_data, encode_user_data
from headwater.tracing import Tracing
from whole_cluster import ServedCluster

LIMIT_S = 30.0


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(Path(tmp_path_factory.mktemp("interceptors")), 1) as cluster:
        yield cluster


def make(c: ServedCluster, topic: str, partitions: int = 1) -> None:
    with Admin(c.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])


class Recorder(Interceptor):
    """Adds a header, drops values b"no", and remembers what it was told."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, int | None, str | None]] = []
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def on_send(self, record: SendRecord) -> SendRecord:
        return record._replace(headers=(*record.headers, ("by", b"recorder")))

    def on_delivery(
        self, record: SendRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        offset = None if metadata is None else metadata.offset
        self.delivered.append((record.topic, offset, error and type(error).__name__))

    def on_records(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [row for row in records if row.value != b"no"]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.update(offsets)


class Broken(Interceptor):
    """Raises at each call."""

    def on_send(self, record: SendRecord) -> SendRecord:
        raise RuntimeError("broken")

    def on_records(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise RuntimeError("broken")


def test_interceptors_see_and_change_records(
    c: ServedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    make(c, "seen")
    recorder = Recorder()
    chain = [Broken(), recorder]
    with Producer(c.bootstrap, interceptors=chain, max_request_size=10_000) as producer:
        producer.send("seen", "yes", headers={"a": "1"}).result(LIMIT_S)
        producer.send("seen", b"no").result(LIMIT_S)
        with pytest.raises(MessageTooLargeError):
            producer.send("seen", bytes(20_000))
    assert recorder.delivered == [("seen", 0, None), ("seen", 1, None),
                                  ("seen", None, "MessageTooLargeError")]  # fmt: skip
    with Consumer(
        "seen",
        bootstrap_servers=c.bootstrap,
        group_id="seen",
        auto_offset_reset="earliest",
        interceptors=chain,
        consumer_timeout_ms=300,
    ) as consumer:
        (row,) = list(consumer)
        assert row.headers == [("a", b"1"), ("by", b"recorder")]
        consumer.commit()
    assert recorder.committed[TopicPartition("seen", 0)].offset == 2
    assert any("an interceptor raised" in m for m in caplog.messages)
    assert all(r.levelno == logging.ERROR for r in caplog.records if "interceptor" in r.message)


def test_interceptors_of_the_asyncio_clients(c: ServedCluster) -> None:
    make(c, "async")
    recorder = Recorder()

    async def work() -> None:
        async with AsyncProducer(c.bootstrap, interceptors=[recorder]) as producer:
            await (await producer.send("async", "yes"))
            with pytest.raises(OptionError):
                await producer.send("async", 5)  # type: ignore[call-overload]
        async with AsyncConsumer(
            bootstrap_servers=c.bootstrap, auto_offset_reset="earliest", interceptors=[recorder]
        ) as consumer:
            await consumer.assign([("async", 0)])
            (row,) = await consumer.getmany(5000)
            assert row.headers == [("by", b"recorder")]

    asyncio.run(work())
    assert recorder.delivered == [("async", 0, None)]


def test_what_is_no_interceptor_is_refused() -> None:
    with pytest.raises(OptionError, match="interceptors has 5"):
        Producer("127.0.0.1:1", interceptors=[5])  # type: ignore[list-item]


def test_traces_go_through_headers(c: ServedCluster) -> None:
    make(c, "traced")
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    with Producer(c.bootstrap, interceptors=[tracing], max_request_size=10_000) as producer:
        producer.send("traced", b"v", headers={"traceparent": "old"}).result(LIMIT_S)
        with pytest.raises(MessageTooLargeError):
            producer.send("traced", bytes(20_000))
        producer.flush()
    with Consumer(
        bootstrap_servers=c.bootstrap, auto_offset_reset="earliest", interceptors=[tracing]
    ) as consumer:
        consumer.assign([("traced", 0)])
        (row,) = consumer.poll(5000)[TopicPartition("traced", 0)]
        with tracing.process(row) as span:
            span.set_attribute("mine", 1)
    spans = {s.name: s for s in exporter.get_finished_spans() if s.status.status_code.value != 2}
    sent, polled, done = spans["send traced"], spans["poll traced"], spans["process traced"]
    assert sent.kind == SpanKind.PRODUCER and sent.attributes is not None
    assert sent.attributes["messaging.kafka.offset"] == 0
    assert sent.attributes["messaging.destination.name"] == "traced"
    for reader in (polled, done):
        (link,) = reader.links
        assert link.context.span_id == sent.context.span_id
    assert [name for name, _ in row.headers] == ["traceparent"]
    (failed,) = [s for s in exporter.get_finished_spans() if s.status.status_code.value == 2]
    assert failed.status.status_code is StatusCode.ERROR and failed.attributes is not None
    assert failed.attributes["error.type"] == "MessageTooLargeError"


def test_without_an_sdk_of_opentelemetry_nothing_is_added(c: ServedCluster) -> None:
    make(c, "untraced")
    with Producer(c.bootstrap, interceptors=[Tracing()]) as producer:
        producer.send("untraced", b"v").result(LIMIT_S)
    with Consumer(bootstrap_servers=c.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([("untraced", 0)])
        (row,) = consumer.poll(5000)[TopicPartition("untraced", 0)]
        assert row.headers == []


def partitions_of(c: ServedCluster, topic: str, count: int, **options: Any) -> list[int]:
    make(c, topic, 3)
    with Producer(c.bootstrap, **options) as producer:
        sent = [producer.send(topic, b"v", key=b"k") for _ in range(count)]
        return [future.result(LIMIT_S).partition for future in sent]


def test_partitioners_by_name_and_of_ones_own(c: ServedCluster) -> None:
    murmur2 = partitions_of(c, "by-murmur2", 4, partitioner="murmur2")
    assert murmur2 == partitions_of(c, "by-default", 4) and len(set(murmur2)) == 1
    assert partitions_of(c, "in-turn", 6, partitioner="round_robin") == [0, 1, 2, 0, 1, 2]
    assert len(set(partitions_of(c, "by-sticky", 6, partitioner="sticky"))) == 1
    moved = partitions_of(c, "sticky-moves", 600, partitioner="sticky", batch_size=1000)
    assert len(set(moved)) > 1, "sticky also with a key: it moves on after a batch"
    own = partitions_of(c, "own", 3, partitioner=lambda key, count: count - 1)
    assert own == [2, 2, 2]


def all_to_the_first(members: Members, counts: Counts) -> Assignment:
    first, *others = sorted(members)
    rows = [TopicPartition(t, p) for t in sorted(counts) for p in range(counts[t])]
    return {first: rows, **{other: [] for other in others}}


@pytest.mark.parametrize("strategy", ["sticky", Assignor("first", all_to_the_first)])
def test_groups_with_other_assignors(c: ServedCluster, strategy: Any) -> None:
    topic = f"assigned-{strategy if isinstance(strategy, str) else strategy.name}"
    make(c, topic, 4)
    options: Any = {
        "bootstrap_servers": c.bootstrap,
        "group_id": topic,
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 50,
    }
    with Consumer(topic, **options) as one, Consumer(topic, **options) as two:
        while not one.assignment():
            one.poll(20)
        before = set(one.assignment())
        assert len(before) == 4
        joined = 0
        while joined < 2:
            one.poll(20)
            two.poll(20)
            joined = min(one.statistics().rebalances, two.statistics().rebalances + 1)
        while len(one.assignment()) + len(two.assignment()) < 4:
            one.poll(20)
            two.poll(20)
        kept = set(one.assignment())
        assert not kept & set(two.assignment())
        if strategy == "sticky":
            assert len(kept) == 2 and kept < before
        else:
            assert sorted(map(len, (kept, two.assignment()))) == [0, 4]


def test_sticky_user_data_is_javas() -> None:
    rows = [TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("a", 7)]
    data = encode_user_data(rows, 5)
    expected = "00000002 000161 00000001 00000007 000174 00000002 00000000 00000001 00000005"
    assert data.hex() == expected.replace(" ", "")
    assert decode_user_data(data) == (tuple(sorted(rows)), 5)
    assert decode_user_data(data[:-4]) == (tuple(sorted(rows)), -1), "version 0"
    for broken in (None, b"", b"\0", data[:9]):
        assert decode_user_data(broken) == ((), -1)
