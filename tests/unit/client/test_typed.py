"""Typed topics: serializers, typed readers, and what becomes of records that cannot be read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest
from typing_extensions import TypedDict

from headwater import (
    Admin,
    Consumer,
    ConsumerRecord,
    DeadLetter,
    NewTopic,
    Producer,
    Raise,
    RecordDeserializationError,
    SerializationError,
    Skip,
    Topic,
    TopicPartition,
    UsageError,
)
from headwater.aio import AsyncConsumer, AsyncProducer
from headwater.client.typed_records import TypedDecoding
from headwater.serializers import (
    BytesSerializer,
    Context,
    JsonSerializer,
    ModelSerializer,
    StringSerializer,
    optional,
)
from whole_cluster import ServedCluster

LIMIT_S = 30.0
AT = Context("t", "value")


@dataclass(frozen=True)
class Leg:
    origin: str
    minutes: int


@dataclass(frozen=True)
class Flight:
    number: int
    legs: list[Leg]
    at: datetime | None = None


class Plane(pydantic.BaseModel):
    tail: str
    seats: int = 0


class Gate(TypedDict):
    number: int


class Seat(NamedTuple):
    row: int
    letter: str


FLIGHT = Flight(7, [Leg("JFK", 90)], datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(Path(tmp_path_factory.mktemp("typed")), 1) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("serializer", "value", "data"),
    [
        (BytesSerializer(), b"x", b"x"),
        (BytesSerializer(), None, None),
        (StringSerializer(), "Zürich", "Zürich".encode()),
        (JsonSerializer(), {"a": [1, None]}, b'{"a":[1,null]}'),
        (ModelSerializer(Plane), Plane(tail="N1", seats=3), b'{"tail":"N1","seats":3}'),
        (ModelSerializer(Leg), Leg("JFK", 90), b'{"origin":"JFK","minutes":90}'),
        (ModelSerializer(Gate), Gate(number=3), b'{"number":3}'),
        (ModelSerializer(Seat), Seat(3, "A"), b'[3,"A"]'),
        (optional(StringSerializer()), None, None),
        (optional(StringSerializer()), "a", b"a"),
    ],
)
def test_values_to_bytes_and_back(serializer: Any, value: Any, data: bytes | None) -> None:
    assert serializer.dumps(value, AT) == data
    assert serializer.loads(data, AT) == value


def test_a_model_comes_back_whole() -> None:
    serializer = ModelSerializer(Flight)
    assert serializer.loads(serializer.dumps(FLIGHT, AT), AT) == FLIGHT


@pytest.mark.parametrize(
    ("serializer", "data"),
    [
        (StringSerializer(), b"\xff"),
        (StringSerializer(), None),
        (JsonSerializer(), b"{"),
        (ModelSerializer(Leg), b'{"origin":"JFK"}'),
        (ModelSerializer(Leg), b'{"origin":"JFK","minutes":"soon"}'),
    ],
)
def test_what_cannot_be_read_is_a_value_error(serializer: Any, data: bytes | None) -> None:
    with pytest.raises(ValueError):
        serializer.loads(data, AT)


def make(c: ServedCluster, name: str, values: list[bytes | None]) -> Topic[bytes | None, Any]:
    """A topic with these values, typed as JSON."""
    with Admin(c.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1), NewTopic(f"{name}-dead", 1, 1)])
    with Producer(c.bootstrap) as producer:
        for value in values:
            producer.send(name, value, headers={"h": b"1"})
    return Topic(name, JsonSerializer())


def consumer_of(c: ServedCluster, group: str, **options: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=c.bootstrap,
        group_id=group,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )


def test_typed_records_through_a_topic(c: ServedCluster) -> None:
    flights = Topic("flights", ModelSerializer(Flight), optional(StringSerializer()))
    with Producer(c.bootstrap) as producer:
        producer.send(flights, FLIGHT, "seven").result(LIMIT_S)
        producer.send(flights, Flight(8, []), headers={"a": b"1"}).result(LIMIT_S)
        with pytest.raises(SerializationError, match="the value of a record for flights cannot"):
            producer.send(flights, 5)  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="the key of a record for flights cannot"):
            producer.send(flights, FLIGHT, 5)  # type: ignore[arg-type]
        assert producer.statistics().records_sent == 2
    with consumer_of(c, "flights") as consumer:
        reader = consumer.typed(flights)
        first = next(iter(reader))
        assert (first.key, first.value, first.value.legs[0].minutes) == ("seven", FLIGHT, 90)
        assert consumer.positions()[TopicPartition("flights", 0)].offset == 1
        (second,) = reader.poll(5000)
        assert (second.value.number, second.key, second.headers) == (8, None, [("a", b"1")])


def test_an_undecodable_record_ends_the_poll_and_stays(c: ServedCluster) -> None:
    topic = make(c, "raising", [b"1", b"{", b"3"])
    place = TopicPartition("raising", 0)
    with consumer_of(c, "raising") as consumer:
        reader = consumer.typed(topic, on_undecodable=Raise())
        assert [r.value for r in reader.poll(5000)] == [1]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="raising-0 at offset 1") as told:
                reader.poll(5000)
        assert told.value.offset == 1
        assert consumer.positions()[place].offset == 1
        consumer.seek(place, 2)
        assert [r.value for r in reader.poll(5000)] == [3]


def test_undecodable_records_may_be_skipped(c: ServedCluster) -> None:
    topic = make(c, "skipping", [b"{", b"1", b"{", b"2", b"{"])
    with consumer_of(c, "skipping", consumer_timeout_ms=200) as consumer:
        assert [r.value for r in consumer.typed(topic, on_undecodable=Skip())] == [1, 2]
        assert consumer.positions()[TopicPartition("skipping", 0)].offset == 5


def test_dead_letters_are_acknowledged_before_the_commit(c: ServedCluster) -> None:
    topic = make(c, "dead", [b"1", b"{bad", b"2"])
    seen: list[tuple[int, str]] = []

    def decide(record: ConsumerRecord, error: Exception) -> DeadLetter:
        seen.append((record.offset, type(error).__name__))
        return DeadLetter("dead-dead")

    with consumer_of(c, "dead") as consumer:
        records = consumer.typed(topic, on_undecodable=decide).poll(5000)
        assert [r.value for r in records] == [1, 2]
        consumer.commit()
        with consumer_of(c, "dead-2") as other:
            other.subscribe("dead-dead")
            letter = next(iter(other))
        assert letter.value == b"{bad" and seen == [(1, "JSONDecodeError")]
        told = dict(letter.headers)
        assert told["h"] == b"1" and told["__connect.errors.topic"] == b"dead"
        assert told["__connect.errors.offset"] == b"1"
        assert told["__connect.errors.exception.class.name"] == b"JSONDecodeError"


class Quoting:
    """Its errors quote the value."""

    def dumps(self, value: str, at: Context) -> bytes:
        return value.encode()

    def loads(self, data: bytes | None, at: Context) -> str:
        raise ValueError(f"no \ud800: {data!r}")


def test_a_letter_does_not_quote_a_large_value() -> None:
    row = ConsumerRecord("t", 0, 5, 0, 0, None, b"x" * 1_000_000, [], -1)
    (letter,) = TypedDecoding([Topic("t", Quoting())], DeadLetter("d")).decode([row]).letters
    told = dict(letter.headers)["__connect.errors.exception.message"]
    assert told is not None and b"no \\ud800: b'xxx" in told
    assert sum(len(value or b"") for _, value in letter.headers) < 3_000


def test_an_iteration_that_begins_again_sends_no_letter_again(c: ServedCluster) -> None:
    topic = make(c, "again", [b"1", b"{bad", b"2", b"3"])
    with consumer_of(c, "again") as consumer:
        reader = consumer.typed(topic, on_undecodable=DeadLetter("again-dead"))
        assert [next(iter(reader)).value for _ in range(3)] == [1, 2, 3]
    with consumer_of(c, "again-2", consumer_timeout_ms=300) as other:
        other.subscribe("again-dead")
        assert [letter.value for letter in other] == [b"{bad"]


def test_a_dead_letter_that_cannot_be_sent_is_not_committed(c: ServedCluster) -> None:
    topic = make(c, "lost", [b"{bad", b"2"])
    with Producer(c.bootstrap, max_request_size=10) as producer, consumer_of(c, "lost") as consumer:
        reader = consumer.typed(topic, on_undecodable=DeadLetter("lost-dead"), producer=producer)
        with pytest.raises(Exception, match="max_request_size"):
            reader.poll(5000)
        assert consumer.positions()[TopicPartition("lost", 0)].offset == 0


def test_a_decision_has_to_be_one(c: ServedCluster) -> None:
    topic = make(c, "deciding", [b"{"])
    with consumer_of(c, "deciding") as consumer:
        with pytest.raises(UsageError, match="on_undecodable is 'skip'"):
            consumer.typed(topic, on_undecodable="skip")  # type: ignore[arg-type]
        reader = consumer.typed(topic, on_undecodable=lambda *_: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(UsageError, match="on_undecodable returned None"):
            reader.poll(5000)


def test_the_same_with_asyncio(c: ServedCluster) -> None:
    make(c, "async", [])
    planes = Topic("async", ModelSerializer(Plane), optional(StringSerializer()))

    async def work() -> None:
        async with AsyncProducer(c.bootstrap) as producer:
            await producer.send(planes, Plane(tail="N1"), "one")
            await producer.send("async", b"{bad")
            producer.try_send(planes, Plane(tail="N2"), "two")
            await producer.send("async", b"also bad")
        options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AsyncConsumer(
            bootstrap_servers=c.bootstrap, group_id="async", consumer_timeout_ms=300, **options
        ) as consumer:
            reader = await consumer.typed(planes, on_undecodable=DeadLetter("async-dead"))
            assert (await anext(reader)).value.tail == "N1"
            assert consumer.positions()[TopicPartition("async", 0)].offset == 1
            assert [r.value.tail async for r in reader] == ["N2"]
            assert consumer.positions()[TopicPartition("async", 0)].offset == 4
            consumer.seek(("async", 0), 0)
            again = await consumer.typed(planes)
            assert [r.key for r in await again.getmany(5000)] == ["one"]
            with pytest.raises(RecordDeserializationError):
                await again.getmany(5000)
        async with AsyncConsumer(
            "async-dead", bootstrap_servers=c.bootstrap, group_id="async-2", **options
        ) as consumer:
            letters = await consumer.getmany(5000)
            assert [row.value for row in letters] == [b"{bad", b"also bad"], "each of them once"

    run(work())


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 2 * LIMIT_S))


def test_serializers_that_ask_somebody_leave_the_loop_free(c: ServedCluster) -> None:
    make(c, "asking", [])
    threads: set[int] = set()

    class Asking(StringSerializer):
        may_block = True

        def dumps(self, value: str, at: Context) -> bytes:
            threads.add(threading.get_ident())
            return super().dumps(value, at)

        def loads(self, data: bytes | None, at: Context) -> str:
            threads.add(threading.get_ident())
            return super().loads(data, at)

    async def work() -> None:
        topic = Topic("asking", Asking())
        async with AsyncProducer(c.bootstrap) as producer:
            for word in ("a", "b"):
                await producer.send(topic, word)
        async with AsyncConsumer(
            bootstrap_servers=c.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([("asking", 0)])
            reader = await consumer.typed(topic)
            assert [(await anext(reader)).value for _ in range(2)] == ["a", "b"]

    run(work())
    assert threads and threading.get_ident() not in threads


def test_a_serializer_of_ones_own(c: ServedCluster) -> None:
    class Reversed:
        def dumps(self, value: str, at: Context) -> bytes:
            return json.dumps([at.topic, at.field, value[::-1]]).encode()

        def loads(self, data: bytes | None, at: Context) -> str:
            assert data is not None
            text: str = json.loads(data)[2]
            return text[::-1]

    own = Topic("own", Reversed())
    with Producer(c.bootstrap) as producer:
        producer.send(own, "abc")
    with consumer_of(c, "own") as consumer:
        assert consumer.typed(own).poll(5000)[0].value == "abc"
