"""What Spark decides about the source: changes while a query runs, checkpoints, filters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

import headwater_spark
from headwater import Admin, Consumer
from headwater.client.values import NewTopic, TopicPartition
from headwater_spark.tiering.job import tier
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from integration.spark_topics import WAIT_S, Topic, expected, values

pytestmark = pytest.mark.integration

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=True) as session:
        yield session


def new_topic(spark: Any, cluster: LocalCluster, name: str, partitions: int = 3) -> Topic:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 3)])
    return Topic(spark, cluster.bootstrap, name)


@pytest.fixture
def topic(spark: Any, shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Topic:
    name = request.node.name.replace("test_", "rules-").replace("_", "-")[:60]
    return new_topic(spark, shared_cluster, name)


class Query:
    """A query of a topic into Parquet files, run again and again on one checkpoint."""

    def __init__(self, topic: Topic, folder: Path, **options: str) -> None:
        self.topic = topic
        self.folder = folder
        self.options = {"startingOffsets": "earliest", **options}

    def run(self, **options: str) -> list[int]:
        """Run with Trigger.AvailableNow; the rows of each batch."""
        query = (
            self.topic.stream(**{**self.options, **options})
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        return [p["numInputRows"] for p in query.recentProgress]

    def read(self) -> list[str]:
        return values(self.topic.spark.read.parquet(str(self.folder / "out")))

    def logged(self, batch: int) -> Path:
        return self.folder / "checkpoint" / "offsets" / str(batch)

    def replace_offset(self, batch: int, text: str) -> None:
        """Write another offset into the checkpoint's log, and drop the log's checksum file."""
        lines = self.logged(batch).read_text().splitlines()
        self.logged(batch).write_text("\n".join([*lines[:2], text]))
        self.logged(batch).with_name(f".{batch}.crc").unlink(missing_ok=True)

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died in the middle of the batch, before the sink had it."""
        shutil.rmtree(self.folder / "out")
        commits = self.folder / "checkpoint" / "commits"
        (commits / str(batch)).unlink()
        (commits / f".{batch}.crc").unlink(missing_ok=True)


def test_new_partitions_and_topics_are_read_while_the_query_runs(
    spark: Any, shared_cluster: LocalCluster
) -> None:
    first = new_topic(spark, shared_cluster, "grows-a", 1)
    first.produce(0, 20)
    reader = spark.readStream.format("headwater").option("subscribePattern", "grows-.*")
    query = (
        reader.option("bootstrap.servers", first.servers)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("memory")
        .queryName("grows")
        .start()
    )
    try:
        query.processAllAvailable()
        with Admin(first.servers) as admin:
            admin.create_partitions({first.name: 4})
        second = new_topic(spark, shared_cluster, "grows-b", 2)
        second.produce(20, 40)
        first.produce(40, 100)
        LocalCluster.wait_until(
            lambda: values(spark.table("grows")) == expected(0, 100), "all rows", WAIT_S
        )
        rows = spark.table("grows")
        found = {(r.topic, r.partition) for r in rows.select("topic", "partition").collect()}
        assert {("grows-a", 0), ("grows-b", 0)} < found and len(found) >= 4
        assert query.exception() is None
    finally:
        query.stop()


def test_process_all_available_has_what_was_written_just_before(topic: Topic) -> None:
    query = (
        topic.stream(startingOffsets="earliest")
        .writeStream.format("memory")
        .queryName("just_before")
        .start()
    )
    try:
        query.processAllAvailable()
        for end in range(10, 80, 10):
            topic.produce(end - 10, end)
            query.processAllAvailable()
            assert topic.spark.table("just_before").count() == end
    finally:
        query.stop()


