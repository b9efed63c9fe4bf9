"""Claims about three brokers: growth while records flow, and what is left when two die."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from claim_trials import VALUE, WAIT_S, Finding

from headwater import Consumer, Producer
from integration.cluster import LocalCluster

RECORDS = 1_000
NEWCOMER = 2
PARTITIONS = 6
MOVED = (0, 3)
PAUSE_S = 0.002
GAP_BAR_S = 5.0
READ_BAR_S = 30.0


def hot_expansion(cluster: LocalCluster) -> Finding:
    """A broker joins, partitions move to it, and a producer goes on all the while."""
    cluster.stop_broker(NEWCOMER)
    topic = "claim-expansion"
    cluster.create_topic(topic, PARTITIONS, replication_factor=1)
    stop = Event()
    gaps: list[float] = []
    sender = Thread(target=send_until, args=(cluster.bootstrap, topic, stop, gaps))
    sender.start()
    try:
        start = time.monotonic()
        cluster.restart(NEWCOMER)
        with cluster.admin() as admin:
            targets = {(topic, number): [NEWCOMER] for number in MOVED}
            admin.alter_partition_reassignments(targets)
        for number in MOVED:
            cluster.wait_until(
                lambda at=number: cluster.describe(topic, at).leader == NEWCOMER, "moves", WAIT_S
            )
        taken = time.monotonic() - start
        time.sleep(1)
    finally:
        stop.set()
        sender.join()
    text = (
        f"a third broker leads {len(MOVED)} of {PARTITIONS} partitions {taken:.1f} s after its"
        f" start; {len(gaps):,} acks meanwhile, none failed, longest wait {max(gaps):.2f} s"
    )
    claim = "hot expansion of a cluster"
    return Finding("S3-003, B3-439", claim, text, max(gaps) <= GAP_BAR_S)


def two_of_three_die(cluster: LocalCluster) -> Finding:
    """Three replicas: after two kills the third still serves all that was acknowledged."""
    topic = cluster.create_topic("claim-replicas", 1, 3, min_insync_replicas="1")
    with Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    leader = cluster.leader_of(topic)
    cluster.kill_broker(leader)
    cluster.kill_broker(next(number for number in range(3) if number != leader))
    start = time.monotonic()
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_S * 1000}
    found = []
    with Consumer(topic, bootstrap_servers=cluster.bootstrap, **options) as consumer:
        for record in consumer:
            found.append(int(record.value or b"-1"))
            if len(found) == RECORDS:
                break
    taken = time.monotonic() - start
    text = f"{len(found):,} of {RECORDS:,} records read {taken:.1f} s after the second kill"
    holds = found == list(range(RECORDS)) and taken <= READ_BAR_S
    return Finding("S3-005, S3-004", "n replicas tolerate n-1 failures", text, holds)


TRIALS: tuple[Callable[[LocalCluster], Finding], ...] = (hot_expansion, two_of_three_die)


def send_until(servers: str, topic: str, stop: Event, gaps: list[float]) -> None:
    """Send to all partitions, each ack awaited; how long each took (seconds)."""
    with Producer(servers, linger_ms=0) as producer:
        number = 0
        while not stop.is_set():
            start = time.monotonic()
            producer.send(topic, VALUE, partition=number % PARTITIONS).result(WAIT_S)
            gaps.append(time.monotonic() - start)
            number += 1
            time.sleep(PAUSE_S)
