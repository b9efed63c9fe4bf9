"""Stock confluent-kafka clients: throughput, end-to-end latency, many partitions."""

from __future__ import annotations

import os
import statistics
import struct
import threading
import time

import confluent_kafka
from measures import Figure, Peer, create_topic, delete_topic, touch
from peers import cpu_seconds

VALUE_BYTES = 100
PARTITIONS = 4
MESSAGES = 1_000_000
MANY_PARTITIONS = 1_000
LATENCY_S = 8.0
LATENCY_SKIP_S = 2.0
"""The first part of a latency run warms up the path; it is not counted."""
WAIT_S = 120
_STAMP = struct.Struct(">d")


def produce(peer: Peer, *, partitions: int = PARTITIONS, copies: int = 1) -> Figure:
    """One producer with its own defaults (acks=all, no idempotence), linger 5 ms."""
    topic = f"stock{time.monotonic_ns()}"
    create_topic(peer, topic, partitions, copies)
    touch(peer, topic, partitions)
    config = {
        "bootstrap.servers": peer.bootstrap,
        "linger.ms": 5,
        "queue.buffering.max.messages": 2_000_000,
    }
    producer = confluent_kafka.Producer(config)
    failures: list[object] = []

    def report(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    value = os.urandom(VALUE_BYTES)
    before, start = cpu_seconds(peer.pids), time.monotonic()
    for i in range(MESSAGES):
        producer.produce(topic, value, partition=i % partitions, on_delivery=report)
        if i % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(WAIT_S)
    seconds = time.monotonic() - start
    used = cpu_seconds(peer.pids) - before
    delete_topic(peer, topic)
    if left or failures:
        raise RuntimeError(f"{peer.name}: {left} unsent, {len(failures)} failed: {failures[:1]}")
    return Figure(MESSAGES / seconds, used / MESSAGES * 1e6)


def latency(peer: Peer, records_per_s: int) -> tuple[Figure, Figure]:
    """End to end, acks=all, linger 0: (1 / p50, 1 / p99) in 1/s, of producer to consumer."""
    topic = f"latency{time.monotonic_ns()}"
    create_topic(peer, topic, 1)
    touch(peer, topic, 1)
    taken: list[float] = []
    ready, stopping = threading.Event(), threading.Event()

    def consume() -> None:
        settings = {
            "bootstrap.servers": peer.bootstrap,
            "group.id": "latency",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while not stopping.is_set():
            message = consumer.poll(0.05)  # `consume` would wait for a batch
            if message is None or message.error() is not None:
                continue
            value = message.value()
            if value:
                taken.append(time.monotonic() - _STAMP.unpack_from(value)[0])
            ready.set()
        consumer.close()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        if not ready.wait(WAIT_S):
            raise RuntimeError(f"{peer.name}: the consumer of {topic} sees nothing")
        sent_early = _send_at_pace(peer, topic, records_per_s)
        time.sleep(1.0)
    finally:
        stopping.set()
        thread.join()
    delete_topic(peer, topic)
    counted = sorted(taken[sent_early:])
    if len(counted) < (LATENCY_S - LATENCY_SKIP_S) * records_per_s * 0.9:
        raise RuntimeError(f"{peer.name}: {len(counted)} of {topic} came back")
    p50 = statistics.median(counted)
    p99 = counted[int(len(counted) * 0.99)]
    return Figure(1 / p50), Figure(1 / p99)


def _send_at_pace(peer: Peer, topic: str, records_per_s: int) -> int:
    """Send for LATENCY_S at an even pace; how many of the records are warm-up."""
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 0})
    padding = bytes(VALUE_BYTES - _STAMP.size)
    start = time.monotonic()
    total, sent = int(LATENCY_S * records_per_s), 0
    while sent < total:
        due = min(total, int((time.monotonic() - start) * records_per_s) + 1)
        for _ in range(due - sent):
            producer.produce(topic, _STAMP.pack(time.monotonic()) + padding)
        sent = due
        producer.poll(0)
        time.sleep(max(0.0, start + sent / records_per_s - time.monotonic()))
    if producer.flush(WAIT_S):
        raise RuntimeError(f"{peer.name}: records of {topic} were never acknowledged")
    return int(LATENCY_SKIP_S * records_per_s)
