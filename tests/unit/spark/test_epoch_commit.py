"""Commit and abort of an epoch from the messages of its tasks; the writers that Spark pickles."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headwater.client.blocking.epoch_client import EpochWriter
from headwater.client.epoch_errors import EpochAbortedError
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode, UsageError
from headwater.wire.epoch_values import EpochStatus
from headwater_spark.sink.connections import close_idle, keep_idle, sink_connections
from headwater_spark.sink.epoch_commit import CommitMessagesError, abort_epoch, commit_epoch
from headwater_spark.sink.epoch_task import EpochTaskResult
from headwater_spark.sink.sink_options import sink_options
from headwater_spark.sink.write_task import Written
from headwater_spark.sink.writer import BatchSink, SinkMessage, StreamSink
from unit.spark.sink_doubles import GIVEN, WRITER, FakeCluster, FakeEpochClient, participant

NOTHING = Written(0, ())
SCHEMA = StructType([StructField("value", BinaryType())])


def result(task: int, writer: EpochWriter = WRITER, *, has_rows: bool = True) -> EpochTaskResult:
    return EpochTaskResult(writer, task, NOTHING, participant(task, task) if has_rows else None)


def message(found: EpochTaskResult) -> SinkMessage:
    return SinkMessage(found.written, found)


def test_the_commit_names_the_participants_of_the_tasks_with_rows() -> None:
    client = FakeEpochClient()
    commit_epoch(client.as_client(), [result(0), result(1, has_rows=False), result(2)], batch_id=3)
    assert client.commits == [(WRITER, [participant(0, 0), participant(2, 2)])]


def test_an_epoch_without_rows_is_committed_too() -> None:
    client = FakeEpochClient()
    commit_epoch(client.as_client(), [result(0, has_rows=False)], batch_id=3)
    assert client.commits == [(WRITER, [])]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "0 of 0 tasks"),
        ([result(0), None], "1 of 2 tasks have no commit message"),
        ([result(0), result(1, replace(WRITER, ticket=6))], "name 2 epochs"),
        ([result(0), result(1, replace(WRITER, run=UUID(int=8)))], "name 2 epochs"),
        ([result(0, replace(WRITER, epoch=4))], "wrote epoch 4, Spark commits batch 3"),
        ([result(0), result(0)], "task 0 has more than one"),
    ],
)
def test_messages_that_do_not_agree_commit_nothing(
    results: list[EpochTaskResult | None], words: str
) -> None:
    client = FakeEpochClient()
    with pytest.raises(CommitMessagesError, match=words):
        commit_epoch(client.as_client(), results, batch_id=3)
    assert client.commits == []


def test_a_commit_that_failed_is_raised() -> None:
    client = FakeEpochClient(error=EpochAbortedError("q", 3, "epoch 3: write it again"))
    with pytest.raises(EpochAbortedError):
        commit_epoch(client.as_client(), [result(0)], batch_id=3)


def test_an_abort_without_any_message_leaves_the_epoch_to_its_deadline() -> None:
    client = FakeEpochClient()
    abort_epoch(client.as_client(), [None, None])
    assert client.aborts == []


def test_an_abort_uses_whatever_message_there_is() -> None:
    client = FakeEpochClient(status=EpochStatus.ABORTED)
    abort_epoch(client.as_client(), [None, result(1)])
    assert client.aborts == [WRITER]


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (FakeEpochClient(error=ConnectionResetError("gone")), "abort it at its deadline"),
        (FakeEpochClient(error=kafka_error(ErrorCode.RESOURCE_NOT_FOUND, "q")), "sink q is open"),
        (FakeEpochClient(status=EpochStatus.COMMITTED), "epoch 3 of sink q stays"),
    ],
)
def test_an_abort_never_raises(
    client: FakeEpochClient, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark aborts after a failed commit; an error here would hide that of the commit."""
    with caplog.at_level(logging.INFO):
        abort_epoch(client.as_client(), [result(0)])
    assert client.aborts == [WRITER]
    assert words in caplog.text


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """The idle connections of this process lead to it."""
    found = FakeCluster()
    keep_idle(found.options, found.connections)
    yield found
    close_idle()


