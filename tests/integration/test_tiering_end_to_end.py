"""Tiering with real processes: topic, Spark, Delta, local segments deleted, librdkafka."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

import headwater_spark
from headwater.system import SystemClock
from headwater_spark.tiering.command import drain
from headwater_spark.tiering.job import TopicTier
from headwater_tier.delta import LogTable
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session
from integration.tiered_topics import (
    at,
    cli,
    configure,
    consume,
    create,
    ends_of,
    first_error,
    local_bytes,
    log_texts,
    make_cold,
    produce,
    producing,
    replica,
    replicas,
    start_tier_job,
    table_of,
    tier,
    tier_here,
    tiered_and_cold,
    verify,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers that check retention often."""
    folder = tmp_path_factory.mktemp("tiering")
    properties = {
        "log.retention.check.interval.ms": "300",
        "log.flush.start.offset.checkpoint.interval.ms": "1000",
        "replica.lag.time.max.ms": "5000",
    }
    with LocalCluster(folder, next_base_port(folder), 3, properties) as running:
        yield running


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The module's cluster; its brokers are restarted after each test."""
    yield module_cluster
    module_cluster.make_whole()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for tests that need no Spark process of their own."""
    with spark_session("local[2]", delta=True) as session:
        yield session


@pytest.mark.long
def test_the_whole_path_of_every_kind_of_record(cluster: LocalCluster) -> None:
    topic, partitions = create(cluster, "whole", 3, file_delete_delay_ms="100"), 3
    produce(cluster, topic, 6_000)
    ends = ends_of(cluster, topic, partitions)
    before = consume(cluster, topic, ends)
    assert len(before) == 6_000

    assert "6000 rows" in tier(cluster, topic).stdout
    again = tier(cluster, topic)
    assert again.stdout == f"{topic}: up to date\n"
    assert again.stderr == "", "Spark's own lines are in its log"
    found = verify(cluster, topic)
    assert sum(p["table_digest"]["rows"] for p in found["partitions"]) == 6_000
    assert found["hot_offsets"] == 0

    took = make_cold(cluster, topic, ends)
    print(f"local bytes gone after {took:.1f} s")
    cluster.wait_until(lambda: local_bytes(cluster, topic) == 0, "segment files gone")
    assert consume(cluster, topic, ends) == before
    inside = min(ends.values()) // 3  # partitions are not of one size
    assert consume(cluster, topic, ends, dict.fromkeys(ends, inside)) == [
        row for row in before if row.offset >= inside
    ]
    for partition in ends:
        lows = {r["log_start_offset"] for r in replicas(cluster, topic, partition)}
        assert lows == {0}
    verify(cluster, topic)


@pytest.mark.long
def test_deleted_files_make_old_fetches_fail(cluster: LocalCluster, spark: Any) -> None:
    topic, other = "lost", cluster.create_topic("unharmed", 1, 3, retention_ms="-1")
    rows = tiered_and_cold(cluster, spark, topic)
    table = table_of(cluster, topic)
    files = list(table.glob("*.parquet"))
    assert files
    for path in files:
        path.rename(path.with_suffix(".away"))
    time.sleep(1.1)  # as long as a rebuilt segment is trusted
    error = first_error(cluster, topic, 10.0)
    assert error.code() == KafkaError.UNKNOWN
    logged = f"cannot read the table of {topic}-0 at 0"
    # A broker's log is written by a thread of its own.
    cluster.wait_until(lambda: logged in log_texts(cluster), "an error in the log")
    done = cli("consume", topic, "--from-beginning", "--exit-at-end", *at(cluster), ok=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{topic}-0 at offset 0" in done.stderr and "Traceback" not in done.stderr
    produce(cluster, other, 50)
    assert len(consume(cluster, other, {0: 50})) == 50
    for path in files:
        path.with_suffix(".away").rename(path)
    assert consume(cluster, topic, {0: 600}) == rows

    # Without the table no broker may delete local segments.
    away = table.with_name("away")
    table.rename(away)
    produce(cluster, topic, 700, first=600)
    logged = f"cannot read the table of {topic}, local segments stay"
    cluster.wait_until(lambda: log_texts(cluster).count(logged) == 3, "noticed by all", 25)
    assert first_error(cluster, topic, 10.0).code() == KafkaError.UNKNOWN
    assert all(r["size_bytes"] > 0 for r in replicas(cluster, topic))
    away.rename(table)
    tier_here(cluster, spark, topic)
    make_cold(cluster, topic, {0: 700})
    assert len(consume(cluster, topic, {0: 700})) == 700


def test_retention_waits_for_tiering_and_then_shortens_the_table(
    cluster: LocalCluster, spark: Any
) -> None:
    topic = create(
        cluster, "kept", retention_ms="1000", local_retention_ms="1", file_delete_delay_ms="100"
    )
    produce(cluster, topic, 300)
    time.sleep(2)  # six checks of retention, all of records from 2020
    assert len(consume(cluster, topic, {0: 300})) == 300
    configure(cluster, topic, retention_ms="-1")
    _, job = tier_here(cluster, spark, topic)
    produce(cluster, topic, 600, first=300)
    tier_here(cluster, spark, topic)
    make_cold(cluster, topic, {0: 600})

    with cluster.admin() as admin:
        admin.delete_records({(topic, 0): 100})
    assert {r["log_start_offset"] for r in replicas(cluster, topic)} == {100}
    assert first_error(cluster, topic, 5.0).name() == "_AUTO_OFFSET_RESET"
    assert [r.offset for r in consume(cluster, topic, {0: 600}, {0: 100})] == [*range(100, 600)]
    rounds, _ = tier_here(cluster, spark, topic)
    assert [r.idle for r in rounds] == [True]
    assert LogTable(job.location).snapshot.starts == {0: 100}
    verify(cluster, topic)

    for broker in range(3):  # log start < local start is found again
        cluster.kill_broker(broker)
        cluster.restart(broker)
    cluster.wait_isr(topic, 3)
    for row in replicas(cluster, topic):
        assert (row["log_start_offset"], row["local_log_start_offset"]) == (100, 600), row
    assert len(consume(cluster, topic, {0: 600}, {0: 100})) == 500

    configure(cluster, topic, retention_ms="3600000")
    tier_here(cluster, spark, topic)
    assert LogTable(job.location).snapshot.starts == {0: 600}
    assert list(LogTable(job.location).snapshot.files) == []
    cluster.wait_until(
        lambda: {r["log_start_offset"] for r in replicas(cluster, topic)} == {600},
        "log start follows the table",
    )


@pytest.mark.long
def test_a_leader_behind_its_table_begins_again_at_its_end(
    cluster: LocalCluster, spark: Any
) -> None:
    topic = create(cluster, "behind", unclean_leader_election_enable="true")
    produce(cluster, topic, 100)
    leader = cluster.leader_of(topic)
    late, third = [b for b in range(3) if b != leader]
    cluster.kill_broker(late)
    produce(cluster, topic, 400, first=100)
    _, job = tier_here(cluster, spark, topic)
    cluster.kill_broker(third)
    cluster.kill_broker(leader)
    cluster.restart(late)
    cluster.wait_until(lambda: cluster.describe(topic).leader == late, "unclean election")
    produce(cluster, topic, 450, first=400)
    assert replica(cluster, late, topic)["local_log_start_offset"] == 400
    for broker in (third, leader):
        cluster.restart(broker)
    cluster.wait_isr(topic, 3)
    rows = consume(cluster, topic, {0: 450})
    assert [row.offset for row in rows] == [*range(450)]
    tier_here(cluster, spark, topic)
    assert LogTable(job.location).snapshot.ends == {0: 450}
    verify(cluster, topic)


@pytest.mark.long
def test_a_wiped_follower_comes_back_and_leads(cluster: LocalCluster, spark: Any) -> None:
    topic = "wiped"
    rows = tiered_and_cold(cluster, spark, topic)
    configure(cluster, topic, local_retention_ms="-1")
    produce(cluster, topic, 700, first=600)
    leader = cluster.leader_of(topic)
    wiped, third = [b for b in range(3) if b != leader]
    cluster.kill_broker(wiped)
    cluster.wipe_disk(wiped)
    cluster.restart(wiped)
    cluster.wait_isr(topic, 3)
    mine = replica(cluster, wiped, topic)
    assert (mine["log_start_offset"], mine["local_log_start_offset"]) == (0, 600)
    cluster.stop_broker(third)
    cluster.stop_broker(leader)
    cluster.wait_until(lambda: cluster.describe(topic).leader == wiped, "the wiped one leads")
    found = consume(cluster, topic, {0: 700})
    assert found[:600] == rows and [row.offset for row in found] == [*range(700)]
    produce(cluster, topic, 720, first=700)
    cluster.restart(third)
    cluster.restart(leader)
    cluster.wait_isr(topic, 3)


@pytest.mark.long
def test_tier_jobs_race_and_are_killed_at_random(cluster: LocalCluster) -> None:
    topic, dice = create(cluster, "killed", 2), random.Random(11)
    with producing(cluster, topic, 2) as acked:
        for _ in range(3):
            jobs = [start_tier_job(cluster, topic, "--continuous", "--interval", "0")]
            jobs.append(start_tier_job(cluster, topic, "--continuous", "--interval", "0"))
            for job in jobs:
                assert job.stdout is not None and job.stdout.readline()  # it has committed
            for job in jobs:
                time.sleep(dice.uniform(0.0, 0.8))
                os.killpg(job.pid, signal.SIGKILL)
                assert job.wait(10) == -signal.SIGKILL
    last = [start_tier_job(cluster, topic), start_tier_job(cluster, topic)]
    assert [job.wait(120) for job in last] == [0, 0]
    found = verify(cluster, topic)
    rows = sum(p["table_digest"]["rows"] for p in found["partitions"])
    assert (rows, found["hot_offsets"]) == (acked[0], 0)
    assert "up to date" in tier(cluster, topic).stdout


@pytest.mark.long
def test_the_union_read_is_exact_while_tiering_and_producing_go_on(
    cluster: LocalCluster, spark: Any
) -> None:
    topic = create(cluster, "union", 2)
    job, stop = TopicTier(spark, topic, cluster.bootstrap, SystemClock()), threading.Event()

    def tiering() -> None:
        while not stop.wait(0.05):
            job.round()

    thread = threading.Thread(target=tiering)
    with producing(cluster, topic, 2) as acked:
        thread.start()
        for number in range(6):
            before = acked[0]
            if number % 2:
                frame = headwater_spark.table(spark, topic, bootstrap_servers=cluster.bootstrap)
            else:
                reader = spark.read.format("headwater").option("subscribe", topic)
                frame = reader.option("kafka.bootstrap.servers", cluster.bootstrap).load()
            rows = frame.select("partition", "offset", "value").collect()
            values = sorted(int(row.value) for row in rows)
            assert len(rows) >= before
            assert len(set(values)) == len(values)
            for partition in range(2):
                offsets = sorted(row.offset for row in rows if row.partition == partition)
                assert offsets == [*range(len(offsets))], (number, partition)
        stop.set()
        thread.join()
    job.close()
    assert LogTable(job.location).snapshot.rows > 0


@pytest.mark.long
def test_a_table_that_cannot_be_written_is_one_clear_line(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = create(cluster, "unwritable")
    produce(cluster, topic, 20)
    obstacle = tmp_path / "a-file"
    obstacle.write_text("not a folder")
    done = cli(
        "tier", "run", topic, *at(cluster), "--master", "local[1]",
        "--tables-uri", str(obstacle / "tables"), ok=False,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if "a-file" in line]
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert len(consume(cluster, topic, {0: 20})) == 20


def test_a_topic_that_does_not_exist_is_named_and_not_created(cluster: LocalCluster) -> None:
    there = cluster.create_topic("there", 1, 3)
    done = cli("tier", "run", there, "not-there", *at(cluster), ok=False)
    assert (done.returncode, done.stdout) == (1, "")
    expected = "UNKNOWN_TOPIC_OR_PARTITION: topic not-there does not exist: did you mean there?"
    assert done.stderr == f"headwater: {expected}\n"
    with cluster.admin() as admin:
        assert "not-there" not in admin.list_topics()
        assert admin.describe_configs("topic", there)["remote.storage.enable"].value == "false"


@pytest.mark.long
def test_small_files_are_compacted_and_a_foreign_commit_is_repaired_by_hand(
    cluster: LocalCluster, spark: Any
) -> None:
    topic = create(cluster, "maintained")
    job = TopicTier(spark, topic, cluster.bootstrap, SystemClock())
    for number in range(6):
        produce(cluster, topic, 20 * (number + 1), first=20 * number)
        drain(job, lambda _: None)
    job.close()
    assert len(LogTable(job.location).snapshot.files) == 6
    done = cli("tier", "compact", topic, "--files-min", "4", *at(cluster), "--json")
    assert json.loads(done.stdout) == {"topic": topic, "files_replaced": 6}
    assert len(LogTable(job.location).snapshot.files) == 1
    verify(cluster, topic)
    done = cli("tier", "repair", topic, *at(cluster), "--json")
    assert json.loads(done.stdout) == {"topic": topic, "ends": {"0": 120}}
    cli("tier", "vacuum", topic, *at(cluster))
    verify(cluster, topic)
