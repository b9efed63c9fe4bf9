"""What `bench_sdk` measures, for each client: send and read records of 100 bytes, nothing else.

Each function sends or reads `count` records and returns; its caller measures the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import pyarrow as pa
from confluent_kafka.aio import AIOProducer

from headwater import Consumer, Producer
from headwater.aio import AsyncConsumer, AsyncProducer

VALUE = bytes(100)
LINGER_MS = 5
Work = Callable[[str, str, int], None]
"""(bootstrap, topic, count)."""


def headwater_aio_send(bootstrap: str, topic: str, count: int) -> None:
    """`await send`, deliveries left alone, `flush`."""

    async def work() -> None:
        async with AsyncProducer(bootstrap, linger_ms=LINGER_MS) as producer:
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
            assert producer.statistics().records_sent == count

    asyncio.run(work())


def aiokafka_send(bootstrap: str, topic: str, count: int) -> None:
    """The same with aiokafka."""

    async def work() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=LINGER_MS, acks="all", max_batch_size=131_072
        )
        await producer.start()
        for _ in range(count):
            await producer.send(topic, VALUE)
        await producer.flush()
        await producer.stop()

    asyncio.run(work())


def confluent_aio_send(bootstrap: str, topic: str, count: int) -> None:
    """The same with confluent-kafka's AIOProducer: it gives a future per record."""

    async def work() -> None:
        producer = AIOProducer({"bootstrap.servers": bootstrap, "linger.ms": LINGER_MS})
        sent = [await producer.produce(topic, VALUE) for _ in range(count)]
        await producer.flush()
        await asyncio.gather(*sent)
        await producer.close()

    asyncio.run(work())


def headwater_send(bootstrap: str, topic: str, count: int) -> None:
    """The blocking face: a future per record, `flush`."""
    with Producer(bootstrap, linger_ms=LINGER_MS) as producer:
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush()
        assert producer.statistics().records_sent == count


def confluent_send(bootstrap: str, topic: str, count: int) -> None:
    """confluent-kafka with a delivery callback per record."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    done = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal done
        assert error is None, error
        done += 1

    for number in range(count):
        producer.produce(topic, VALUE, on_delivery=on_delivery)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    assert done == count


def confluent_plain_send(bootstrap: str, topic: str, count: int) -> None:
    """confluent-kafka without callbacks: nobody learns of a record that fails."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(count):
        producer.produce(topic, VALUE)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush() == 0


def headwater_send_and_wait(bootstrap: str, topic: str, count: int) -> None:
    """Each record is acknowledged before the next is sent."""
    with Producer(bootstrap, linger_ms=0) as producer:
        for _ in range(count):
            producer.send(topic, VALUE).result()


def confluent_send_and_wait(bootstrap: str, topic: str, count: int) -> None:
    """The same with confluent-kafka, by `flush`."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for _ in range(count):
        producer.produce(topic, VALUE)
        assert producer.flush() == 0


def headwater_send_table(bootstrap: str, topic: str, count: int) -> None:
    """One table of so many rows."""
    table = pa.table({"value": pa.repeat(pa.scalar(VALUE), count)})
    with Producer(bootstrap) as producer:
        assert producer.send_table(topic, table, value="value").result().rows == count


def headwater_read_arrow(bootstrap: str, topic: str, count: int) -> None:
    """`poll_arrow`."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        left = count
        while left > 0:
            left -= consumer.poll_arrow().num_rows


def confluent_consume(bootstrap: str, topic: str, count: int) -> None:
    """confluent-kafka's `consume`, a thousand records at a time."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = count
    while left > 0:
        left -= len(consumer.consume(1000, 1.0))
    consumer.close()


def headwater_aio_read(bootstrap: str, topic: str, count: int) -> None:
    """`async for`."""

    async def work() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap) as consumer:
            await consumer.assign([(topic, 0)])
            consumer.seek_to_beginning()
            left = count
            async for _ in consumer:
                left -= 1
                if not left:
                    return

    asyncio.run(work())


def aiokafka_read(bootstrap: str, topic: str, count: int) -> None:
    """The same with aiokafka."""

    async def work() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        left = count
        async for _ in consumer:
            left -= 1
            if not left:
                break
        await consumer.stop()

    asyncio.run(work())


def headwater_read(bootstrap: str, topic: str, count: int) -> None:
    """`poll` of the blocking face."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        left = count
        while left > 0:
            left -= sum(map(len, consumer.poll(1000).values()))


def confluent_read(bootstrap: str, topic: str, count: int) -> None:
    """confluent-kafka's `poll`, a record at a time."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = count
    while left:
        if consumer.poll(1.0) is not None:
            left -= 1
    consumer.close()


WORK: dict[str, Work] = {
    "aio send": headwater_aio_send,
    "aio send, aiokafka": aiokafka_send,
    "aio send, AIOProducer": confluent_aio_send,
    "send": headwater_send,
    "send, confluent with callback": confluent_send,
    "send, confluent without": confluent_plain_send,
    "send and wait": headwater_send_and_wait,
    "send and wait, confluent": confluent_send_and_wait,
    "send_table": headwater_send_table,
    "send_table, first of a process": headwater_send_table,
    "async for": headwater_aio_read,
    "async for, aiokafka": aiokafka_read,
    "poll": headwater_read,
    "poll, confluent": confluent_read,
    "poll_arrow": headwater_read_arrow,
    "consume, confluent": confluent_consume,
}

COUNTS = {
    "send and wait": 2_000,
    "send and wait, confluent": 2_000,
    "send_table": 1_000_000,
    "send_table, first of a process": 1_000_000,
    "poll_arrow": 1_000_000,
    "consume, confluent": 1_000_000,
}
"""Of works that are measured with another number of records than the others."""
COLD = "send_table, first of a process"
"""It is measured without a run before."""
