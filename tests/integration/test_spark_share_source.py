"""The queue source under real Spark: each record's effects stand once, whatever dies."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import headwater_spark
from headwater import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from headwater_spark.sink.exactly_once import EpochWrites
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

CRASHED = "the task ends here"
PARTITIONS = 2
WAIT_S = 180
LOCK_MS = 15_000
Step = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", delta=True) as session:
        yield session


def values_in(servers: str, topic: str, spark: Any) -> list[int]:
    rows = (
        spark.read.format("headwater")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .load()
    )
    return sorted(int(bytes(row.value)) for row in rows.select("value").collect())


class Queue:
    """A share group over a topic, and a query that writes what it takes to another topic."""

    def __init__(self, servers: str, name: str, folder: Path) -> None:
        self.servers = servers
        self.name = name
        self.checkpoint = folder / "checkpoint"
        self.produced = 0
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(f"{name}-{end}", PARTITIONS, 3) for end in ("in", "out")])
            configs = {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": str(LOCK_MS),
            }
            admin.alter_configs("group", name, configs)

    def produce(self, count: int) -> None:
        with Producer(self.servers) as producer:
            for number in range(self.produced, self.produced + count):
                producer.send(f"{self.name}-in", b"%d" % number, partition=number % PARTITIONS)
        self.produced += count

    def rows(self, spark: Any, most: int = 40) -> DataFrame:
        return (
            spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", f"{self.name}-in")
            .option("shareGroup", self.name)
            .option("maxOffsetsPerTrigger", most)
            .load()
        )

    def run(self, spark: Any, step: Step = lambda rows: rows) -> None:
        """To the end of what is there, with the exactly-once sink."""
        query = (
            step(self.rows(spark).select("value"))
            .writeStream.format("headwater")
            .option("kafka.bootstrap.servers", self.servers)
            .option("topic", f"{self.name}-out")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    def member(self) -> ShareConsumer:
        return ShareConsumer(
            f"{self.name}-in",
            bootstrap_servers=self.servers,
            group_id=self.name,
            share_acknowledgement_mode="explicit",
        )

    def lag(self) -> int:
        with Admin(self.servers) as admin:
            return sum(at.lag or 0 for at in admin.list_share_group_offsets(self.name).values())


class Colleague:
    """Another member of the group, which takes and accepts what it gets."""

    def __init__(self, queue: Queue) -> None:
        self.accepted: list[int] = []
        self._consumer = queue.member()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._ended.is_set():
            polled = self._consumer.poll(timeout_ms=200, max_records=5)
            for rows in polled.values():
                for row in rows:
                    self._consumer.acknowledge(row, AcknowledgeType.ACCEPT)
            outcome = self._consumer.commit()
            for partition, rows in polled.items():
                if outcome.get(partition) is None:
                    self.accepted += [int(row.value or b"") for row in rows]

    def __enter__(self) -> Colleague:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()


@pytest.fixture
def queue(shared_cluster: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Queue:
    name = re.sub("[^a-z]+", "-", request.node.name).removeprefix("test-").strip("-")
    return Queue(shared_cluster.bootstrap, name, tmp_path)


def fails_once(flag: str) -> Step:
    """A step whose task fails while the file `flag` is not there, after it has read its rows."""

    def step(rows: DataFrame) -> DataFrame:
        def check(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield batch
                if batch.num_rows and not Path(flag).exists():
                    raise ValueError(CRASHED)

        return rows.mapInArrow(check, "value binary")

    return step


def test_each_record_stands_once_after_a_failed_task(
    spark: Any, queue: Queue, tmp_path: Path
) -> None:
    flag = tmp_path / "works"
    queue.produce(60)
    with pytest.raises(StreamingQueryException, match=CRASHED):
        queue.run(spark, fails_once(str(flag)))
    flag.touch()
    held = queue.lag()
    assert held == 60  # nothing is accepted, though an epoch was tried
    with Colleague(queue) as colleague:
        queue.run(spark, fails_once(str(flag)))
        LocalCluster.wait_until(lambda: queue.lag() == 0, "nothing is left over", WAIT_S)
    accepted = colleague.accepted
    out = values_in(queue.servers, f"{queue.name}-out", spark)
    assert sorted(out + accepted) == list(range(60))


@pytest.mark.long
def test_table_and_topic_agree_over_crashes_of_exactly_once(
    spark: Any, queue: Queue, tmp_path: Path
) -> None:
    table, flag = str(tmp_path / "table"), tmp_path / "works"
    spark.createDataFrame([], "id STRING").write.format("delta").save(table)

    def both(rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        tx.topic(rows.selectExpr("id AS value"), f"{queue.name}-out")
        tx.delta(rows)
        if not flag.exists():
            raise ValueError(CRASHED)

    def run() -> None:
        batch = headwater_spark.exactly_once(
            both, table=table, options={"kafka.bootstrap.servers": queue.servers}
        )
        query = (
            queue.rows(spark)
            .selectExpr("CAST(value AS STRING) AS id")
            .writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(queue.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    queue.produce(100)
    with pytest.raises(StreamingQueryException, match=CRASHED):
        run()
    flag.touch()
    with Colleague(queue) as colleague:
        run()
        LocalCluster.wait_until(lambda: queue.lag() == 0, "nothing is left over", WAIT_S)
    accepted = colleague.accepted
    out = values_in(queue.servers, f"{queue.name}-out", spark)
    in_table = sorted(int(row.id) for row in spark.read.format("delta").load(table).collect())
    assert in_table == out
    assert sorted(out + accepted) == list(range(100))
    assert queue.lag() == 0


DRIVER = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from pathlib import Path
from integration.spark_sessions import spark_session
from integration.test_spark_share_source import Queue

servers, name, folder = sys.argv[2:]
queue = Queue.__new__(Queue)
queue.servers, queue.name, queue.checkpoint = servers, name, Path(folder) / "checkpoint"
with spark_session("local[2]", delta=False) as spark:
    query = (
        queue.rows(spark, 10).select("value").writeStream.format("headwater")
        .option("kafka.bootstrap.servers", servers).option("topic", f"{name}-out")
        .option("checkpointLocation", str(queue.checkpoint)).start()
    )
    print("started", flush=True)
    query.awaitTermination()
"""
KILLS = 5


