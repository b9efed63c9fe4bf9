"""The exactly-once Spark sink on a real cluster: restarts, failures, refusals, batch writes."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from headwater import Admin, Producer
from headwater.client.blocking.epoch_client import EpochClient, EpochWriter
from headwater.client.values import NewTopic
from headwater_spark.sink.epoch_write import write_epoch
from headwater_spark.sink.write_task import BUFFER_ROWS
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from unit.client.served_broker import ServedBroker
from unit.client.sink_broker import served

__all__ = ["served"]

pytestmark = pytest.mark.integration

WAIT_S = 90
POLL_S = 0.05
PARTITIONS = 3
long_case = partial(pytest.param, marks=pytest.mark.long)
Batches = Iterator[pa.RecordBatch]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Tasks are tried three times."""
    with spark_session("local[2, 3]", delta=False) as session:
        yield session


class Pipeline:
    """A query from one topic to another, with its checkpoint."""

    def __init__(self, spark: Any, servers: str, name: str, folder: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.source = f"{name}-in"
        self.target = f"{name}-out"
        self.checkpoint = folder / "checkpoint"
        self.produced = 0

    def produce(self, count: int) -> None:
        """The next `count` values, spread over the partitions."""
        with Producer(self.servers) as producer:
            for i in range(self.produced, self.produced + count):
                last = producer.send(self.source, str(i).encode(), partition=i % PARTITIONS)
            producer.flush()
            last.result(WAIT_S)
        self.produced += count

    def rows(self, **options: str) -> DataFrame:
        """The source as a stream."""
        reader = self.spark.readStream.format("headwater").option("subscribe", self.source)
        reader = reader.option("startingOffsets", "earliest").options(**options)
        return reader.option("bootstrap.servers", self.servers).load().select("value")

    def start(
        self, rows: DataFrame | None = None, checkpoint: Path | None = None, **options: str
    ) -> StreamingQuery:
        """Until the source's end."""
        writer = (self.rows() if rows is None else rows).writeStream.format("headwater")
        writer = writer.options(**{"topic": self.target, **options})
        writer = writer.option("kafka.bootstrap.servers", self.servers)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def await_first_plan(self) -> None:
        """Until Spark has written its first batch's offsets.

        A query that is stopped while Spark writes them leaves a checkpoint which Spark itself
        refuses from then on (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), whatever the sink.
        """
        deadline = time.monotonic() + WAIT_S
        while not (self.checkpoint / "offsets" / "0").exists():
            assert time.monotonic() < deadline, "Spark planned no batch"
            time.sleep(0.02)

    def run(self, rows: DataFrame | None = None, **options: Any) -> list[int]:
        """Run to the source's end; the input rows of each batch."""
        query = self.start(rows, **options)
        assert query.awaitTermination(WAIT_S)
        return [p["numInputRows"] for p in query.recentProgress]

    def forget(self, *names: str) -> None:
        """Delete entries of the checkpoint, as `commits/0`."""
        for name in names:
            path = self.checkpoint / name
            path.unlink()
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)

    def written(self, isolation: str = "read_committed", topic: str | None = None) -> list[int]:
        """The values in the target."""
        reader = self.spark.read.format("headwater").option("subscribe", topic or self.target)
        reader = reader.option("kafka.isolation.level", isolation)
        frame = reader.option("bootstrap.servers", self.servers).load()
        return sorted(int(bytes(r.value)) for r in frame.select("value").collect())

    def expected(self) -> list[int]:
        return list(range(self.produced))

    def batch(self, count: int) -> DataFrame:
        """Values 0 to count - 1 in three tasks."""
        return self.spark.range(0, count, 1, PARTITIONS).selectExpr("cast(id as string) as value")

    def save(self, rows: DataFrame, **options: str) -> None:
        writer = rows.write.format("headwater").options(**{"topic": self.target, **options})
        writer.option("kafka.bootstrap.servers", self.servers).mode("append").save()


@pytest.fixture
def pipeline(
    spark: Any, shared_cluster: LocalCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> Pipeline:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:80].strip("-")
    found = Pipeline(spark, shared_cluster.bootstrap, name, tmp_path)
    with Admin(found.servers) as admin:
        admin.create_topics([NewTopic(t, PARTITIONS, 3) for t in (found.source, found.target)])
    return found


