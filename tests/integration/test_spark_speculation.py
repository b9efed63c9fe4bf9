"""Speculation on a real Spark cluster: two attempts of a task write, one of them counts.

The session that Headwater makes has `spark.speculation=false`, as a second attempt writes for
nothing; a user may turn it on. Spark runs the second attempt of a task on another host only: each
worker has an address of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from headwater import Admin, Producer
from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.values import NewTopic
from headwater_spark.sink.write_task import BUFFER_BYTES
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session
from integration.spark_workers import standalone
from suites import judge

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

HOSTS = ("127.0.0.2", "127.0.0.3")
PARTITIONS = 4
VALUE_BYTES = 16_000
MANY = BUFFER_BYTES // VALUE_BYTES * 2
"""Records of the slow partition: more than a task holds before it writes."""
FEW = 20
WAIT_S = 120
CONF = {
    "spark.executor.cores": "4",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("speculating")
    with (
        standalone(
            folder, next_base_port(folder), len(HOSTS), cores=4, memory="600m", hosts=HOSTS
        ) as url,
        spark_session(url, delta=False, conf=CONF) as session,
    ):
        yield session


def test_the_slow_attempt_of_a_task_writes_and_does_not_count(
    spark: Any, shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    servers = shared_cluster.bootstrap
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in ("slow-in", "slow-out")])
    expected = []
    with Producer(servers) as producer:
        for partition, count in enumerate((MANY, FEW, FEW, FEW)):
            for number in range(count):
                key = f"{partition}-{number}"
                expected.append(key)
                value = key.encode().ljust(VALUE_BYTES, b".")
                last = producer.send("slow-in", value, key=key.encode(), partition=partition)
        producer.flush()
        last.result(WAIT_S)

    def slow_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The first attempt at the large partition passes its rows on, and does not end."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        context = TaskContext.get()
        if rows > FEW and context.attemptNumber() == 0:
            time.sleep(WAIT_S)

    stream = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "slow-in")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .mapInArrow(slow_once, "key binary, value binary")
    )
    query = (
        stream.writeStream.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "slow-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    committed = [(row.key or b"").decode() for row in judge.rows(servers, "slow-out")]
    assert sorted(committed) == sorted(expected)
    every = judge.rows(servers, "slow-out", judge.UNCOMMITTED)
    assert len(every) > len(committed), "no second attempt has written"
    with EpochClient(servers) as client:
        sink = client.describe(str(query.id))
    assert sink is not None and sink.epochs == () and sink.slots > PARTITIONS
