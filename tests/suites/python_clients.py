"""The features of transactions with the clients in Python.

What each must do is said in client_features.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from headwater import Consumer, Producer, TopicPartition
from headwater.errors import HeadwaterError

RECORDS = 4
WAIT_S = 60.0
QUIET_S = 5.0

Feature = Callable[[str, str], Sequence[str]]
"""(bootstrap, name) -> lines."""


# confluent-kafka (librdkafka).


def _confluent_producer(bootstrap: str, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{name}-id"}
    )
    producer.init_transactions(WAIT_S)
    return producer


def _confluent_send(producer: confluent_kafka.Producer, name: str, *values: str) -> None:
    for value in values:
        producer.produce(f"{name}-out", value.encode(), partition=0)
    assert producer.flush(WAIT_S) == 0


def _confluent_consumer(bootstrap: str, name: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{name}-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )


def _confluent_commit(bootstrap: str, name: str) -> Sequence[str]:
    producer = _confluent_producer(bootstrap, name)
    for number in range(3):
        producer.begin_transaction()
        _confluent_send(producer, name, f"committed-{number}")
        producer.commit_transaction(WAIT_S)
    return ()


def _confluent_abort(bootstrap: str, name: str) -> Sequence[str]:
    producer = _confluent_producer(bootstrap, name)
    producer.begin_transaction()
    _confluent_send(producer, name, "aborted-0", "aborted-1")
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    _confluent_send(producer, name, "committed-0")
    producer.commit_transaction(WAIT_S)
    return ()


def _confluent_fence(bootstrap: str, name: str) -> Sequence[str]:
    old = _confluent_producer(bootstrap, name)
    old.begin_transaction()
    _confluent_send(old, name, "aborted-0")
    current = _confluent_producer(bootstrap, name)
    current.begin_transaction()
    _confluent_send(current, name, "committed-0")
    refused = ""
    try:
        old.commit_transaction(WAIT_S)
    except confluent_kafka.KafkaException as error:
        assert error.args[0].fatal(), error
        refused = f"refused: {error.args[0].name()}"
    current.commit_transaction(WAIT_S)
    return (refused,)


def _confluent_offsets(bootstrap: str, name: str) -> Sequence[str]:
    consumer = _confluent_consumer(bootstrap, name)
    consumer.subscribe([f"{name}-in"])
    try:
        found: list[str] = []
        while len(found) < RECORDS:
            messages = consumer.consume(RECORDS - len(found), WAIT_S)
            assert messages, f"{len(found)} records within {WAIT_S} s"
            found += [f"copied-{m.value().decode()}" for m in messages]
        producer = _confluent_producer(bootstrap, name)
        producer.begin_transaction()
        _confluent_send(producer, name, *found)
        at = confluent_kafka.TopicPartition(f"{name}-in", 0, RECORDS)
        producer.send_offsets_to_transaction([at], consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        at = confluent_kafka.TopicPartition(f"{name}-in", 0, 1)
        producer.send_offsets_to_transaction([at], consumer.consumer_group_metadata(), WAIT_S)
        producer.abort_transaction(WAIT_S)
        return ()
    finally:
        consumer.close()


def _confluent_read(bootstrap: str, name: str) -> Sequence[str]:
    consumer = _confluent_consumer(bootstrap, name)
    consumer.assign([confluent_kafka.TopicPartition(f"{name}-out", 0, 0)])
    try:
        found: list[str] = []
        while messages := consumer.consume(1, QUIET_S):
            found += [m.value().decode() for m in messages]
        return found
    finally:
        consumer.close()


# kafka-python.


def _kafka_python_producer(bootstrap: str, name: str) -> kafka.KafkaProducer:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{name}-id")
    producer.init_transactions()
    return producer


def _kafka_python_send(producer: kafka.KafkaProducer, name: str, *values: str) -> None:
    for value in values:
        producer.send(f"{name}-out", value.encode(), partition=0).get(WAIT_S)


def _kafka_python_commit(bootstrap: str, name: str) -> Sequence[str]:
    producer = _kafka_python_producer(bootstrap, name)
    for number in range(3):
        producer.begin_transaction()
        _kafka_python_send(producer, name, f"committed-{number}")
        producer.commit_transaction()
    producer.close(WAIT_S)
    return ()


def _kafka_python_abort(bootstrap: str, name: str) -> Sequence[str]:
    producer = _kafka_python_producer(bootstrap, name)
    producer.begin_transaction()
    _kafka_python_send(producer, name, "aborted-0", "aborted-1")
    producer.abort_transaction()
    producer.begin_transaction()
    _kafka_python_send(producer, name, "committed-0")
    producer.commit_transaction()
    producer.close(WAIT_S)
    return ()


def _kafka_python_fence(bootstrap: str, name: str) -> Sequence[str]:
    old = _kafka_python_producer(bootstrap, name)
    old.begin_transaction()
    _kafka_python_send(old, name, "aborted-0")
    current = _kafka_python_producer(bootstrap, name)
    current.begin_transaction()
    _kafka_python_send(current, name, "committed-0")
    refused = ""
    try:
        old.commit_transaction()
    except kafka.errors.KafkaError as error:
        refused = f"refused: {type(error).__name__}"
    current.commit_transaction()
    current.close(WAIT_S)
    old.close(0)
    return (refused,)


def _kafka_python_consumer(bootstrap: str, name: str) -> kafka.KafkaConsumer:
    return kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{name}-group",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


def _kafka_python_offsets(bootstrap: str, name: str) -> Sequence[str]:
    at = kafka.TopicPartition(f"{name}-in", 0)
    consumer = _kafka_python_consumer(bootstrap, name)
    consumer.subscribe([f"{name}-in"])
    try:
        found: list[str] = []
        while len(found) < RECORDS:
            for records in consumer.poll(int(WAIT_S * 1000)).values():
                found += [f"copied-{r.value.decode()}" for r in records]
        producer = _kafka_python_producer(bootstrap, name)
        producer.begin_transaction()
        _kafka_python_send(producer, name, *found)
        group = consumer.group_metadata()
        offset = kafka.OffsetAndMetadata(RECORDS, "", -1)
        producer.send_offsets_to_transaction({at: offset}, group)
        producer.commit_transaction()
        producer.begin_transaction()
        offset = kafka.OffsetAndMetadata(1, "", -1)
        producer.send_offsets_to_transaction({at: offset}, group)
        producer.abort_transaction()
        producer.close(WAIT_S)
        return ()
    finally:
        consumer.close()


def _kafka_python_read(bootstrap: str, name: str) -> Sequence[str]:
    at = kafka.TopicPartition(f"{name}-out", 0)
    consumer = _kafka_python_consumer(bootstrap, name)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    try:
        found: list[str] = []
        while records := consumer.poll(int(QUIET_S * 1000)).get(at, []):
            found += [r.value.decode() for r in records]
        return found
    finally:
        consumer.close()


# aiokafka.


def _aiokafka_producer(bootstrap: str, name: str) -> aiokafka.AIOKafkaProducer:
    return aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{name}-id")


async def _aiokafka_send(producer: aiokafka.AIOKafkaProducer, name: str, *values: str) -> None:
    for value in values:
        await producer.send_and_wait(f"{name}-out", value.encode(), partition=0)


async def _aiokafka_commit(bootstrap: str, name: str) -> Sequence[str]:
    async with _aiokafka_producer(bootstrap, name) as producer:
        for number in range(3):
            async with producer.transaction():
                await _aiokafka_send(producer, name, f"committed-{number}")
    return ()


async def _aiokafka_abort(bootstrap: str, name: str) -> Sequence[str]:
    async with _aiokafka_producer(bootstrap, name) as producer:
        await producer.begin_transaction()
        await _aiokafka_send(producer, name, "aborted-0", "aborted-1")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await _aiokafka_send(producer, name, "committed-0")
        await producer.commit_transaction()
    return ()


async def _aiokafka_fence(bootstrap: str, name: str) -> Sequence[str]:
    old = _aiokafka_producer(bootstrap, name)
    await old.start()
    await old.begin_transaction()
    await _aiokafka_send(old, name, "aborted-0")
    async with _aiokafka_producer(bootstrap, name) as current:
        await current.begin_transaction()
        await _aiokafka_send(current, name, "committed-0")
        refused = ""
        try:
            await old.commit_transaction()
        except aiokafka.errors.KafkaError as error:
            refused = f"refused: {type(error).__name__}"
        await current.commit_transaction()
    try:
        await old.stop()
    except aiokafka.errors.KafkaError as error:
        print(f"the fenced producer's stop: {error!r}")
    return (refused,)


def _aiokafka_consumer(bootstrap: str, name: str, *topics: str) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=f"{name}-group",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


async def _aiokafka_offsets(bootstrap: str, name: str) -> Sequence[str]:
    at = aiokafka.TopicPartition(f"{name}-in", 0)
    async with (
        _aiokafka_consumer(bootstrap, name, f"{name}-in") as consumer,
        _aiokafka_producer(bootstrap, name) as producer,
    ):
        found: list[str] = []
        while len(found) < RECORDS:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [f"copied-{r.value.decode()}" for r in records]
        async with producer.transaction():
            await _aiokafka_send(producer, name, *found)
            await producer.send_offsets_to_transaction({at: RECORDS}, f"{name}-group")
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({at: 1}, f"{name}-group")
        await producer.abort_transaction()
    return ()


async def _aiokafka_read(bootstrap: str, name: str) -> Sequence[str]:
    at = aiokafka.TopicPartition(f"{name}-out", 0)
    async with _aiokafka_consumer(bootstrap, name) as consumer:
        consumer.assign([at])
        await consumer.seek_to_beginning(at)
        found: list[str] = []
        while records := (await consumer.getmany(at, timeout_ms=int(QUIET_S * 1000))).get(at, []):
            found += [r.value.decode() for r in records]
        return found


def _run(feature: Callable[[str, str], Awaitable[Sequence[str]]]) -> Feature:
    async def bounded(bootstrap: str, name: str) -> Sequence[str]:
        return await asyncio.wait_for(feature(bootstrap, name), 2 * WAIT_S)

    return lambda bootstrap, name: asyncio.run(bounded(bootstrap, name))


# Headwater's SDK.


def _sdk_producer(bootstrap: str, name: str) -> Producer:
    return Producer(bootstrap, transactional_id=f"{name}-id")


def _sdk_send(producer: Producer, name: str, *values: str) -> None:
    for value in values:
        producer.send(f"{name}-out", value, partition=0)
    producer.flush(WAIT_S)


def _sdk_commit(bootstrap: str, name: str) -> Sequence[str]:
    with _sdk_producer(bootstrap, name) as producer:
        for number in range(3):
            with producer.transaction():
                _sdk_send(producer, name, f"committed-{number}")
    return ()


def _sdk_abort(bootstrap: str, name: str) -> Sequence[str]:
    with _sdk_producer(bootstrap, name) as producer:
        producer.begin_transaction()
        _sdk_send(producer, name, "aborted-0", "aborted-1")
        producer.abort_transaction()
        with producer.transaction():
            _sdk_send(producer, name, "committed-0")
    return ()


def _sdk_fence(bootstrap: str, name: str) -> Sequence[str]:
    old = _sdk_producer(bootstrap, name)
    old.begin_transaction()
    _sdk_send(old, name, "aborted-0")
    with _sdk_producer(bootstrap, name) as current, current.transaction():
        _sdk_send(current, name, "committed-0")
        refused = ""
        try:
            old.commit_transaction()
        except HeadwaterError as error:
            refused = f"refused: {type(error).__name__}"
    try:
        old.close()
    except HeadwaterError as error:
        print(f"the fenced producer's close: {error!r}")
    return (refused,)


def _sdk_consumer(bootstrap: str, name: str, *topics: str) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=f"{name}-group",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def _sdk_offsets(bootstrap: str, name: str) -> Sequence[str]:
    at = TopicPartition(f"{name}-in", 0)
    with (
        _sdk_consumer(bootstrap, name, f"{name}-in") as consumer,
        _sdk_producer(bootstrap, name) as producer,
    ):
        found: list[str] = []
        while len(found) < RECORDS:
            for records in consumer.poll(1000).values():
                found += [f"copied-{(r.value or b'').decode()}" for r in records]
        with producer.transaction():
            _sdk_send(producer, name, *found)
            producer.send_offsets(None, consumer)
        producer.begin_transaction()
        producer.send_offsets({at: 1}, consumer.group_metadata())
        producer.abort_transaction()
    return ()


def _sdk_read(bootstrap: str, name: str) -> Sequence[str]:
    at = TopicPartition(f"{name}-out", 0)
    with _sdk_consumer(bootstrap, name) as consumer:
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        found: list[str] = []
        while records := consumer.poll(int(QUIET_S * 1000)).get(at, []):
            found += [(r.value or b"").decode() for r in records]
        return found


CLIENTS: Mapping[str, Mapping[str, Feature]] = {
    "Headwater's SDK": {
        "commit": _sdk_commit,
        "abort": _sdk_abort,
        "fence": _sdk_fence,
        "offsets": _sdk_offsets,
        "read": _sdk_read,
    },
    "confluent-kafka": {
        "commit": _confluent_commit,
        "abort": _confluent_abort,
        "fence": _confluent_fence,
        "offsets": _confluent_offsets,
        "read": _confluent_read,
    },
    "kafka-python": {
        "commit": _kafka_python_commit,
        "abort": _kafka_python_abort,
        "fence": _kafka_python_fence,
        "offsets": _kafka_python_offsets,
        "read": _kafka_python_read,
    },
    "aiokafka": {
        "commit": _run(_aiokafka_commit),
        "abort": _run(_aiokafka_abort),
        "fence": _run(_aiokafka_fence),
        "offsets": _run(_aiokafka_offsets),
        "read": _run(_aiokafka_read),
    },
}
