"""Spark's own connector for Kafka (spark-sql-kafka-0-10, Java clients) against Headwater's brokers.

Needs the connector's jars, which `make integrations` fetches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from suites.parts import MissingPartError, spark_connector

pytestmark = [pytest.mark.integration, pytest.mark.integrations, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120
ROWS = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    try:
        jars = spark_connector()
    except MissingPartError as missing:
        pytest.skip(f"Spark's connector for Kafka cannot be had: {missing}")
    conf = {"spark.jars": ",".join(jars)}
    with spark_session("local[4]", delta=False, conf=conf) as session:
        yield session


class Topics:
    """Topics of one test: two partitions each, three replicas."""

    def __init__(self, spark: Any, servers: str, name: str) -> None:
        self.spark = spark
        self.servers = servers
        self.filled = f"{name}-in"
        self.empty = f"{name}-out"
        self.create(self.filled, self.empty)
        self.produce(self.filled, 0, ROWS)

    def create(self, *names: str) -> None:
        with Admin(self.servers) as admin:
            admin.create_topics([NewTopic(name, 2, 3) for name in names])

    def produce(self, topic: str, start: int, end: int) -> None:
        with Producer(self.servers) as producer:
            for i in range(start, end):
                producer.send(topic, b"v%d" % i, key=b"k%d" % i, headers=[("h", b"%d" % i)])

    def options(self, side: Any, **options: str) -> Any:
        """A reader or writer of Spark's connector."""
        servers = side.format("kafka").option("kafka.bootstrap.servers", self.servers)
        return servers.options(**options)

    def read(self, topic: str, **options: str) -> Any:
        return self.options(self.spark.read, subscribe=topic, **options).load()

    def stream(self, **options: str) -> Any:
        reader = self.options(self.spark.readStream, **options)
        return reader.option("startingOffsets", "earliest").load()

    def headwater_values(self, topic: str) -> list[str]:
        """The topic's values, read by Headwater's own source."""
        rows = self.spark.read.format("headwater").option("bootstrap.servers", self.servers)
        return values(rows.option("subscribe", topic).load())


def values(frame: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def expected(start: int = 0, end: int = ROWS) -> list[str]:
    return sorted(f"v{i}" for i in range(start, end))


@pytest.fixture
def topics(spark: Any, shared_cluster: LocalCluster, request: pytest.FixtureRequest) -> Topics:
    name = request.node.name.replace("test_", "jvm-").replace("_", "-")
    return Topics(spark, shared_cluster.bootstrap, name)


def test_batch_source_with_offsets_timestamps_and_headers(topics: Topics) -> None:
    assert values(topics.read(topics.filled)) == expected()
    bounds = {topics.filled: {"0": 5, "1": 5}}
    assert topics.read(topics.filled, startingOffsets=json.dumps(bounds)).count() == ROWS - 10
    (newest,) = topics.read(topics.filled).selectExpr("max(timestamp) AS t").collect()
    milliseconds = str(int(newest.t.timestamp() * 1000))
    late = topics.read(topics.filled, startingTimestamp=milliseconds)
    assert 1 <= late.count() <= ROWS
    (row,) = topics.read(topics.filled, includeHeaders="true").where("value = 'v7'").collect()
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"7")]


def test_batch_sink(topics: Topics) -> None:
    frame = topics.read(topics.filled, includeHeaders="true").select("key", "value", "headers")
    topics.options(frame.write, topic=topics.empty, **{"kafka.compression.type": "zstd"}).save()
    assert topics.headwater_values(topics.empty) == expected()


def test_a_stream_of_a_pattern_finds_new_topics_and_goes_on(topics: Topics, tmp_path: Path) -> None:
    out, second = str(tmp_path / "out"), f"{topics.filled}-2"

    def run() -> None:
        query = (
            topics.stream(subscribePattern=f"{topics.filled}.*", maxOffsetsPerTrigger="25")
            .selectExpr("value", "topic")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(WAIT_S)

    run()
    topics.create(second)
    topics.produce(second, ROWS, ROWS + 10)
    run()
    assert values(topics.spark.read.parquet(out)) == expected(0, ROWS + 10)


def test_stream_sink(topics: Topics, tmp_path: Path) -> None:
    query = (
        topics.options(
            topics.stream(subscribe=topics.filled).select("key", "value").writeStream,
            topic=topics.empty,
            checkpointLocation=str(tmp_path / "checkpoint"),
        )
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert topics.headwater_values(topics.empty) == expected()


def test_read_committed_passes_over_aborted_records(topics: Topics) -> None:
    with Producer(topics.servers, transactional_id=topics.filled) as producer:
        producer.begin_transaction()
        producer.send(topics.empty, b"aborted")
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topics.empty, b"committed")
        producer.commit_transaction()
    level = {"kafka.isolation.level": "read_committed"}
    assert values(topics.read(topics.empty, **level)) == ["committed"]


def test_real_time_mode_passes_records_while_its_batch_is_open(
    topics: Topics, tmp_path: Path
) -> None:
    """The query of docs/spark.md, whose batches take a minute."""
    page = (ROOT / "docs" / "spark.md").read_text()
    (snippet,) = re.findall(r"```python\n(query = .*?realTime.*?)```", page, re.DOTALL)
    for documented, topic in (("flights", topics.filled), ("copies", topics.empty)):
        snippet = snippet.replace(f'"{documented}"', f'"{topic}"')
    names: dict[str, Any] = {
        "spark": topics.spark,
        "servers": topics.servers,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    exec(snippet, names)
    query = names["query"]

    def wait_for(count: int) -> None:
        LocalCluster.wait_until(
            lambda: len(topics.headwater_values(topics.empty)) == count, "copies", WAIT_S
        )

    try:
        wait_for(ROWS)
        topics.produce(topics.filled, ROWS, ROWS + 5)
        wait_for(ROWS + 5)
        assert query.exception() is None and query.lastProgress is None, "the first batch is open"
    finally:
        query.stop()
    assert topics.headwater_values(topics.empty) == expected(0, ROWS + 5)


def test_the_same_topic_through_both_connectors(topics: Topics) -> None:
    ours = topics.spark.read.format("headwater").option("bootstrap.servers", topics.servers)
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    of_headwater = ours.option("subscribe", topics.filled).load().select(*columns)
    of_kafka = topics.read(topics.filled).select(*columns)
    assert of_headwater.exceptAll(of_kafka).count() == of_kafka.exceptAll(of_headwater).count() == 0