def failing(value: bytes, attempts: int) -> Callable[[Batches], Batches]:
    """A step that fails after the Arrow batch with this value, in the task's first `attempts`."""

    def step(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if value in batch.column("value").to_pylist() and context.attemptNumber() < attempts:
                raise RuntimeError(f"planted failure at {value!r}")

    return step


def slow(seconds: float) -> Callable[[Batches], Batches]:
    """A step that takes this long for each Arrow batch."""

    def step(batches: Batches) -> Batches:
        for batch in batches:
            yield batch
            time.sleep(seconds)

    return step


def refusal(query: StreamingQuery) -> str:
    """The error that ended the query."""
    with pytest.raises(PySparkException) as failure:
        query.awaitTermination(WAIT_S)
    return str(failure.value)


def test_each_row_is_written_once_over_restarts(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    pipeline.run()
    assert pipeline.written() == pipeline.expected()
    pipeline.produce(60)
    pipeline.run(pipeline.rows(maxOffsetsPerTrigger="20"))
    assert pipeline.written() == pipeline.expected()


def test_a_batch_whose_commit_spark_did_not_log_is_not_written_again(pipeline: Pipeline) -> None:
    """As after a driver that died between the commit record and Spark's commit log."""
    pipeline.produce(60)
    pipeline.run()
    pipeline.forget("commits/0")
    assert pipeline.run()[0] == 60, "Spark runs the batch again"
    assert pipeline.written() == pipeline.expected()
    pipeline.produce(30)
    pipeline.run()
    assert pipeline.written("read_uncommitted") == pipeline.expected(), "it was drained"


@pytest.mark.long
def test_a_rewound_checkpoint_is_refused_with_the_remedy(pipeline: Pipeline) -> None:
    for _ in range(2):
        pipeline.produce(30)
        pipeline.run()
    pipeline.forget("commits/0", "commits/1", "offsets/1")
    text = refusal(pipeline.start())
    assert "headwater sinks takeover" in text and "--last-epoch" in text
    assert pipeline.written() == pipeline.expected()


@pytest.mark.long
def test_another_query_on_the_sink_is_refused_until_it_takes_over(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.produce(30)
    sink = f"{pipeline.target}-sink"
    options = {"headwater.sink.id": sink}
    pipeline.run(**options)
    text = refusal(pipeline.start(checkpoint=tmp_path / "another", **options))
    assert "headwater sinks takeover" in text and sink in text
    assert pipeline.written() == pipeline.expected()
    with Admin(pipeline.servers) as admin:
        admin.take_over_sink(sink, owner="", last_epoch=-1)
    pipeline.run(checkpoint=tmp_path / "another", **options)
    assert pipeline.written() == sorted(2 * pipeline.expected()), "a new query from the start"


@pytest.mark.long
def test_a_task_that_is_tried_again_writes_its_rows_once(pipeline: Pipeline) -> None:
    """Its first attempt sends a full buffer of rows before it fails."""
    count = 2 * (BUFFER_ROWS + 1000)
    rows = pipeline.spark.range(0, count, 1, 2).selectExpr(
        "cast(cast(id as string) as binary) value"
    )
    pipeline.save(rows.mapInArrow(failing(b"%d" % (count - 1), attempts=1), "value binary"))
    assert pipeline.written() == list(range(count))
    assert len(pipeline.written("read_uncommitted")) > count, "the first attempt had written rows"


@pytest.mark.long
def test_a_batch_that_failed_is_written_whole_by_the_next_run(pipeline: Pipeline) -> None:
    pipeline.produce(60)
    rows = pipeline.rows().mapInArrow(failing(b"7", attempts=99), "value binary")
    assert "planted failure" in refusal(pipeline.start(rows))
    assert pipeline.written() == []
    pipeline.run()
    assert pipeline.written() == pipeline.expected()


@pytest.mark.long
def test_a_query_may_be_stopped_at_any_moment(pipeline: Pipeline) -> None:
    """Before the join, while tasks write, during the commit: the stops move through a batch."""
    for round_number in range(6):
        pipeline.produce(30)
        rows = pipeline.rows().mapInArrow(slow(0.3), "value binary")
        query = pipeline.start(rows)
        pipeline.await_first_plan()
        query.awaitTermination(0.05 + 0.25 * round_number)
        query.stop()
    pipeline.run()
    assert pipeline.written() == pipeline.expected()


def save_in_foreach_batch(pipeline: Pipeline, **options: str) -> StreamingQuery:
    """The batch write of a micro-batch, exactly once by its sink id."""

    def write(rows: DataFrame, _batch: int) -> None:
        pipeline.save(rows, **{"headwater.sink.id": f"{pipeline.target}-sink", **options})

    writer = pipeline.rows().writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(pipeline.checkpoint))
    return writer.trigger(availableNow=True).start()


@pytest.mark.parametrize("place", ["sink", pytest.param("foreachBatch", marks=pytest.mark.long)])
def test_a_query_stops_while_its_commit_has_no_answer(
    spark: Any, served: ServedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Spark waits for the commit, which ends with its time limit."""
    pipeline = Pipeline(spark, served.bootstrap, "stopped", tmp_path)
    for topic in (pipeline.source, pipeline.target):
        served.do(lambda b, name=topic: b.create_topic(name, PARTITIONS))
    pipeline.produce(30)
    sinks, reached, answered = served.broker.services.sinks, threading.Event(), asyncio.Event()
    commit = sinks.commit_epoch

    async def silent(*arguments: Any, **options: Any) -> Any:
        reply = await commit(*arguments, **options)
        reached.set()
        await answered.wait()
        return reply

    def start(**options: str) -> StreamingQuery:
        if place == "foreachBatch":
            return save_in_foreach_batch(pipeline, **options)
        return pipeline.start(**options)

    monkeypatch.setattr(sinks, "commit_epoch", silent)
    query = start(**{"kafka.request.timeout.ms": "2000", "headwater.retry.timeout.ms": "2000"})
    while not reached.wait(POLL_S):
        assert query.isActive, query.exception()
    query.stop()
    assert not query.isActive
    monkeypatch.undo()
    served.do(lambda _: answered.set())
    assert start().awaitTermination(WAIT_S)
    assert pipeline.written("read_uncommitted") == pipeline.expected(), "the next start drained it"


@pytest.mark.long
def test_two_writes_of_one_batch_have_sinks_of_their_own(pipeline: Pipeline) -> None:
    second = f"{pipeline.target}-2"
    with Admin(pipeline.servers) as admin:
        admin.create_topics([NewTopic(second, PARTITIONS, 3)])

    def both(rows: DataFrame, _batch: int) -> None:
        for number, topic in enumerate((pipeline.target, second)):
            sink = {"headwater.sink.id": f"{pipeline.target}-{number}"}
            pipeline.save(rows, topic=topic, **sink)

    def run() -> None:
        query = (
            pipeline.rows()
            .writeStream.foreachBatch(both)
            .option("checkpointLocation", str(pipeline.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    pipeline.produce(60)
    run()
    pipeline.forget("commits/0")
    run()
    assert pipeline.written() == pipeline.expected()
    assert pipeline.written(topic=second) == pipeline.expected()


def test_a_batch_write_is_one_transaction(pipeline: Pipeline) -> None:
    pipeline.save(pipeline.batch(300))
    assert pipeline.written() == list(range(300))


def test_a_batch_write_that_failed_leaves_nothing_to_read(pipeline: Pipeline) -> None:
    failed = pipeline.batch(300).selectExpr("cast(value as binary) as value")
    failed = failed.mapInArrow(failing(b"299", attempts=99), "value binary")
    with pytest.raises(PySparkException, match="planted failure"):
        pipeline.save(failed)
    assert pipeline.written() == []
    assert pipeline.written("read_uncommitted"), "tasks had written rows"
    pipeline.save(pipeline.batch(30))
    assert pipeline.written() == list(range(30)), "the abort does not hold back what comes after"


def test_a_sink_id_outside_of_a_query_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(PySparkException, match="outside of one: leave it out"):
        pipeline.save(pipeline.batch(3), **{"headwater.sink.id": "no-query"})
    assert pipeline.written("read_uncommitted") == []


@pytest.mark.parametrize(
    ("column", "options", "words"),
    [
        ("double(string(value)) as value", {}, "column 'value' must be binary or string"),
        long_case("value as valu", {}, "no column 'valu'"),
        long_case("value", {"topic": "no-such-topic"}, "headwater topics create no-such-topic"),
        long_case("value", {"headwater.delivry": "x"}, "did you mean 'headwater.delivery'"),
    ],
)
def test_a_stream_that_cannot_be_written_is_refused_before_any_row_moves(
    pipeline: Pipeline, column: str, options: dict[str, str], words: str
) -> None:
    pipeline.produce(3)
    assert words in refusal(pipeline.start(pipeline.rows().selectExpr(column), **options))
    assert pipeline.written("read_uncommitted") == []


@pytest.mark.long
def test_a_partition_out_of_range_is_refused_and_leaves_nothing(pipeline: Pipeline) -> None:
    rows = pipeline.batch(300).selectExpr("value", "int(value) % 4 as partition")
    with pytest.raises(PySparkException, match="'partition' holds 3; the topic has partitions 0"):
        pipeline.save(rows)
    assert pipeline.written("read_uncommitted") == []


def test_a_frame_in_an_epoch_of_the_caller(pipeline: Pipeline) -> None:
    options = {"kafka.bootstrap.servers": pipeline.servers, "topic": pipeline.target}
    with EpochClient(pipeline.servers) as client:
        ticket = client.allocate_ticket()
        writer = EpochWriter("caller", "caller", UUID(int=ticket), ticket, epoch=0)
        first = write_epoch(pipeline.batch(30), writer, options)
        second = write_epoch(
            pipeline.batch(60).where("id >= 30"), writer, options, first_task=first.tasks
        )
        assert (first.rows, second.rows, first.is_committed) == (30, 30, False)
        assert pipeline.written() == []
        client.commit(writer, [*first.participants, *second.participants])
        assert pipeline.written() == list(range(60))
        assert write_epoch(pipeline.batch(30), writer, options).is_committed
    assert pipeline.written("read_uncommitted") == list(range(60))


@pytest.mark.long
def test_a_million_rows_take_seconds(pipeline: Pipeline) -> None:
    rows = pipeline.spark.range(0, 1_000_000, 1, 2)
    rows = rows.selectExpr("cast(lpad(cast(id as string), 100, '0') as binary) as value")
    start = time.monotonic()
    pipeline.save(rows)
    assert time.monotonic() - start < 60
    assert len(pipeline.written()) == 1_000_000
