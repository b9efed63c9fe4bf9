"""Old offsets through the broker: a stock consumer's speed against hot ones, the first fetch, and
what a full-speed reader of old offsets does to producers."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from peers import HeadwaterPeer

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from headwater_tier.service.options import ServiceOptions

VALUE_BYTES = 100
GROUP_ROWS = 65_536
"""Rows of one row group: what a first fetch has to rebuild."""
FETCH_BYTES = 1 << 20
PACE_S = 0.002
BESIDE_S = 5.0
WAIT_S = 60.0
CONFIGS = {
    "remote.storage.enable": "true",
    "file.delete.delay.ms": "100",
    "segment.bytes": str(32 << 20),
}


def fill(headwater: HeadwaterPeer, topic: str, rows: int) -> None:
    """A topic of one partition."""
    with Admin(headwater.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs=CONFIGS)])
    generator = np.random.default_rng(3)
    with Producer(headwater.bootstrap) as producer:
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            data = pa.py_buffer(generator.bytes(count * VALUE_BYTES))
            offsets = pa.array(np.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, np.int32))
            values = pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], data])
            producer.send_table(topic, pa.table({"value": values}), value="value")
        producer.flush(WAIT_S)


def make_cold(headwater: HeadwaterPeer, topics: dict[str, int]) -> None:
    """Tier the topics, and wait until the broker has no local record of them."""
    command = [sys.executable, "-P", "-m", "headwater", "tier", "serve", "--once"]
    command += ["--bootstrap-server", headwater.bootstrap]
    subprocess.run(command, check=True, capture_output=True)
    with Admin(headwater.bootstrap) as admin:
        for topic in topics:
            admin.alter_configs("topic", topic, {"local.retention.ms": "1"})
    brokers = ServiceOptions(headwater.bootstrap).brokers()
    end = time.monotonic() + WAIT_S
    for known in brokers.topics(topics).values():
        brokers.hint(known)
    wanted = {(topic, 0): rows for topic, rows in topics.items()}
    while brokers.local_starts(list(wanted)) != wanted:
        if time.monotonic() > end:
            raise RuntimeError(f"local records are left: {brokers.local_starts(list(wanted))}")
        time.sleep(0.1)
    brokers.close()


def consume(headwater: HeadwaterPeer, topic: str, rows: int) -> float:
    """Records a second of a stock consumer from offset 0, from its first record on."""
    settings = {
        "bootstrap.servers": headwater.bootstrap,
        "group.id": "nobody",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = consumer.consume(1, WAIT_S)
    start, seen = time.monotonic(), len(first)
    while seen < rows:
        found = consumer.consume(min(10_000, rows - seen), WAIT_S)
        if not found or found[-1].offset() != seen + len(found) - 1:
            raise RuntimeError(f"{topic}: no record after offset {seen - 1}, or a gap")
        seen += len(found)
    consumer.close()
    return rows / (time.monotonic() - start)


def first_fetches(headwater: HeadwaterPeer, topic: str, rows: int) -> list[float]:
    """Seconds from the request to the records, each in a row group that nobody has read yet."""
    client, places = ServiceOptions(headwater.bootstrap).client(), list(range(rows // GROUP_ROWS))
    random.Random(1).shuffle(places)
    found = []
    for place in places:
        offset = place * GROUP_ROWS + GROUP_ROWS // 3
        start = time.monotonic()
        next(iter(client.stream_batches(topic, 0, offset, offset + 1, max_bytes=FETCH_BYTES)))
        found.append(time.monotonic() - start)
    client.close()
    return found[1:]  # the first one has started the worker


def produce_latency(headwater: HeadwaterPeer, topic: str, seconds: float) -> list[float]:
    """Seconds from a lone record to its acknowledgement, at an even pace."""
    found = []
    with Producer(headwater.bootstrap, linger_ms=0) as producer:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            producer.send(topic, b"x" * VALUE_BYTES).result(WAIT_S)
            found.append(time.monotonic() - start)
            time.sleep(PACE_S)
    return found[len(found) // 10 :]


def read_in_circles(bootstrap: str, topic: str, rows: int) -> None:
    """The work of the full-speed reader: fetch all bytes, again and again, without decoding."""
    os.nice(10)
    client = ServiceOptions(bootstrap).client()
    while True:
        for _ in client.stream_batches(topic, 0, 0, rows, max_bytes=FETCH_BYTES):
            pass


def bench_cold(headwater: HeadwaterPeer, rows: int) -> list[dict[str, Any]]:
    """Three rows of the table."""
    topics = {"old-a": rows, "old-b": rows, "old-c": rows}
    for topic in topics:
        fill(headwater, topic, rows)
    with Admin(headwater.bootstrap) as admin:
        admin.create_topics([NewTopic("lone", 1, 1)])
    hot = statistics.median(consume(headwater, "old-a", rows) for _ in range(3))
    make_cold(headwater, topics)
    firsts = [s for topic in ("old-b", "old-c") for s in first_fetches(headwater, topic, rows)]
    cold = consume(headwater, "old-a", rows)
    again = consume(headwater, "old-a", rows)
    alone, beside = beside_a_reader(headwater, "old-b", rows)
    p95 = float(np.percentile(firsts, 95))
    return [
        {
            "work": "cold against hot, sequential, stock consumer",
            "found": round(cold / hot, 2),
            "bar": 0.8,
            "at_least": True,
            "more": f"{cold:,.0f} against {hot:,.0f} rec/s; read again {again:,.0f}",
        },
        {
            "work": "first fetch of a row group, p95 ms",
            "found": round(1000 * p95, 1),
            "bar": 50.0,
            "more": f"p50 {1000 * statistics.median(firsts):.1f}, of {len(firsts)}",
        },
        {
            "work": "produce p99 beside a cold reader, against alone",
            "found": round(beside / alone, 2),
            "bar": 1.5,
            "more": f"{1000 * beside:.2f} against {1000 * alone:.2f} ms",
        },
    ]


def beside_a_reader(headwater: HeadwaterPeer, topic: str, rows: int) -> tuple[float, float]:
    """p99 of a lone record's acknowledgement, alone and beside a reader."""
    alone = produce_latency(headwater, "lone", BESIDE_S)
    command = [sys.executable, __file__, headwater.bootstrap, topic, str(rows)]
    reader = subprocess.Popen(command)
    try:
        threading.Event().wait(1.0)
        beside = produce_latency(headwater, "lone", BESIDE_S)
    finally:
        reader.kill()
        reader.wait()
    return float(np.percentile(alone, 99)), float(np.percentile(beside, 99))


if __name__ == "__main__":
    read_in_circles(sys.argv[1], sys.argv[2], int(sys.argv[3]))
