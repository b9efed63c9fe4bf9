"""Source, sink, tiering and union read in Spark on a real cluster."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import headwater_spark
from headwater import Admin, Consumer, Producer
from headwater.client.values import NewTopic, TopicPartition
from headwater.system import SystemClock
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from integration.spark_topics import WAIT_S, Topic, expected, values

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=True) as session:
        yield session


@pytest.fixture
def topic(spark: Any, shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Topic:
    name = request.node.name.replace("test_", "spark-").replace("_", "-")
    with Admin(shared_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 3, 3)])
    return Topic(spark, shared_cluster.bootstrap, name)


def offsets_doubled(rows: DataFrame) -> int:
    return rows.count() - rows.select("partition", "offset").distinct().count()


def test_batch_read_in_kafkas_columns(topic: Topic) -> None:
    topic.produce(0, 100)
    plain = topic.read()
    assert [(f.name, f.dataType.simpleString()) for f in plain.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert values(plain) == expected(0, 100)
    rows = {bytes(r.value).decode(): r for r in topic.read(includeHeaders="true").collect()}
    assert rows["v10"].key is None and bytes(rows["v11"].key) == b"11"
    assert [(h.key, h.value and bytes(h.value)) for h in rows["v5"].headers] == [
        ("h", b"1"),
        ("h", None),
    ]
    assert rows["v1"].headers is None
    assert {r.topic for r in rows.values()} == {topic.name}


def test_batch_bounds_and_splits(topic: Topic) -> None:
    topic.produce(0, 300)
    ends = {int(r.partition): r.n for r in topic.read().groupBy("partition").count()
            .withColumnRenamed("count", "n").collect()}  # fmt: skip
    starts = {topic.name: {str(p): 10 for p in range(3)}}
    stops = {topic.name: {"0": 20, "1": -1, "2": 20}}
    part = topic.read(
        startingOffsets=json.dumps(starts), endingOffsets=json.dumps(stops), minPartitions="6"
    )
    assert part.count() == 10 + (ends[1] - 10) + 10
    assert topic.read(maxRecordsPerPartition="40").rdd.getNumPartitions() >= 8


def test_only_the_columns_asked_for(topic: Topic) -> None:
    topic.produce(0, 50)
    reader = topic.spark.read.format("headwater").schema("offset BIGINT, value BINARY")
    rows = reader.options(subscribe=topic.name).option("bootstrap.servers", topic.servers).load()
    assert rows.columns == ["offset", "value"]
    assert values(rows) == expected(0, 50)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"startingOfset": "1"}, "did you mean"), ({"subscribe": "no-such-topic"}, "does not exist")],
)
def test_bad_input_is_a_clear_error(
    spark: Any, shared_cluster: LocalCluster, options: dict[str, str], words: str
) -> None:
    reader = spark.read.format("headwater").option("bootstrap.servers", shared_cluster.bootstrap)
    with pytest.raises(PySparkException, match=words):
        reader.options(**{"subscribe": "x", **options}).load().count()


def test_a_sink_without_its_topic_says_how_to_make_it(
    spark: Any, shared_cluster: LocalCluster
) -> None:
    writer = spark.createDataFrame([("v",)], "value STRING").write.format("headwater")
    writer.option("bootstrap.servers", shared_cluster.bootstrap).option("topic", "no-such-topic")
    with pytest.raises(PySparkException, match="headwater topics create no-such-topic"):
        writer.mode("append").save()


def test_a_stream_pins_its_start_and_goes_on_exactly(topic: Topic, tmp_path: Path) -> None:
    topic.produce(0, 30)

    def run(**options: str) -> list[int]:
        query = (
            topic.stream(startingOffsets="latest", **options)
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        return [p["numInputRows"] for p in query.recentProgress]

    assert run() == [0]  # batch 0 is logged though it is empty: it pins "latest"
    topic.produce(30, 60)
    run()
    topic.produce(60, 100)
    assert max(run(maxOffsetsPerTrigger="15")) <= 15
    assert values(topic.spark.read.parquet(str(tmp_path / "out"))) == expected(30, 100)
    logged = [json.loads(p.read_text().splitlines()[2])
              for p in sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))]  # fmt: skip
    assert all(a["to"] == b["from"] for a, b in itertools.pairwise(logged))


def test_an_idle_stream_makes_no_batches_and_lag_is_zero(topic: Topic) -> None:
    topic.produce(0, 20)
    query = (
        topic.stream(startingOffsets="earliest")
        .writeStream.format("memory")
        .queryName("idle_stream")
        .start()
    )
    query.processAllAvailable()
    first = query.lastProgress["batchId"]
    assert query.awaitTermination(2) is False
    assert query.lastProgress["batchId"] == first
    assert set(headwater_spark.lag(query.lastProgress).values()) == {0}
    query.stop()
    assert topic.spark.table("idle_stream").count() == 20


@pytest.mark.long
def test_limits_by_bytes_and_progress_as_group_offsets(topic: Topic) -> None:
    for start in range(0, 200, 50):  # a batch of records each: limits hold between batches
        topic.produce(start, start + 50)
    listener = headwater_spark.commit_progress(topic.spark, topic.servers, "spark-lag")
    query = (
        topic.stream(startingOffsets="earliest", maxBytesPerTrigger="2000")
        .writeStream.format("memory")
        .queryName("limited_by_bytes")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    rows = [p["numInputRows"] for p in query.recentProgress]
    assert sum(rows) == 200 and max(rows) < 200
    with Consumer(bootstrap_servers=topic.servers, group_id="spark-lag") as consumer:
        partitions = [TopicPartition(topic.name, p) for p in range(3)]
        LocalCluster.wait_until(
            lambda: sum(at.offset for at in consumer.committed(*partitions).values()) == 200,
            "group offsets",
        )
    listener.stop()


def test_executors_have_what_tasks_need(spark: Any) -> None:
    report = headwater_spark.check(spark)
    assert report.ok and report.executors


@pytest.mark.long
def test_the_sink_writes_rows_where_they_belong(topic: Topic) -> None:
    rows = [(str(i), f"v{i}", [("h", b"x")] if i % 2 else None, i % 3) for i in range(200)]
    ddl = "key STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>,"
    frame = topic.spark.createDataFrame(rows, f"{ddl} partition INT")
    writer = frame.write.format("headwater").option("kafka.bootstrap.servers", topic.servers)
    writer.option("topic", topic.name).mode("append").save()
    found = topic.read(includeHeaders="true").collect()
    assert sorted(bytes(r.value).decode() for r in found) == expected(0, 200)
    assert all(r.partition == int(bytes(r.value)[1:]) % 3 for r in found)
    assert sum(r.headers is not None for r in found) == 100


@pytest.mark.long
def test_a_streaming_sink_between_two_topics(topic: Topic, tmp_path: Path) -> None:
    with Admin(topic.servers) as admin:
        admin.create_topics([NewTopic(f"{topic.name}-out", 2, 3)])
    topic.produce(0, 100)
    query = (
        topic.stream(startingOffsets="earliest")
        .select("key", "value")
        .writeStream.format("headwater")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("topic", f"{topic.name}-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    out = Topic(topic.spark, topic.servers, f"{topic.name}-out")
    assert values(out.read()) == expected(0, 100)


def test_tiering_once_and_again(topic: Topic) -> None:
    topic.produce(0, 500)
    done = topic.tier()
    assert [r.rows for r in done] == [500, 0] and done[-1].idle
    assert [r.idle for r in topic.tier()] == [True]
    topic.produce(500, 600)
    assert sum(r.rows for r in topic.tier()) == 100
    assert values(topic.table()) == expected(0, 600)


@pytest.mark.long
def test_the_union_read_has_no_gap_and_no_overlap_while_tiering_runs(topic: Topic) -> None:
    topic.produce(0, 300)
    assert values(topic.table()) == expected(0, 300)  # no table yet
    topic.tier()
    topic.produce(300, 400)
    pinned = topic.table()
    topic.tier()  # the table moves on under the pinned read
    topic.produce(400, 450)
    assert values(pinned) == expected(0, 400)
    assert offsets_doubled(pinned) == 0
    both = topic.table()
    assert both.columns == topic.read(includeHeaders="true").columns
    same = ("partition", "offset", "key", "value", "timestamp", "timestampType")
    assert both.select(*same).exceptAll(topic.read().select(*same)).count() == 0
    assert both.count() == topic.read().count() == 450


def test_the_source_reads_long_history_from_the_table(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_spark.source.batch_planner import Planner
    from headwater_spark.source.source_options import source_options

    with Producer(topic.servers) as producer:
        many = pa.table({"v": pa.array([b"v%d" % i for i in range(700_000)], pa.binary())})
        producer.send_table(topic.name, many, value="v")
        producer.flush()
    topic.tier()
    topic.produce(700_000, 700_100)
    given = {"bootstrap.servers": topic.servers, "subscribe": topic.name}
    planner = Planner(source_options(given, streaming=False), SystemClock())
    assert {s.split.cold for s in planner.splits(planner.batch())} == {True, False}
    planner.close()
    rows = topic.read()
    assert rows.count() == 700_100
    assert offsets_doubled(rows) == 0


@pytest.mark.long
def test_the_command_line_tiers_until_sigterm(topic: Topic) -> None:
    topic.produce(0, 40)
    code = "import sys; from headwater.cli.main import main; sys.exit(main(sys.argv[1:]))"
    options = ["--continuous", "--interval", "0.2", "--json", "--master", "local[1]"]
    options += ["--bootstrap-server", topic.servers]
    command = [sys.executable, "-c", code, "tier", "run", topic.name, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        rounds = reported_rounds(process)
        assert next(rounds)["rows"] == 40
        topic.produce(40, 50)
        assert next(rounds)["rows"] == 10
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert values(topic.table()) == expected(0, 50)


def reported_rounds(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The JSON documents on the command's standard output; a document may span lines."""
    text = ""
    assert process.stdout is not None
    for line in process.stdout:
        text += line
        try:
            yield json.loads(text)
        except ValueError:
            continue
        text = ""
