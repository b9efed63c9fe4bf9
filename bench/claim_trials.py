"""Claims about one broker, each as a short trial: what was found, and whether the claim holds."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import statistics
import struct
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import confluent_kafka
import scale_log

from headwater import Consumer, Producer
from headwater.client.blocking.record_client import RecordClient
from integration.cluster import LocalCluster

VALUE = os.urandom(100)
MESSAGES = 400_000
RATE_BAR = 100_000
LATENCY_BAR_MS = 5.0
LATENCY_RECORDS = 2_000
LATENCY_PAUSE_S = 0.001
SEGMENTS_OF = {scale_log.SHORT: 1, scale_log.LONG: 100}
RANDOM_READS = 3_000
FLAT_BAR = 1.25
REFRESH_S = 1.0
FOLLOW_SLACK_S = 1.0
SYNC_MESSAGES = 2_000
ASYNC_BAR = 2.0
BURST = 300_000
SLOW_READS_PER_S = 50_000
UNBATCHED = 50_000
BATCHING_BAR = 2.0
CLIENTS = 2_000
FILES_SPARED = 500
HISTORY = 1_000_000
TAIL_S = 3.0
TAIL_BAR_MS = 100.0
WAIT_S = 60.0
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request without a client id: length, key, version, correlation id."""


@dataclass(frozen=True)
class Finding:
    """A claim, the statements that make it, what was measured, and whether it holds by that."""

    rows: str
    claim: str
    figure: str
    holds: bool


def rate(cluster: LocalCluster) -> Finding:
    """One stock producer."""
    per_s = produce_rate(cluster, "claim-rate", 6, {"linger.ms": 5})
    text = f"{per_s:,.0f} messages of 100 B per second by one librdkafka producer, acks=all"
    claim = "100,000 messages per second on one ordinary machine"
    return Finding("B3-437, S3-002", claim, text, per_s >= RATE_BAR)


def latency(cluster: LocalCluster) -> Finding:
    """From before the send to after the poll, in one process, a record at a time."""
    topic = cluster.create_topic("claim-latency")
    times = []
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        options = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest"}
        with Consumer(topic, **options) as consumer:
            for number in range(LATENCY_RECORDS):
                start = time.perf_counter()
                producer.send(topic, VALUE)
                while not consumer.poll(timeout_ms=1_000):
                    pass
                if number >= LATENCY_RECORDS // 10:
                    times.append((time.perf_counter() - start) * 1000)
                time.sleep(LATENCY_PAUSE_S)
    p50, p99 = scale_log.percentile(times, 50), scale_log.percentile(times, 99)
    text = f"sent and read in {p50:.2f} ms (median), {p99:.2f} ms (p99), acks=all"
    return Finding("S3-002", "a latency of a few milliseconds", text, p50 <= LATENCY_BAR_MS)


def flat(cluster: LocalCluster) -> Finding:
    """Fetches at random offsets of a log of 1 GB and of one of 100 GB, by turns."""
    for topic in SEGMENTS_OF:
        cluster.create_topic(topic)
    cluster.stop_broker(0)
    for topic, count in SEGMENTS_OF.items():
        scale_log.lay(cluster, topic, count)
    cluster.restart(0)
    times: Mapping[str, list[float]] = {topic: [] for topic in SEGMENTS_OF}
    with RecordClient(cluster.bootstrap) as client:
        pick = random.Random(scale_log.SEED)
        for turn in range(RANDOM_READS + scale_log.WARM_UP):
            for topic, count in SEGMENTS_OF.items():
                offset = 2 * pick.randrange(count * scale_log.PAIRS) + 1
                taken = scale_log.timed_ms(
                    lambda t=topic, at=offset: client.fetch_batches(t, 0, at, scale_log.SMALL_BYTES)
                )
                if turn >= scale_log.WARM_UP:
                    times[topic].append(taken)
    short, long = (statistics.median(times[topic]) for topic in SEGMENTS_OF)
    text = f"a read at a random offset: {short:.3f} ms in 1 GB, {long:.3f} ms in 100 GB (medians)"
    claim = "constant access time, however long the log is"
    return Finding("B3-438", claim, text, long <= short * FLAT_BAR)


