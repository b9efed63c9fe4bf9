"""Stock confluent-kafka clients: throughput, end-to-end latency, many partitions, new topics."""

from __future__ import annotations

import json
import os
import subprocess
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from generators import generator, librdkafka
from measures import Figure, Peer, create_topic, delete_topics, touch
from peers import cpu_seconds, kafka_tool

VALUE_BYTES = 100
PARTITIONS = 4
MESSAGES = 1_000_000
MANY_PARTITIONS = 1_000
LATENCY_S = 5.0
LATENCY_SKIP_S = 1.0
"""The first part of a latency run warms up the path; it is not counted."""
TOPICS = 100
WAIT_S = 120
CONSUMER_TOOL = "org.apache.kafka.tools.ConsumerPerformance"
FILL = {"linger.ms": 5, "queue.buffering.max.messages": 2_000_000}


def produce(peer: Peer, *, partitions: int = PARTITIONS, copies: int = 1) -> Figure:
    """One producer with its own defaults (acks=all, no idempotence), linger 5 ms."""
    topic = f"stock{time.monotonic_ns()}"
    create_topic(peer, topic, partitions, copies)
    touch(peer, topic, partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap, **FILL})
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
    delete_topics(peer, topic)
    if left or failures:
        raise RuntimeError(f"{peer.name}: {left} unsent, {len(failures)} failed: {failures[:1]}")
    return Figure(MESSAGES / seconds, used / MESSAGES * 1e6)


def consume(peer: Peer) -> Figure:
    """Kafka's own kafka-consumer-perf-test.sh, a member of a group with fetch sessions: records a
    second of its fetching, without its start and rebalance."""
    topic = f"read{time.monotonic_ns()}"
    create_topic(peer, topic, PARTITIONS)
    touch(peer, topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": peer.bootstrap, **FILL})
    value = os.urandom(VALUE_BYTES)
    for i in range(MESSAGES):
        producer.produce(topic, value, partition=i % PARTITIONS)
        if i % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(WAIT_S):
        raise RuntimeError(f"{peer.name}: {left} unsent")
    asked = ("--topic", topic, "--num-records", str(MESSAGES), "--timeout", "60000")
    before = cpu_seconds(peer.pids)
    shown = kafka_tool(CONSUMER_TOOL, "--bootstrap-server", peer.bootstrap, *asked)
    used = cpu_seconds(peer.pids) - before
    delete_topics(peer, topic)
    row = shown.splitlines()[-1].split(", ")
    records, fetched_per_s = int(row[4]), float(row[9])
    if records < MESSAGES:
        raise RuntimeError(f"{peer.name}: {records} of {MESSAGES} records: {shown}")
    return Figure(fetched_per_s, used / records * 1e6)


def create_topics(peer: Peer, *, copies: int) -> Figure:
    """Topics of one partition, a request each, by a stock admin client that awaits each answer."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    admin.list_topics(timeout=WAIT_S)
    names = [f"made{time.monotonic_ns()}-{n}" for n in range(TOPICS)]
    before, start = cpu_seconds(peer.pids), time.monotonic()
    for name in names:
        admin.create_topics([NewTopic(name, 1, copies)])[name].result(WAIT_S)
    seconds = time.monotonic() - start
    used = cpu_seconds(peer.pids) - before
    delete_topics(peer, *names)
    return Figure(TOPICS / seconds, used / TOPICS * 1e6)


def latency(peer: Peer, records_per_s: int) -> tuple[Figure, Figure]:
    """End to end, acks=all, linger 0: (1 / p50, 1 / p99) in 1/s, of producer to consumer.

    Raises RuntimeError when records are lost or refused.
    """
    topic = f"latency{time.monotonic_ns()}"
    create_topic(peer, topic, 1)
    touch(peer, topic, 1)
    program = generator("pacer", librdkafka())
    pace = (records_per_s, LATENCY_S, LATENCY_SKIP_S, VALUE_BYTES)
    command = [program, peer.bootstrap, topic, *map(str, pace)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    delete_topics(peer, topic)
    if done.returncode != 0:
        raise RuntimeError(f"{peer.name} {topic}: {done.stdout}{done.stderr}")
    found = json.loads(done.stdout)
    return Figure(1e6 / found["p50_us"]), Figure(1e6 / found["p99_us"])