def test_a_writer_takes_one_ticket_however_often_it_is_pickled(cluster: FakeCluster) -> None:
    """Spark pickles it twice: in the tasks' function, and by itself."""
    sink = StreamSink.of(GIVEN, SCHEMA, overwrite=False)
    shipped = [pickle.loads(pickle.dumps(sink)) for _ in range(2)]
    assert [s.shipment.ticket for s in shipped] == [1, 1] and cluster.coordinator.tickets == 1
    assert shipped[0].shipment.partition_counts == {"t": 4}
    pickle.dumps(StreamSink.of(GIVEN, SCHEMA, overwrite=False))
    assert cluster.coordinator.tickets == 2, "each micro-batch has a ticket of its own"


def test_the_commit_side_takes_no_ticket(cluster: FakeCluster) -> None:
    sink = StreamSink.of(GIVEN, SCHEMA, overwrite=False)
    sink.commit([message(result(0))], batchId=3)
    sink.abort([message(result(0))], batchId=3)
    assert cluster.coordinator.tickets == 0
    assert cluster.coordinator.commits == [(WRITER, [participant(0, 0)])]
    assert cluster.coordinator.aborts == [WRITER]


def test_a_failed_commit_leaves_the_writer(cluster: FakeCluster) -> None:
    cluster.coordinator.error = EpochAbortedError("q", 3, "epoch 3: write it again")
    with pytest.raises(EpochAbortedError):
        StreamSink.of(GIVEN, SCHEMA, overwrite=False).commit([message(result(0))], batchId=3)


def test_a_batch_write_aborts_its_own_epoch_without_any_message(cluster: FakeCluster) -> None:
    sink = pickle.loads(pickle.dumps(BatchSink.of(GIVEN, SCHEMA, overwrite=False)))
    sink.abort([None, None])
    (aborted,) = cluster.coordinator.aborts
    assert aborted.sink == f"batch-{sink.write_id}" and aborted.ticket == 1


def test_a_topic_that_does_not_exist_is_refused_before_a_ticket_is_taken() -> None:
    given = {**GIVEN, "topic": "lost"}
    found = FakeCluster(sink_options(given))
    keep_idle(found.options, found.connections)
    with pytest.raises(UsageError, match="topic lost does not exist at h:1: create it with"):
        pickle.dumps(StreamSink.of(given, SCHEMA, overwrite=False))
    assert found.coordinator.tickets == 0


def test_at_least_once_needs_no_coordinator() -> None:
    given = {**GIVEN, "headwater.delivery": "at-least-once"}
    found = FakeCluster(sink_options(given))
    keep_idle(found.options, found.connections)
    sink = pickle.loads(pickle.dumps(StreamSink.of(given, SCHEMA, overwrite=False)))
    assert sink.shipment.ticket is None
    sink.commit([SinkMessage(NOTHING)], batchId=0)
    assert found.coordinator.tickets == 0 and found.coordinator.commits == []
    close_idle()


def test_connections_are_kept_for_the_next_task(cluster: FakeCluster) -> None:
    for _ in range(2):
        with sink_connections(cluster.options) as found:
            assert found is cluster.connections
    other = sink_options({**GIVEN, "kafka.client.id": "other"})
    with sink_connections(other) as found:
        assert found is not cluster.connections


def test_connections_that_saw_a_failure_are_closed(cluster: FakeCluster) -> None:
    assert cluster.connections.meta is not None
    with pytest.raises(KeyError), sink_connections(cluster.options):
        raise KeyError("of the task")
    assert cluster.leaders.closed == 1
    with sink_connections(cluster.options) as found:
        assert found is not cluster.connections
