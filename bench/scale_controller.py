"""Many topics, many partitions, and a controller that dies: three brokers on this machine."""

from __future__ import annotations

import statistics
import time

from peers import cpu_seconds, rss_megabytes
from scale_cluster import Reading, cluster, metric, wait_led
from scale_start import restart_s

from headwater.client.admin.client import Admin
from headwater.client.blocking.record_client import RecordClient
from headwater.client.values import NewTopic
from headwater.records.builder import build_batch
from integration.cluster import LocalCluster

BROKERS = 3
COPIES = 3
CALL_MS = 240_000

TOPICS = 1_000
TOPICS_BAR_S = 10.0

MANY_PARTITIONS = 10_000
PARTITIONS_PER_TOPIC = 500
SAMPLE_EVERY = 97
SETTLE_S = 10.0
IDLE_S = 10.0

FAILOVER_PARTITIONS = 2_000
FAILOVER_BAR_S = 2.0


def topics() -> list[Reading]:
    """1,000 topics of one partition and three copies: one by one, and all in one request."""
    rows = []
    for what, size in (("one per request", 1), ("in one request", TOPICS)):
        with cluster("topics", BROKERS) as trio, _admin(trio) as admin:
            admin.describe_topics()
            names = [f"topic-{n:04d}" for n in range(TOPICS)]
            before, started = _cpu_s(trio), time.monotonic()
            for at in range(0, TOPICS, size):
                news = [NewTopic(name, 1, COPIES) for name in names[at : at + size]]
                admin.create_topics(news, timeout_ms=CALL_MS)
            taken, cpu = time.monotonic() - started, _cpu_s(trio) - before
            led = wait_led(admin, TOPICS) - started
        beside = f"all led after {led:.1f} s at the most; CPU of the brokers {cpu:.1f} s"
        rows.append(Reading(f"{TOPICS:,} topics, {what}", taken, "s", TOPICS_BAR_S, beside))
    return rows


def partitions() -> list[Reading]:
    """10,000 partitions, three copies each: create, use a sample, idle, restart two brokers."""
    with cluster("partitions", BROKERS) as trio, _admin(trio) as admin:
        started = time.monotonic()
        names = make_partitions(admin, MANY_PARTITIONS)
        created = time.monotonic() - started
        led = wait_led(admin, MANY_PARTITIONS) - started
        rows = [Reading(f"{MANY_PARTITIONS:,} partitions created", created, "s")]
        rows.append(Reading("... and all of them led", led, "s"))
        rows.append(_sample(trio, names))
        time.sleep(SETTLE_S)
        rows += _idle(trio)
        for what, broker, kill in (("clean restart", 1, False), ("kill -9 and restart", 2, True)):
            taken = restart_s(trio, broker, kill=kill)
            rows.append(Reading(f"{what} of one broker until ready", taken, "s"))
            started = time.monotonic()
            trio.wait_until(lambda: _under_replicated(trio) == 0, "every replica in sync", 120)
            taken = time.monotonic() - started
            rows.append(Reading("... and every replica in sync again", taken, "s"))
        rows.append(_sample(trio, names))
    return rows


def failover() -> list[Reading]:
    """`kill -9` of the controller, which also leads a third of 2,000 partitions."""
    with cluster("failover", BROKERS) as trio, _admin(trio) as admin:
        make_partitions(admin, FAILOVER_PARTITIONS)
        wait_led(admin, FAILOVER_PARTITIONS)
        trio.wait_until(lambda: _under_replicated(trio) == 0, "every replica in sync", 120)
        victim = admin.describe_cluster().controller_id
        killed = time.monotonic()
        trio.kill_broker(victim)
        detected = time.monotonic()
        led = wait_led(admin, FAILOVER_PARTITIONS, but=victim)
    what = f"controller killed, {FAILOVER_PARTITIONS:,} partitions: session closed to all led"
    beside = f"from the kill: {led - killed:.2f} s"
    return [Reading(what, led - detected, "s", FAILOVER_BAR_S, beside)]


def make_partitions(admin: Admin, count: int) -> list[str]:
    """Topics of 500 partitions each, a request per topic."""
    names = [f"many-{n}" for n in range(count // PARTITIONS_PER_TOPIC)]
    for name in names:
        admin.create_topics([NewTopic(name, PARTITIONS_PER_TOPIC, COPIES)], timeout_ms=CALL_MS)
    return names


def _cpu_s(trio: LocalCluster) -> float:
    return cpu_seconds([trio.pid(broker) for broker in range(BROKERS)])


def _admin(trio: LocalCluster) -> Admin:
    return Admin(trio.bootstrap, request_timeout_ms=CALL_MS, default_api_timeout_ms=CALL_MS)


def _sample(trio: LocalCluster, names: list[str]) -> Reading:
    """One record to every 97th partition with acks=all, and read back."""
    places = [(name, p) for name in names for p in range(PARTITIONS_PER_TOPIC)][::SAMPLE_EVERY]
    times = []
    with RecordClient(trio.bootstrap, retry_timeout_s=60.0) as client:
        for topic, partition in places:
            value = f"{topic}-{partition}".encode()
            started = time.monotonic()
            at = client.produce_batch(topic, partition, build_batch([(0, None, value, ())]))
            found = client.fetch_batches(topic, partition, at)
            times.append((time.monotonic() - started) * 1e3)
            if value not in bytes(found.records):
                raise RuntimeError(f"{topic}-{partition}: the record at {at} is not what was sent")
    beside = f"{len(places)} partitions, worst {max(times):.0f} ms"
    return Reading("a record to a partition and back, p50", statistics.median(times), "ms", None,
                   beside)  # fmt: skip


def _idle(trio: LocalCluster) -> list[Reading]:
    pids = {broker: trio.pid(broker) for broker in range(BROKERS)}
    before = {broker: cpu_seconds([pid]) for broker, pid in pids.items()}
    time.sleep(IDLE_S)
    return [
        Reading(
            f"idle CPU of broker {broker}",
            (cpu_seconds([pid]) - before[broker]) / IDLE_S * 100,
            "% of a core",
            None,
            f"RSS {rss_megabytes(pid):.0f} MB",
        )
        for broker, pid in pids.items()
    ]


def _under_replicated(trio: LocalCluster) -> int:
    return sum(metric(trio, broker, UNDER_REPLICATED) for broker in range(BROKERS))


UNDER_REPLICATED = "headwater_under_replicated_partitions"