@pytest.mark.long
def test_a_batch_waits_for_the_least_offsets_of_a_trigger(topic: Topic) -> None:
    topic.produce(0, 5)
    query = (
        topic.stream(startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h")
        .writeStream.format("memory")
        .queryName("least")
        .start()
    )
    try:
        query.processAllAvailable()
        topic.produce(5, 45)
        assert query.awaitTermination(2) is False
        assert topic.spark.table("least").count() == 5
        assert sum(headwater_spark.lag(query.lastProgress).values()) == 0
        topic.produce(45, 60)
        LocalCluster.wait_until(lambda: topic.spark.table("least").count() == 60, "rows", WAIT_S)
    finally:
        query.stop()


def test_available_now_reads_all_there_is_and_its_last_batch_reaches_the_group(
    topic: Topic, tmp_path: Path
) -> None:
    topic.produce(0, 90)
    listener = headwater_spark.commit_progress(topic.spark, topic.servers, "rules-lag")
    query = Query(topic, tmp_path, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="25")
    assert max(query.run()) <= 25
    listener.stop()  # at once: the last batch's event may not have come yet
    assert query.read() == expected(0, 90)
    with Consumer(bootstrap_servers=topic.servers, group_id="rules-lag") as consumer:
        partitions = [TopicPartition(topic.name, p) for p in range(3)]
        assert sum(at.offset for at in consumer.committed(*partitions).values()) == 90


def test_filters_are_pushed_down_where_spark_lets_them(topic: Topic) -> None:
    topic.produce(0, 300)
    times = topic.read().agg(F.max("timestamp")).first()
    assert times is not None
    late = topic.read(pushdown="true").where("partition = 1")
    with pytest.raises(PySparkException, match=PUSHDOWN):  # not silently without it
        late.count()
    plain = {
        "one partition": topic.read().where("partition = 1 AND offset >= 10"),
        "offsets": topic.read().where("offset BETWEEN 5 AND 9"),
        "time": topic.read().where(F.col("timestamp") > times[0]),
    }
    counts = {name: rows.count() for name, rows in plain.items()}
    topic.spark.conf.set(PUSHDOWN, "true")
    try:
        one = topic.read(pushdown="true").where("partition = 1 AND offset >= 10")
        assert one.rdd.getNumPartitions() == 1
        offsets = topic.read(pushdown="true").where("offset BETWEEN 5 AND 9")
        time = topic.read(pushdown="true").where(F.col("timestamp") > times[0])
        assert time.rdd.getNumPartitions() == 1  # Spark's placeholder for no split at all
        assert [one.count(), offsets.count(), time.count()] == list(counts.values())
        none = topic.read(pushdown="true").where("offset > 1000000")
        assert none.count() == 0
        other = topic.read(pushdown="true").where("value IS NOT NULL AND timestampType = 0")
        assert values(other) == expected(0, 300)
    finally:
        topic.spark.conf.unset(PUSHDOWN)


def recreate(topic: Topic) -> None:
    with Admin(topic.servers) as admin:
        admin.delete_topics([topic.name])
        admin.create_topics([NewTopic(topic.name, 3, 3)])


def test_a_recreated_topic_is_an_error_or_read_from_its_start(topic: Topic, tmp_path: Path) -> None:
    topic.produce(0, 30)
    query = Query(topic, tmp_path)
    query.run()
    recreate(topic)
    topic.produce(30, 90)
    with pytest.raises(PySparkException, match=r"was deleted and created again \(id "):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.read() == expected(0, 90)


@pytest.mark.long
def test_an_unfinished_batch_of_a_replaced_topic_is_not_read(topic: Topic, tmp_path: Path) -> None:
    topic.produce(0, 30)
    query = Query(topic, tmp_path)
    query.run()
    query.forget_commit(0)
    recreate(topic)
    topic.produce(30, 90)
    with pytest.raises(PySparkException, match=r"of topic id .*, but the topic now has id"):
        query.run()


def test_a_foreign_checkpoint_is_refused_before_any_row_moves(topic: Topic, tmp_path: Path) -> None:
    topic.produce(0, 30)
    query = Query(topic, tmp_path)
    query.run()
    query.replace_offset(0, json.dumps({topic.name: {"0": 1, "1": 1, "2": 1}}))
    with pytest.raises(PySparkException, match="an offset of Spark's Kafka source"):
        query.run()
    query.replace_offset(0, json.dumps({"from": {}, "to": {}, "topics": {}, "v": 7}))
    with pytest.raises(PySparkException, match="has format 7, this Headwater reads format 1"):
        query.run()
    assert query.read() == expected(0, 30)


def test_offsets_beyond_the_end_are_refused_before_any_row_moves(
    topic: Topic, tmp_path: Path
) -> None:
    topic.produce(0, 30)
    beyond = json.dumps({topic.name: {"0": 99, "1": 0, "2": 0}})
    starts, ends = r"-0: starting offset 99 is outside the log", r"-0: ending offset 99 is beyond"
    with pytest.raises(PySparkException, match=starts):
        topic.read(startingOffsets=beyond).collect()
    with pytest.raises(PySparkException, match=ends):
        topic.read(endingOffsets=beyond).collect()
    with pytest.raises(PySparkException, match=starts):
        Query(topic, tmp_path).run(startingOffsets=beyond)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.long
def test_a_query_goes_on_where_a_version_of_the_table_ends(topic: Topic, tmp_path: Path) -> None:
    topic.produce(0, 50)
    tier(topic.spark, topic.name, bootstrap_servers=topic.servers)
    topic.produce(50, 80)
    tier(topic.spark, topic.name, bootstrap_servers=topic.servers)
    topic.produce(80, 100)
    after = {v: values(topic.read(fromDeltaVersion=str(v))) for v in range(3)}
    assert after[0] == expected(0, 100)  # version 0 made the table, and is empty
    assert after[1] == expected(50, 100)
    assert after[2] == expected(80, 100)
    both = Query(topic, tmp_path)
    del both.options["startingOffsets"]
    both.run(fromDeltaVersion="1")
    assert both.read() == expected(50, 100)
    assert values(topic.read(fromTimestamp="2020-01-01")) == expected(0, 100)
    assert values(topic.read(fromTimestamp="2200-01-01")) == expected(80, 100)
    with pytest.raises(PySparkException, match="has no version 99: the newest is"):
        topic.read(fromDeltaVersion="99").count()


@pytest.mark.long
def test_a_deleted_topic_leaves_the_others_of_a_query_running(
    spark: Any, shared_cluster: LocalCluster
) -> None:
    left = new_topic(spark, shared_cluster, "leaves-a", 1)
    gone = new_topic(spark, shared_cluster, "leaves-b", 1)
    for one in (left, gone):
        one.produce(0, 10)
    reader = spark.readStream.format("headwater").option("subscribe", "leaves-a,leaves-b")
    query = (
        reader.option("bootstrap.servers", left.servers)
        .options(startingOffsets="earliest", failOnDataLoss="false")
        .load()
        .writeStream.format("memory")
        .queryName("leaves")
        .start()
    )
    try:
        query.processAllAvailable()
        with Admin(left.servers) as admin:
            admin.delete_topics([gone.name])
        left.produce(10, 30)
        LocalCluster.wait_until(lambda: spark.table("leaves").count() == 40, "20 more", WAIT_S)
        new_topic(spark, shared_cluster, gone.name, 1).produce(30, 40)
        LocalCluster.wait_until(lambda: spark.table("leaves").count() == 50, "10 more", WAIT_S)
        assert query.exception() is None
    finally:
        query.stop()