def follows_growth(cluster: LocalCluster) -> Finding:
    """A producer that runs, and a topic that gets another partition."""
    topic = cluster.create_topic("claim-growth", 1)
    with Producer(cluster.bootstrap, metadata_max_age_ms=REFRESH_S * 1000, linger_ms=0) as producer:
        producer.send(topic, VALUE).result(WAIT_S)
        with cluster.admin() as admin:
            admin.create_partitions({topic: 2})
        start = time.monotonic()
        while producer.send(topic, VALUE).result(WAIT_S).partition == 0:
            if time.monotonic() - start > WAIT_S:
                raise RuntimeError(f"no record in the new partition after {WAIT_S:.0f} s")
        taken = time.monotonic() - start
    text = (
        f"{taken:.2f} s after the partition was added, with metadata.max.age.ms={REFRESH_S:.0f} s"
    )
    claim = "a producer follows the cluster's growth, about a refresh interval later, not restarted"
    return Finding("B3-442", claim, text, taken <= REFRESH_S + FOLLOW_SLACK_S)


def asynchronous(cluster: LocalCluster) -> Finding:
    """The SDK's send, each awaited, and all awaited at the end."""
    topic = cluster.create_topic("claim-async", 1)
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send(topic, VALUE).result(WAIT_S)
        start = time.monotonic()
        for _ in range(SYNC_MESSAGES):
            producer.send(topic, VALUE).result(WAIT_S)
        sync = SYNC_MESSAGES / (time.monotonic() - start)
    with Producer(cluster.bootstrap) as producer:
        count = SYNC_MESSAGES * 50
        start = time.monotonic()
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush()
        fast = count / (time.monotonic() - start)
    text = f"{fast:,.0f} records/s asynchronously, {sync:,.0f} when each waits for the last"
    claim = "asynchronous sends are faster than synchronous ones"
    return Finding("B3-443, B3-312", claim, text, fast >= ASYNC_BAR * sync)


def batching(cluster: LocalCluster) -> Finding:
    """librdkafka with its own batches, and with one record a batch."""
    whole = produce_rate(cluster, "claim-batches", 1, {"linger.ms": 5})
    alone = {"batch.num.messages": 1, "linger.ms": 0}
    single = produce_rate(cluster, "claim-singles", 1, alone, UNBATCHED)
    text = f"{whole:,.0f} records/s in batches, {single:,.0f} one by one"
    return Finding(
        "S2-025", "batches are a lever of throughput", text, whole > BATCHING_BAR * single
    )


def partitions(cluster: LocalCluster) -> Finding:
    """The same producer over 1, 6 and 200 partitions of one broker; a figure without a bar."""
    counts = (1, 6, 200)
    rates = [produce_rate(cluster, f"claim-of-{n}", n, {"linger.ms": 5}) for n in counts]
    text = ", ".join(f"{n}: {r:,.0f}" for n, r in zip(counts, rates, strict=True)) + " records/s"
    claim = "partitions: too few leave disks idle, too many cost (one broker, one producer)"
    return Finding("B3-310, S3-007", claim, text, True)