@pytest.mark.long
@pytest.mark.timeout(600)
def test_drivers_and_brokers_are_killed(
    spark: Any, start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    """Each driver is killed amid its batches, and a broker with every second one; then a last query
    goes on, while another member of the group takes its part all the time."""
    cluster = start_cluster(3)
    queue = Queue(cluster.bootstrap, "killed", tmp_path)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with Colleague(queue) as colleague:
        for turn in range(KILLS):
            queue.produce(100)
            batches = len(list((queue.checkpoint / "offsets").glob("[0-9]*")))
            driver = subprocess.Popen(
                [sys.executable, str(script), ":".join(sys.path), cluster.bootstrap, "killed",
                 str(tmp_path)],
                stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            offsets = queue.checkpoint / "offsets" / str(batches + 1 + turn % 3)
            cluster.wait_until(offsets.exists, "a batch is planned", WAIT_S)
            if turn % 2:
                cluster.kill_broker(turn % 3)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            if turn % 2:
                cluster.restart(turn % 3)
        cluster.make_whole()
        queue.run(spark)
        LocalCluster.wait_until(lambda: queue.lag() == 0, "nothing is left over", WAIT_S)
    accepted = colleague.accepted
    out = values_in(cluster.bootstrap, "killed-out", spark)
    assert len(set(out)) == len(out)
    assert not set(out) & set(accepted)
    assert sorted({*out, *accepted}) == list(range(queue.produced))
    assert queue.lag() == 0
