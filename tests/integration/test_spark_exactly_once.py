"""`exactly_once`: a Delta table and topics of one micro-batch agree, also after a crash."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from headwater import Admin, Producer
from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
from headwater.client.values import NewTopic
from headwater.wire.epoch_values import EpochStatus
from headwater_spark.sink.delta_decision import DeltaDecisionTable
from headwater_spark.sink.exactly_once import BatchFunction, EpochWrites, ExactlyOnceBatch
from headwater_spark.verify_command import Verified, verify
from headwater_tier.delta_readers import UsersTable
from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session

pytestmark = pytest.mark.integration

WAIT_S = 60
CRASHED = "the driver died here"


class CrashingClient(EpochClient):
    """Raises once, before or after a call, as if the driver had died there."""

    def __init__(self, step: str, servers: str, **options: Any) -> None:
        super().__init__(servers, **options)
        self._step = step

    def _pass(self, step: str) -> None:
        if step == self._step:
            raise RuntimeError(CRASHED)

    def abort(self, writer: EpochWriter, *, is_prepared: bool = False) -> EpochStatus:
        """Does nothing: a dead driver aborts nothing."""
        return EpochStatus.ABORTED

    def prepare(self, writer: EpochWriter, participants: Sequence[Participant]) -> None:
        self._pass("before prepare")
        super().prepare(writer, participants)
        self._pass("after prepare")

    def commit(
        self, writer: EpochWriter, participants: Sequence[Participant], *, is_prepared: bool = False
    ) -> bool:
        self._pass("before commit")
        is_complete = super().commit(writer, participants, is_prepared=is_prepared)
        self._pass("after commit")
        return is_complete


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

    def run(
        self, batch: BatchFunction | None = None, crash: str = "", rows_max: int = 1_000_000
    ) -> str:
        """Until all input is consumed, or a crash at a step of the first epoch; the query's id.
        `rows_max`: of a micro-batch."""
        stream = (
            self.spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", f"{self.name}-in")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", rows_max)
            .load()
            .selectExpr("CAST(value AS STRING) AS id")
        )
        both = ExactlyOnceBatch(
            batch or self.appended,
            self.servers,
            self.table,
            None,
            {},
            new_client=partial(CrashingClient, crash) if crash else EpochClient,
        )
        query = (
            stream.writeStream.foreachBatch(both)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if crash:
            with pytest.raises(StreamingQueryException, match=CRASHED):
                query.awaitTermination()
        else:
            query.awaitTermination()
        return str(query.id)

    def appended(self, rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        self.to_topics(rows, tx)
        tx.delta(rows)

    def merged(self, rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        tx.merge(rows, on="target.id = source.id")
        self.to_topics(rows, tx)

    def to_topics(self, rows: DataFrame, tx: EpochWrites) -> None:
        tens = rows.where("int(id) % 10 = 0")
        tx.topic(rows.selectExpr("id AS key", "id AS value"), f"{self.name}-out")
        tx.topic(tens.selectExpr("id AS value"), f"{self.name}-alerts")

    def check(self, expected: range) -> None:
        """Table and topics have every id once."""
        assert self.in_table() == list(expected)
        assert self.in_topic("out") == list(expected)
        assert self.in_topic("alerts") == list(expected[::10])
        assert self.verified().problems == ()

    def verified(self) -> Verified:
        """What `headwater verify-sink` says."""
        topics, table = [f"{self.name}-out"], UsersTable(self.table, {})
        return verify(self.servers, self.checkpoint, None, table, topics, "id", "value")

    def epochs(self) -> list[int | None]:
        """Those of the table's commits, the oldest first; None: a commit without an epoch."""
        rows = DeltaTable.forPath(self.spark, self.table).history().collect()
        shown = [json.loads(row.userMetadata or "{}").get("headwater", {}) for row in rows]
        return [row.get("epoch") for row in reversed(shown)]

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
    name = re.sub("[^a-z]+", "-", request.node.name).removeprefix("test-").strip("-")
    return Pipeline(spark, shared_cluster.bootstrap, tmp_path, name)


def test_appends_and_two_topics_agree(pipeline: Pipeline) -> None:
    pipeline.produce(0, 50)
    sink = pipeline.run()
    pipeline.check(range(50))
    with EpochClient(pipeline.servers) as client:
        described = client.describe(sink)
    assert described is not None and described.epochs == ()
    assert described.last_epoch == max(e for e in pipeline.epochs() if e is not None)


@pytest.mark.long
def test_a_second_run_goes_on_and_a_lost_row_is_named(pipeline: Pipeline) -> None:
    for start in (0, 50):
        pipeline.produce(start, start + 50)
        pipeline.run()
    pipeline.check(range(100))
    pipeline.spark.sql(f"DELETE FROM delta.`{pipeline.table}` WHERE id = '7'")
    assert pipeline.verified().problems == ("1 keys are in the topics only: 7",)