def sparse_index(cluster: LocalCluster) -> Finding:
    """The entries of the index of the topic that `rate` filled."""
    folder = cluster.spec.slot(0).folder
    produce_rate(cluster, "claim-index", 1, {"linger.ms": 5})
    cluster.stop_broker(0)  # trims the preallocated index
    cluster.restart(0)
    entries = sum(f.stat().st_size // 8 for f in (folder / "claim-index-0").glob("*.index"))
    text = f"{entries:,} entries for {MESSAGES:,} messages"
    holds = 0 < entries <= MESSAGES // 10
    return Finding("S2-019", "the offset index is sparse", text, holds)


def burst(cluster: LocalCluster) -> Finding:
    """More is sent than the reader takes; it drains the rest at its own pace."""
    topic = cluster.create_topic("claim-burst", 1)
    start = time.monotonic()
    options = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(topic, **options) as consumer, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send_all, cluster.bootstrap, topic, BURST)
        count = 0
        while count < BURST and time.monotonic() - start < WAIT_S:
            rows = consumer.poll(timeout_ms=200, max_records=SLOW_READS_PER_S // 10)
            count += sum(len(records) for records in rows.values())
            time.sleep(max(0.0, start + count / SLOW_READS_PER_S - time.monotonic()))
        drained, sending = time.monotonic() - start, sent.result() - start
    text = (
        f"{BURST:,} records in {sending:.1f} s to a reader of {SLOW_READS_PER_S:,}/s:"
        f" all read after {drained:.1f} s"
    )
    holds = count == BURST and sending < drained
    return Finding(
        "S3-001", "a peak above the consumer's rate is buffered and drained", text, holds
    )


def live_and_replay(cluster: LocalCluster) -> Finding:
    """A live reader's latency while another one reads the whole history; order is checked."""
    topic = cluster.create_topic("claim-both", 1)
    send_all(cluster.bootstrap, topic, HISTORY)
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        alone, alone_order = tail(cluster.bootstrap, topic)
        replayed = pool.submit(replay, cluster.bootstrap, topic, stop)
        beside, order = tail(cluster.bootstrap, topic)
        stop.set()
        rows = replayed.result()
    text = (
        f"live p99 {alone:.1f} ms alone, {beside:.1f} ms beside a replay of {rows:,} records;"
        f" records out of order: {alone_order + order}"
    )
    claim = "one topic serves batch and live readers, in order"
    holds = beside <= TAIL_BAR_MS and alone_order + order == 0
    return Finding("B3-439", claim, text, holds)


def many_clients(cluster: LocalCluster) -> Finding:
    """Connections at the same time, each with a request, while all stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        count = min(CLIENTS, hard - FILES_SPARED)
        start = time.monotonic()
        answered = asyncio.run(ask_all(cluster.bootstrap, count))
        seconds = time.monotonic() - start
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    text = f"{answered:,} of {count:,} connections answered in {seconds:.1f} s, all open at once"
    return Finding("S3-006", "thousands of clients at once", text, answered == count)


TRIALS: tuple[Callable[[LocalCluster], Finding], ...] = (
    rate,
    latency,
    follows_growth,
    asynchronous,
    batching,
    partitions,
    sparse_index,
    burst,
    live_and_replay,
    many_clients,
    flat,
)


def produce_rate(
    cluster: LocalCluster,
    topic: str,
    partitions: int,
    config: Mapping[str, object],
    count: int = MESSAGES,
) -> float:
    """Records per second of one librdkafka producer, all acknowledged."""
    cluster.create_topic(topic, partitions)
    rows = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 2_000_000}
    producer = confluent_kafka.Producer({**rows, **config})
    producer.produce(topic, VALUE, partition=0)
    producer.flush(WAIT_S)
    start = time.monotonic()
    for number in range(count):
        producer.produce(topic, VALUE, partition=number % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(WAIT_S):
        raise RuntimeError(f"{left} records of {topic} are not acknowledged after {WAIT_S:.0f} s")
    return count / (time.monotonic() - start)


def send_all(servers: str, topic: str, count: int) -> float:
    """Send as fast as it goes; when the last one was acknowledged."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000}
    )
    for number in range(count):
        producer.produce(topic, VALUE)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(WAIT_S):
        raise RuntimeError(f"{left} records of {topic} are not acknowledged after {WAIT_S:.0f} s")
    return time.monotonic()


def tail(servers: str, topic: str) -> tuple[float, int]:
    """The 99th percentile (ms) from send to poll of new records, and how many came out of order."""
    times, breaks, last = [], 0, -1
    ends = time.monotonic() + TAIL_S
    options = {"bootstrap_servers": servers, "auto_offset_reset": "latest"}
    with Consumer(topic, **options) as consumer, Producer(servers, linger_ms=0) as producer:
        consumer.poll(timeout_ms=500)
        number = 0
        while time.monotonic() < ends:
            start = time.perf_counter()
            producer.send(topic, b"%d" % number)
            while not (rows := consumer.poll(timeout_ms=1_000)):
                pass
            times.append((time.perf_counter() - start) * 1000)
            for records in rows.values():
                for record in records:
                    found = int(record.value or b"-1")
                    breaks += found != last + 1
                    last = found
            number += 1
            time.sleep(LATENCY_PAUSE_S)
    return scale_log.percentile(times, 99), breaks


def replay(servers: str, topic: str, stop: Event) -> int:
    """Read the history from its beginning, again and again; the records read."""
    count = 0
    while not stop.is_set():
        options = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
        with Consumer(topic, **options) as consumer:
            left = HISTORY
            while left > 0 and not stop.is_set():
                rows = consumer.poll_arrow(timeout_ms=1_000).num_rows
                count, left = count + rows, left - rows
    return count


async def ask_all(bootstrap: str, count: int) -> int:
    """How many of so many connections got an answer; all are open until the last one has."""
    host, _, port = bootstrap.rpartition(":")

    async def ask() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(API_VERSIONS)
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        await reader.readexactly(size)
        return writer

    async with asyncio.timeout(WAIT_S):
        asked = await asyncio.gather(*(ask() for _ in range(count)), return_exceptions=True)
    writers = [writer for writer in asked if isinstance(writer, asyncio.StreamWriter)]
    for writer in writers:
        writer.close()
    return len(writers)
