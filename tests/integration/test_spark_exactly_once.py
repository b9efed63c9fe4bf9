"""`exactly_once`: a Delta table and topics of one micro-batch agree, also after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

import headwater_spark
from headwater import Admin, Producer
from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.values import NewTopic
from headwater_spark.sink.exactly_once import EpochWrites
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

WAIT_S = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=True) as session:
        yield session


class Pipeline:
    """A query from topic `in` to a table and topics, whose runs may die at a step."""

    def __init__(self, spark: Any, servers: str, folder: Path, name: str) -> None:
        self.spark, self.servers, self.name = spark, servers, name
        self.table, self.checkpoint = str(folder / "table"), str(folder / "checkpoint")
        with Admin(servers) as admin:
            topics = [f"{name}-{part}" for part in ("in", "out", "alerts")]
            admin.create_topics([NewTopic(topic, 2, 1) for topic in topics])

    def produce(self, start: int, end: int) -> None:
        with Producer(self.servers) as producer:
            for i in range(start, end):
                last = producer.send(f"{self.name}-in", b"%d" % i, key=b"%d" % i)
            producer.flush()
            last.result(WAIT_S)

    def run(self, batch: Callable[[DataFrame, int, EpochWrites], None]) -> str:
        """Until all input is consumed or the query fails; the query's id."""
        stream = (
            self.spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", f"{self.name}-in")
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(value AS STRING) AS id")
        )
        both = headwater_spark.exactly_once(batch, bootstrap_servers=self.servers, table=self.table)
        query = (
            stream.writeStream.foreachBatch(both)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)

    def in_topic(self, part: str) -> list[int]:
        rows = (
            self.spark.read.format("headwater")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", f"{self.name}-{part}")
            .load()
        )
        return sorted(int(bytes(row.value)) for row in rows.select("value").collect())

    def in_table(self) -> list[int]:
        rows = self.spark.read.format("delta").load(self.table)
        return sorted(int(row.id) for row in rows.collect())


@pytest.fixture
def pipeline(
    spark: Any, shared_cluster: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Pipeline:
    name = request.node.name.replace("test_", "once-").replace("_", "-")
    return Pipeline(spark, shared_cluster.bootstrap, tmp_path, name)


def both_writes(pipeline: Pipeline) -> Callable[[DataFrame, int, EpochWrites], None]:
    def batch(rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        tx.topic(rows.selectExpr("id AS key", "id AS value"), f"{pipeline.name}-out")
        tx.topic(
            rows.where("int(id) % 10 = 0").selectExpr("id AS value"), f"{pipeline.name}-alerts"
        )
        tx.delta(rows)

    return batch


def test_appends_and_two_topics_agree(pipeline: Pipeline) -> None:
    for start in (0, 50):
        pipeline.produce(start, start + 50)
        sink = pipeline.run(both_writes(pipeline))
    expected = list(range(100))
    assert pipeline.in_table() == expected
    assert pipeline.in_topic("out") == expected
    assert pipeline.in_topic("alerts") == expected[::10]
    with EpochClient(pipeline.servers) as client:
        described = client.describe(sink)
    print(described)
    DeltaTable.forPath(pipeline.spark, pipeline.table).history().select(
        "version", "operation", "userMetadata"
    ).show(50, False)
