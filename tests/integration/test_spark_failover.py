"""Spark while brokers die: queries continue, the source's rows are exact, the sink loses none.

Each broker is killed with SIGKILL and started again in turn, under two streaming queries (source to
files, source to sink), batch reads and a producer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

from headwater import Producer
from headwater.errors import HeadwaterError
from integration.cluster import LocalCluster
from integration.conftest import Start
from integration.spark_sessions import spark_session

pytestmark = [pytest.mark.integration, pytest.mark.long]

PARTITIONS = 2
SETTLE_S = 1.5
WAIT_S = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[4]", delta=False) as session:
        yield session


class Feed:
    """A producer in a thread: sends v0, v1, ... until the end of the `with` block."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._servers = cluster.bootstrap
        self._topic = topic
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.failures: list[BaseException] = []

    def _run(self) -> None:
        with Producer(self._servers) as producer:
            futures = []
            while not self._done.wait(0.005):
                for _ in range(10):
                    value = b"v%d" % self.sent
                    futures.append(producer.send(self._topic, value, key=b"%d" % self.sent))
                    self.sent += 1
            producer.flush(WAIT_S)
            for future in futures:
                try:
                    future.result(WAIT_S)
                except HeadwaterError as e:
                    self.failures.append(e)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(2 * WAIT_S)


def read(spark: Any, servers: str, topic: str) -> Any:
    reader = spark.read.format("headwater").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load()


def stream(spark: Any, servers: str, topic: str) -> Any:
    reader = spark.readStream.format("headwater").option("kafka.bootstrap.servers", servers)
    return reader.options(subscribe=topic, startingOffsets="earliest").load()


def values(frame: Any) -> Counter[str]:
    return Counter(row.v for row in frame.selectExpr("cast(value as string) v").collect())


def healthy(queries: list[StreamingQuery]) -> None:
    for query in queries:
        assert query.exception() is None and query.isActive, query.exception()


def test_every_broker_dies_once_under_queries(
    spark: Any, start_cluster: Start, tmp_path: Path
) -> None:
    cluster = start_cluster()
    servers = cluster.bootstrap
    for topic in ("in", "out"):
        cluster.create_topic(topic, PARTITIONS, 3, min_insync_replicas="2")
    source = stream(spark, servers, "in")
    to_files = (
        source.writeStream.format("parquet")
        .option("path", str(tmp_path / "files"))
        .option("checkpointLocation", str(tmp_path / "files-checkpoint"))
    )
    to_topic = (
        source.select("key", "value")
        .writeStream.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path / "topic-checkpoint"))
    )
    with Feed(cluster, "in") as feed:
        queries = [to_files.start(), to_topic.start()]
        for broker in range(3):
            time.sleep(SETTLE_S)
            cluster.kill_broker(broker)
            before = feed.sent
            found = values(read(spark, servers, "in"))
            assert found and max(found.values()) == 1
            time.sleep(SETTLE_S)
            assert feed.sent > before
            healthy(queries)
            cluster.restart(broker)
            for partition in range(PARTITIONS):
                cluster.wait_isr("in", 3, partition)
    assert not feed.failures
    expected = {f"v{i}": 1 for i in range(feed.sent)}
    for query in queries:
        query.processAllAvailable()
    healthy(queries)
    for query in queries:
        query.stop()
    assert values(read(spark, servers, "in")) == expected
    assert values(spark.read.parquet(str(tmp_path / "files"))) == expected
    assert set(values(read(spark, servers, "out"))) == set(expected)
