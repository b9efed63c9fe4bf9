"""Stock confluent-kafka transactions: rate, end-to-end latency, offsets sent to a transaction."""

from __future__ import annotations

import os
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import confluent_kafka
from measures import Figure, Peer, create_topic, delete_topics, touch
from peers import cpu_seconds
from raw_transactions import RECORDS, VALUE_BYTES

WAIT_S = 60.0
PAUSE_S = 0.02
"""Between the transactions of the latency run: what one leaves to do must not delay the next."""
LATENCY_SKIP = 20
"""The first transactions of a latency run warm up the path; they are not counted."""
POLL_S = 0.1


def rate(peer: Peer, *, producers: int, partitions: int, seconds: float) -> Figure:
    """Committed transactions per second of so many producers, each of RECORDS records."""
    topic = f"stock{time.monotonic_ns()}"
    create_topic(peer, topic, partitions)
    touch(peer, topic, partitions)
    made = [_producer(peer, f"{topic}-{n}") for n in range(producers)]

    def transact(producer: confluent_kafka.Producer, _done: int) -> None:
        producer.begin_transaction()
        _produce(producer, topic, partitions)
        producer.commit_transaction(WAIT_S)

    figure = _drive(peer, made, transact, seconds)
    delete_topics(peer, topic)
    return figure


def send_offsets(peer: Peer, *, producers: int, seconds: float) -> Figure:
    """Loops per second of a copier: RECORDS records, and the offset of its source, per commit."""
    topic = f"copied{time.monotonic_ns()}"
    create_topic(peer, topic, 1)
    touch(peer, topic, 1)
    made = [_producer(peer, f"{topic}-{n}") for n in range(producers)]
    consumers = [_consumer(peer, f"{topic}-{n}") for n in range(producers)]
    for consumer in consumers:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0)])
    of = {id(p): c.consumer_group_metadata() for p, c in zip(made, consumers, strict=True)}

    def transact(producer: confluent_kafka.Producer, done: int) -> None:
        producer.begin_transaction()
        _produce(producer, topic, 1)
        at = [confluent_kafka.TopicPartition(topic, 0, done)]
        producer.send_offsets_to_transaction(at, of[id(producer)], WAIT_S)
        producer.commit_transaction(WAIT_S)

    figure = _drive(peer, made, transact, seconds)
    for consumer in consumers:
        consumer.close()
    delete_topics(peer, topic)
    return figure


def latency(peer: Peer, *, seconds: float) -> tuple[Figure, Figure]:
    """(1 / p50, 1 / p99) in 1/s of a transaction of RECORDS records: from its begin until a
    read_committed consumer has the last one."""
    topic = f"latency{time.monotonic_ns()}"
    create_topic(peer, topic, 1)
    touch(peer, topic, 1)
    producer = _producer(peer, topic)
    times = []
    with _reader(peer, topic) as arrived:
        arrived.get(timeout=WAIT_S)  # the record that `touch` wrote
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(times) < LATENCY_SKIP + 10:
            start = time.monotonic()
            producer.begin_transaction()
            _produce(producer, topic, 1)
            producer.commit_transaction(WAIT_S)
            last = max(arrived.get(timeout=WAIT_S) for _ in range(RECORDS))
            times.append(last - start)
            time.sleep(PAUSE_S)
    delete_topics(peer, topic)
    found = sorted(times[LATENCY_SKIP:])
    p99 = found[min(int(len(found) * 0.99), len(found) - 1)]
    return Figure(1 / statistics.median(found)), Figure(1 / p99)


@contextmanager
def _reader(peer: Peer, topic: str) -> Iterator[queue.SimpleQueue[float]]:
    """The arrival times of a topic's committed records, read in another thread."""
    arrived: queue.SimpleQueue[float] = queue.SimpleQueue()
    stop = threading.Event()
    consumer = _consumer(peer, topic)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def read() -> None:
        while not stop.is_set():
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                arrived.put(time.monotonic())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield arrived
    finally:
        stop.set()
        reader.join()
        consumer.close()


def _drive(
    peer: Peer,
    producers: list[confluent_kafka.Producer],
    transact: Callable[[confluent_kafka.Producer, int], None],
    seconds: float,
) -> Figure:
    """Run each producer in a thread of its own for so long."""

    def work(producer: confluent_kafka.Producer) -> int:
        for done in count(1):
            transact(producer, done)
            if time.monotonic() >= end:
                break
        return done

    with ThreadPoolExecutor(len(producers)) as pool:
        before, start = cpu_seconds(peer.pids), time.monotonic()
        end = start + seconds
        total = sum(pool.map(work, producers))
        took = time.monotonic() - start
    used = cpu_seconds(peer.pids) - before
    return Figure(total / took, used / total * 1e6)


def _producer(peer: Peer, name: str) -> confluent_kafka.Producer:
    config = {"bootstrap.servers": peer.bootstrap, "transactional.id": name, "linger.ms": 0}
    producer = confluent_kafka.Producer(config)
    producer.init_transactions(WAIT_S)
    return producer


def _consumer(peer: Peer, group: str) -> confluent_kafka.Consumer:
    config = {
        "bootstrap.servers": peer.bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return confluent_kafka.Consumer(config)


def _produce(producer: confluent_kafka.Producer, topic: str, partitions: int) -> None:
    for n in range(RECORDS):
        producer.produce(topic, os.urandom(VALUE_BYTES), partition=n % partitions)