@pytest.mark.long
def test_a_batch_may_leave_out_the_table_or_the_topics(pipeline: Pipeline) -> None:
    batches: list[BatchFunction] = [
        lambda rows, _epoch, tx: tx.delta(rows),
        lambda rows, _epoch, tx: tx.topic(rows.selectExpr("id AS value"), f"{pipeline.name}-out"),
        lambda _rows, _epoch, _tx: None,
    ]
    for number, batch in enumerate(batches):
        pipeline.produce(number * 10, number * 10 + 10)
        pipeline.run(batch, "before commit")
        pipeline.run(batch)
    assert pipeline.in_table() == list(range(10))
    assert pipeline.in_topic("out") == list(range(10, 20))
    assert pipeline.epochs() == [None, 0, None, 1, None, 2, None]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["append", "merge"])
def test_a_crash_at_each_step(pipeline: Pipeline, kind: str) -> None:
    batch = pipeline.merged if kind == "merge" else pipeline.appended
    steps = ("before prepare", "after prepare", "before commit", "after commit")
    for number, step in enumerate(steps):
        pipeline.produce(number * 20, number * 20 + 20)
        pipeline.run(batch, step)
        pipeline.run(batch)
        pipeline.check(range(number * 20 + 20))
    # Without an epoch: the table's creation, and a fence after each crash of a prepared epoch.
    assert pipeline.epochs() == [None, 0, None, 1, 2, None, 3]


@pytest.mark.long
def test_a_batch_that_raises_writes_nothing(pipeline: Pipeline) -> None:
    def broken(rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        pipeline.appended(rows, _epoch, tx)
        raise ValueError(CRASHED)

    pipeline.produce(0, 20)
    with pytest.raises(StreamingQueryException, match=CRASHED):
        pipeline.run(broken)
    pipeline.run()
    pipeline.check(range(20))


@pytest.mark.long
def test_two_delta_writes_are_refused_and_a_missing_table_is_named(pipeline: Pipeline) -> None:
    def twice(rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        tx.delta(rows)
        tx.delta(rows)

    pipeline.produce(0, 1)
    with pytest.raises(StreamingQueryException, match="a micro-batch has one Delta write"):
        pipeline.run(twice)
    with pytest.raises(StreamingQueryException, match="create the table first"):
        pipeline.run(lambda _rows, _epoch, _tx: None)


@pytest.mark.long
def test_a_failed_table_write_is_aborted_in_the_topics(pipeline: Pipeline) -> None:
    pipeline.produce(0, 20)
    pipeline.run()

    def wrong(rows: DataFrame, _epoch: int, tx: EpochWrites) -> None:
        pipeline.to_topics(rows, tx)
        tx.delta(rows.selectExpr("id", "1 AS unknown_column"))

    pipeline.produce(20, 40)
    with pytest.raises(StreamingQueryException, match=r"unknown_column|METADATA_MISMATCH"):
        pipeline.run(wrong)
    pipeline.run()
    pipeline.check(range(40))


@pytest.mark.long
def test_another_table_than_the_one_that_has_the_epochs_decides_nothing(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """A typing error, or a copy of yesterday: the crash is between the table's commit and ours."""
    real, older = pipeline.table, str(tmp_path / "older")
    pipeline.produce(0, 20)
    pipeline.run()
    shutil.copytree(real, older)
    pipeline.produce(20, 40)
    pipeline.run()
    pipeline.produce(40, 60)
    pipeline.run(crash="before commit")
    for table, words in ((f"{real}s", "is its storage mounted"), (older, "has epochs up to 0")):
        pipeline.table = table
        with pytest.raises(StreamingQueryException, match=words):
            pipeline.run()
    assert not Path(f"{real}s").exists()
    pipeline.table = real
    pipeline.run()
    pipeline.check(range(60))


@pytest.mark.long
def test_a_table_that_is_replaced_in_the_middle_of_a_run_gets_no_rows(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """By an empty one of the same columns, after the run's first micro-batch."""
    kept = str(tmp_path / "kept")

    def replacing(rows: DataFrame, epoch: int, tx: EpochWrites) -> None:
        if epoch == 1:
            shutil.move(pipeline.table, kept)
            empty = pipeline.spark.createDataFrame([], rows.schema)
            empty.write.format("delta").save(pipeline.table)
        pipeline.appended(rows, epoch, tx)

    pipeline.produce(0, 40)
    with pytest.raises(StreamingQueryException, match=r"has no epoch of it.*sinks takeover"):
        pipeline.run(replacing, rows_max=20)
    assert pipeline.in_table() == []
    shutil.rmtree(pipeline.table)
    shutil.move(kept, pipeline.table)
    pipeline.run(rows_max=20)
    pipeline.check(range(40))


@pytest.mark.long
def test_the_last_epoch_is_found_behind_many_commits_of_others(
    pipeline: Pipeline,
) -> None:
    pipeline.produce(0, 20)
    sink = pipeline.run()
    for number in range(3):
        pipeline.spark.sql(f"INSERT INTO delta.`{pipeline.table}` VALUES ('other {number}')")
    shown = [
        DeltaDecisionTable(pipeline.spark, pipeline.table, name, history_step=2).last_epoch()
        for name in (sink, "another")
    ]
    assert shown == [0, -1]
