"""Replication between real brokers, under faults: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from integration.cluster import LocalCluster
from integration.conftest import Start, next_base_port
from integration.workload import Report, Workload, read_partition

pytestmark = pytest.mark.integration

RESUME_S = 2.0
"""Writes must go on within this after `kill -9` of a leader (the aim is 1 s)."""


def assert_clean(report: Report) -> None:
    print(report)
    assert report.is_clean, report
    assert report.acked > 0


def offline_reason(cluster: LocalCluster, broker_id: int, topic: str) -> str:
    """Why a topic's first partition has no leader, as a broker's status tells it."""
    rows = cluster.status(broker_id)["topics"]
    return str(next(r for r in rows if r["topic"] == topic)["partitions"][0]["offline_reason"])


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers for the tests that can bring back what they kill."""
    folder = tmp_path_factory.mktemp("faults")
    with LocalCluster(folder, next_base_port(folder)) as made:
        yield made


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The module's, whole again after each test."""
    yield module_cluster
    module_cluster.make_whole()


@pytest.mark.long
def test_a_cluster_that_tests_share_is_made_whole(cluster: LocalCluster) -> None:
    cluster.create_topic("shared", 3, 3)
    home = cluster.leader_of("shared")
    cluster.kill_broker(home)
    cluster.wait_until(lambda: cluster.leader_of("shared") != home, "another leader")
    cluster.pause(cluster.leader_of("shared"))
    cluster.kill_zookeeper()
    cluster.make_whole()
    for partition in range(3):
        found = cluster.describe("shared", partition)
        assert (sorted(found.isr), found.leader) == ([0, 1, 2], found.replicas[0])
    assert cluster.create_topic("after", replication_factor=3)
    cluster.wait_isr("after", 3)


def test_three_replicas_hold_the_same_and_consumers_read_it(cluster: LocalCluster) -> None:
    cluster.create_topic("plain", 3, 3)
    with Workload(cluster.bootstrap, "plain", partitions=3) as load:
        load.wait_acks(200)
    assert_clean(load.check())
    assert load.failures() == []


def test_kill_of_a_leader_loses_and_doubles_nothing(cluster: LocalCluster) -> None:
    cluster.create_topic("killed", 3, 3, min_insync_replicas="2")
    gaps = []
    with Workload(cluster.bootstrap, "killed", partitions=3) as load:
        load.wait_acks(50)
        for _ in range(3):
            victim = cluster.leader_of("killed", 0)
            since = time.monotonic()
            cluster.kill_broker(victim)
            load.wait_acks(100)
            gaps.append(load.longest_gap_s(0, since, time.monotonic()))
            cluster.restart(victim)
            for partition in range(3):
                cluster.wait_isr("killed", 3, partition)
            load.wait_acks(50)
    print("writes resumed after", [round(gap, 3) for gap in gaps])
    assert_clean(load.check())
    assert load.failures() == []
    assert max(gaps) < RESUME_S, gaps


def test_an_emptied_disk_never_wins(cluster: LocalCluster) -> None:
    cluster.create_topic("wiped", 1, 3, min_insync_replicas="1")
    with Workload(cluster.bootstrap, "wiped") as load:
        load.wait_acks(100)
        last = cluster.leader_of("wiped")
        others = [b for b in range(3) if b != last]
        for broker_id in others:
            cluster.kill_broker(broker_id)
        cluster.wait_isr("wiped", 1)
        load.wait_acks(50)
    acked = len(load.acks)
    cluster.kill_broker(last)
    cluster.wipe_disk(last)
    try:
        for broker_id in (*others, last):
            cluster.restart(broker_id)
        time.sleep(3)  # time enough for a wrong election
        described = cluster.describe("wiped")
        assert described.leader == -1, described
        reason = offline_reason(cluster, others[0], "wiped")
        print(reason)
        assert f"ISR [{last}]" in reason and "old disk" in reason
    finally:
        cluster.kill_broker(last)
        cluster.restore_disk(last)
        cluster.restart(last)
    assert cluster.leader_of("wiped") == last
    report = load.check()
    assert_clean(report)
    assert report.acked == acked
    cluster.wait_isr("wiped", 3)


@pytest.mark.long
def test_a_hanging_follower_leaves_the_isr_and_comes_back(start_cluster: Start) -> None:
    cluster = start_cluster(
        brokers=3, replica_lag_time_max_ms="1500",
        zookeeper_session_timeout_ms="6000",  # for when the follower is the controller, too
    )  # fmt: skip
    cluster.create_topic("hangs", 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, "hangs") as load:
        load.wait_acks(50)
        leader = cluster.leader_of("hangs")
        follower = next(b for b in range(3) if b != leader)
        cluster.pause(follower)
        load.wait_acks(50)
        cluster.resume(follower)
        cluster.wait_isr("hangs", 3)
        load.wait_acks(50)
    assert_clean(load.check())


def test_below_min_insync_replicas_writes_are_refused_and_reads_go_on(
    cluster: LocalCluster,
) -> None:
    cluster.create_topic("short", 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, "short") as load:
        load.wait_acks(50)
    leader = cluster.leader_of("short")
    for broker_id in range(3):
        if broker_id != leader:
            cluster.kill_broker(broker_id)
    cluster.wait_isr("short", 1)
    before = len(read_partition(cluster.bootstrap, "short", 0))
    assert before == len(load.acks)
    with Workload(cluster.bootstrap, "short", producers=1) as blocked:
        time.sleep(1.5)
        assert blocked.acks == []
        for broker_id in range(3):
            if broker_id != leader:
                cluster.restart(broker_id)
        blocked.wait_acks(20)
    assert len(read_partition(cluster.bootstrap, "short", 0)) == before + len(blocked.acks)
    cluster.wait_isr("short", 3)


def test_peers_close_the_session_of_a_broker_whose_supervisor_does_not(
    start_cluster: Start,
) -> None:
    """As when an executor dies with its broker: nobody waits for the session's timeout."""
    cluster = start_cluster(brokers=3, close=lambda *_: False, zookeeper_session_timeout_ms="18000")
    cluster.create_topic("orphan", 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, "orphan") as load:
        load.wait_acks(50)
        victim, since = cluster.leader_of("orphan"), time.monotonic()
        cluster.kill_broker(victim)
        load.wait_acks(50)
        gap = load.longest_gap_s(0, since, time.monotonic())
    print("writes resumed after", round(gap, 3))
    assert_clean(load.check())
    assert gap < RESUME_S
