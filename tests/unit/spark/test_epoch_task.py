"""A task that writes as a participant of an epoch, and its heartbeats."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa
import pytest

from headwater.client.blocking.epoch_client import EpochWriter
from headwater.client.epoch_errors import EpochAbortedError
from headwater.client.errors import kafka_error
from headwater.client.sink_values import SinkDescription
from headwater.config.keys import BROKER_KEYS
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.system import SystemClock
from headwater.wire.epoch_values import EpochStatus
from headwater_spark.sink.epoch_task import EpochTask, EpochTaskResult, write_in_epoch
from headwater_spark.sink.heartbeats import FIRST_INTERVAL_S, Heartbeats
from headwater_spark.sink.sink_options import sink_options
from headwater_spark.sink.write_task import BUFFER_ROWS, write_at_least_once
from unit.spark.sink_doubles import (
    GIVEN,
    PARTITIONS,
    RUN,
    WRITER,
    FakeCluster,
    FakeEpochClient,
    description,
)

TASK = EpochTask(WRITER, task=1, attempt=77)


def rows(*values: bytes, partition: int | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary())}
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(values), pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def write(
    cluster: FakeCluster, batches: Iterator[pa.RecordBatch], task: EpochTask = TASK
) -> EpochTaskResult:
    return write_in_epoch(batches, cluster.options, SystemClock(), task, cluster.connections)


def test_a_task_joins_once_with_the_partitions_of_its_first_rows() -> None:
    cluster = FakeCluster()
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"a", b"b", b"c"]), "partition": pa.array([0, 2, 0], pa.int32())}
    )
    result = write(cluster, iter([batch, batch]))
    assert cluster.coordinator.joins == [(WRITER, 1, 77, {"t": [0, 2]})]
    assert result.participant is not None and result.participant.slot == 1
    assert result.written.partitions == (("t", 0, 4), ("t", 2, 2)) and result.written.rows == 6
    assert pickle.loads(pickle.dumps(result)) == result
    told = result.participant.heartbeat_interval_s
    assert cluster.connections.heartbeat_interval_s == told, "the next task begins with it"


def test_rows_are_written_in_the_participant_s_transaction() -> None:
    cluster = FakeCluster()
    full = rows(*[b"a"] * BUFFER_ROWS, partition=3)
    write(cluster, iter([full, rows(b"c", partition=3)]))
    assert len(cluster.coordinator.joins) == 1
    for topic, partition, header, transactional_id in cluster.leaders.produced:
        assert (topic, partition, transactional_id) == ("t", 3, "__hw.q.1")
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch) == (101, 9)
    headers = [header for _, _, header, _ in cluster.leaders.produced]
    assert headers[0].base_sequence == 0 and headers[-1].base_sequence == BUFFER_ROWS


def test_a_task_without_rows_joins_nothing_and_has_a_result() -> None:
    cluster = FakeCluster()
    result = write(cluster, iter([rows()]))
    assert cluster.coordinator.joins == [] and cluster.leaders.produced == []
    assert result.writer == WRITER and result.participant is None and not result.is_committed
    assert write(cluster, iter([])).written.rows == 0


def test_a_committed_epoch_is_drained_and_not_written() -> None:
    """The input is read to its end: stateful operators commit their state there."""
    cluster = FakeCluster()
    cluster.coordinator.committed = True
    left = iter([rows(*[b"a"] * BUFFER_ROWS), rows(b"b"), rows(b"c")])
    result = write(cluster, left)
    assert next(left, None) is None
    assert result.is_committed and result.participant is None and result.written.rows == 0
    assert cluster.leaders.produced == [] and len(cluster.coordinator.joins) == 1


def test_a_second_write_of_a_batch_in_one_run_is_refused_not_drained() -> None:
    cluster = FakeCluster()
    cluster.coordinator.committed = True
    cluster.coordinator.description = description(run=RUN, ticket=WRITER.ticket - 1, last_epoch=3)
    with pytest.raises(UsageError, match="give each write in foreachBatch a headwater"):
        write(cluster, iter([rows(b"a")]))


@pytest.mark.parametrize(
    "known",
    [
        description(run=UUID(int=8), ticket=4, last_epoch=3),  # the run before committed it
        description(
            run=RUN, ticket=WRITER.ticket, last_epoch=3
        ),  # a late attempt of the same write
    ],
)
def test_a_repeat_of_a_committed_batch_is_drained(known: SinkDescription) -> None:
    cluster = FakeCluster()
    cluster.coordinator.committed = True
    cluster.coordinator.description = known
    assert write(cluster, iter([rows(b"a")])).is_committed


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE],
)
def test_a_participant_that_was_aborted_fails_the_task(code: ErrorCode) -> None:
    cluster = FakeCluster()
    cluster.leaders.error = kafka_error(code, "t-0")
    with pytest.raises(EpochAbortedError, match="epoch 3 of sink q was aborted while task 1"):
        write(cluster, iter([rows(b"a")]))


def test_another_error_of_a_leader_is_raised_as_it_is() -> None:
    cluster = FakeCluster()
    cluster.leaders.error = kafka_error(ErrorCode.MESSAGE_TOO_LARGE, "t-0")
    with pytest.raises(KafkaError) as failure:
        write(cluster, iter([rows(b"a")]))
    assert failure.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_rows_without_key_start_at_another_partition_in_each_task_and_epoch() -> None:
    cluster = FakeCluster()
    for task in range(PARTITIONS):
        write(cluster, iter([rows(b"a")]), EpochTask(WRITER, task, attempt=task))
    assert sorted(partition for _, partition, _, _ in cluster.leaders.produced) == [0, 1, 2, 3]


def test_at_least_once_writes_without_a_transaction() -> None:
    cluster = FakeCluster(sink_options({**GIVEN, "headwater.delivery": "at-least-once"}))
    written = write_at_least_once(
        iter([rows(b"a", b"b", partition=2)]), cluster.options, SystemClock(), cluster.connections
    )
    assert written.partitions == (("t", 2, 2),) and cluster.coordinator.joins == []
    ((_, _, header, transactional_id),) = cluster.leaders.produced
    assert transactional_id is None and not header.is_transactional
    assert (header.producer_id, header.base_sequence) == (55, 0)


def beats_of(client: FakeEpochClient) -> Heartbeats:
    return Heartbeats(WRITER, client.as_client)


def test_a_heartbeat_before_the_join_says_nothing_about_the_task() -> None:
    client = FakeEpochClient(status=EpochStatus.ABORTED)
    beats = beats_of(client)
    beats.beat(client.as_client())
    beats.check()


@pytest.mark.parametrize("status", [s for s in EpochStatus if s not in (0, 7)])
def test_a_heartbeat_that_finds_the_epoch_lost_fails_the_task(status: EpochStatus) -> None:
    client = FakeEpochClient(status=status)
    beats = beats_of(client)
    beats.joined(12.0)
    beats.beat(client.as_client())
    with pytest.raises(EpochAbortedError, match=f"epoch 3 of sink q is {status.name}"):
        beats.check()


def test_an_open_epoch_goes_on() -> None:
    client = FakeEpochClient()
    beats = beats_of(client)
    beats.joined(12.0)
    beats.beat(client.as_client())
    beats.check()


def test_a_heartbeat_that_fails_leaves_the_verdict_to_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FakeEpochClient(error=ConnectionResetError("gone"))
    beats = beats_of(client)
    beats.joined(12.0)
    with caplog.at_level(logging.WARNING):
        beats.beat(client.as_client())
    beats.check()
    assert "heartbeat of sink q failed: gone" in caplog.text


class Listened(FakeEpochClient):
    """Tells when it is used and when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.has_beaten, self.is_closed = threading.Event(), threading.Event()

    def heartbeat(self, writer: EpochWriter) -> EpochStatus:
        self.has_beaten.set()
        return super().heartbeat(writer)

    def close(self) -> None:
        self.is_closed.set()


def test_a_join_ends_the_wait_for_the_first_heartbeat() -> None:
    """The brokers' interval may be shorter than what is left of it."""
    client = Listened()
    with Heartbeats(WRITER, client.as_client, first_interval_s=3_600.0) as beats:
        beats.joined(0.01)
        assert client.has_beaten.wait(60.0)
        beats.joined(3_600.0)
    assert client.is_closed.wait(60.0), "the end of the block ends the wait too"


def test_the_least_timeout_of_brokers_lets_a_task_begin_before_it_has_joined() -> None:
    least_ms = BROKER_KEYS["epoch.timeout.ms"].minimum
    assert least_ms is not None and least_ms >= 3 * FIRST_INTERVAL_S * 1_000
