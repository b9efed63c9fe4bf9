"""A Spark Connect session that reads and writes an external cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import headwater_spark
from headwater import Admin, Producer
from headwater.client.values import NewTopic
from headwater.errors import UsageError
from integration import connect_server
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.connect_server import ConnectServer

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60
ROWS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    connect_server.need()
    folder = tmp_path_factory.mktemp("connect")
    with ConnectServer(folder, next_base_port(folder), {}) as running:
        yield running


@pytest.fixture(scope="module")
def spark(server: ConnectServer) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(server.url).create()
    yield session
    session.stop()


class Topics:
    """A filled topic and an empty one of a test."""

    def __init__(self, spark: Any, servers: str, name: str) -> None:
        self.spark = spark
        self.servers = servers
        self.filled = f"{name}-in"
        self.empty = f"{name}-out"

    def reader(self, reader: Any, topic: str) -> Any:
        rows = reader.format("headwater").option("kafka.bootstrap.servers", self.servers)
        return rows.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def stream(self) -> Any:
        return self.reader(self.spark.readStream, self.filled)

    def write(self, frame: Any) -> None:
        writer = frame.write.format("headwater").option("kafka.bootstrap.servers", self.servers)
        writer.option("topic", self.empty).mode("append").save()

    def values(self, topic: str) -> list[str]:
        rows = self.reader(self.spark.read, topic).selectExpr("CAST(value AS STRING) AS v")
        return sorted(row.v for row in rows.collect())


@pytest.fixture
def topics(spark: Any, shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Topics:
    name = request.node.name.replace("test_", "connect-").replace("_", "-")
    found = Topics(spark, shared_cluster.bootstrap, name)
    with Admin(shared_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(found.filled, 2, 3), NewTopic(found.empty, 2, 3)])
    with Producer(shared_cluster.bootstrap) as producer:
        for i in range(ROWS):
            producer.send(found.filled, b"v%d" % i, key=b"k%d" % i)
    return found


EXPECTED = sorted(f"v{i}" for i in range(ROWS))


def test_batches_are_read_and_written(topics: Topics) -> None:
    assert topics.values(topics.filled) == EXPECTED
    topics.write(topics.reader(topics.spark.read, topics.filled).select("key", "value"))
    assert topics.values(topics.empty) == EXPECTED


def test_register_works_and_wrong_options_name_the_remedy(topics: Topics) -> None:
    headwater_spark.register(topics.spark)
    assert topics.values(topics.filled) == EXPECTED
    with pytest.raises(PySparkException, match="did you mean 'subscribe'"):
        topics.spark.read.format("headwater").option("subscribbe", "x").load().count()


def test_sql_views_and_history_with_tail(topics: Topics) -> None:
    topics.spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW lines USING headwater OPTIONS ("
        f"kafka.bootstrap.servers '{topics.servers}', subscribe '{topics.filled}')"
    ).collect()
    (row,) = topics.spark.sql("SELECT count(*) AS n FROM lines").collect()
    assert row.n == ROWS
    table = headwater_spark.table(
        topics.spark, topics.filled, bootstrap_servers=topics.servers
    )  # nothing is tiered: all rows come from the brokers
    assert table.count() == ROWS


@pytest.mark.long
def test_a_stream_goes_on_from_its_checkpoint(topics: Topics, tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    def run() -> None:
        query = (
            topics.stream()
            .selectExpr("CAST(value AS STRING) AS v")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(WAIT_S) and query.exception() is None

    run()
    with Producer(topics.servers) as producer:
        producer.send(topics.filled, b"new")
    run()
    found = sorted(row.v for row in topics.spark.read.parquet(out).collect())
    assert found == sorted([*EXPECTED, "new"])


@pytest.mark.long
def test_a_streaming_sink_is_exactly_once_and_shows_its_lag(topics: Topics, tmp_path: Path) -> None:
    query = (
        topics.stream()
        .select("key", "value")
        .writeStream.format("headwater")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("topic", topics.empty)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        assert topics.values(topics.empty) == EXPECTED
        assert headwater_spark.lag(query.lastProgress) == {
            (topics.filled, 0): 0,
            (topics.filled, 1): 0,
        }
        with Admin(topics.servers) as admin:
            (sink,) = [s for s in admin.list_sinks() if s.owner == str(query.id)]
        assert sink.last_epoch == query.lastProgress["batchId"]
    finally:
        query.stop()


@pytest.mark.long
def test_for_each_batch_writes_a_topic(topics: Topics, tmp_path: Path) -> None:
    servers, topic = topics.servers, topics.empty

    def write(frame: Any, _batch: int) -> None:
        writer = frame.write.format("headwater").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic).mode("append").save()

    query = (
        topics.stream()
        .select("key", "value")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S) and query.exception() is None
    assert topics.values(topics.empty) == EXPECTED


def test_the_documented_program(topics: Topics, server: ConnectServer, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    (program,) = re.findall(r"```python\n(# connect\.py.*?)```", page, re.DOTALL)
    (tmp_path / "connect.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "connect.py", server.url, topics.servers, topics.filled],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{ROWS} records\n"


def test_executors_are_probed(spark: Any) -> None:
    report = headwater_spark.check(spark)
    assert report.ok and report.executors


def test_brokers_need_a_classic_session(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Spark Connect"):
        headwater_spark.Cluster.start(spark, brokers=1, dir=str(tmp_path / "data"))
