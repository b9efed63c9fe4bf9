"""The topic writes of a micro-batch, and functions that share a sink by mistake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from pyspark.sql import DataFrame

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter
from headwater.client.epoch_errors import EpochAbortedError
from headwater.client.errors import KafkaTimeoutError
from headwater.errors import UsageError
from headwater_spark.sink.commit_metadata import CommitMetadata, last_epoch
from headwater_spark.sink.connections import ABORT_TIMEOUT_S
from headwater_spark.sink.delta_decision import Append, DeltaDecisionTable
from headwater_spark.sink.epoch_decided_by_table import DisagreementError, TableCommit
from headwater_spark.sink.epoch_identity import BATCH_ID, QUERY_ID, RUN_ID
from headwater_spark.sink.epoch_write import EpochWrite
from headwater_spark.sink.exactly_once import EpochWrites, ExactlyOnceBatch
from headwater_spark.sink.repeated_batches import FinishedBatches
from headwater_spark.sink.topic_writes import write_topics
from unit.spark.sink_doubles import WRITER, FakeEpochClient, description, participant

ROWS = cast(DataFrame, object())
TWO = [(ROWS, {"topic": "a"}), (ROWS, {"topic": "b"})]


def no_client() -> EpochClient:
    raise AssertionError("no heartbeat is due")


class FakeBeats:
    """Heartbeats that log their calls; `check` raises `lost` once the epoch has a participant."""

    def __init__(self, log: list[str], lost: Exception | None = None) -> None:
        self._log, self._lost, self._is_joined = log, lost, False

    def __enter__(self) -> FakeBeats:
        self._log.append("begin")
        return self

    def __exit__(self, *_: object) -> None:
        self._log.append("end")

    def joined(self, interval_s: float) -> None:
        self._log.append(f"joined {interval_s}")
        self._is_joined = True

    def check(self) -> None:
        if self._lost is not None and self._is_joined:
            raise self._lost


class Writes:
    """Writes one task with rows for each DataFrame."""

    def __init__(self, log: list[str], *, is_committed: bool = False) -> None:
        self._log, self._is_committed = log, is_committed

    def __call__(
        self, _rows: DataFrame, _writer: EpochWriter, options: dict[str, str], *, first_task: int
    ) -> EpochWrite:
        self._log.append(f"write {options['topic']} from task {first_task}")
        found = () if self._is_committed else (participant(first_task, first_task),)
        return EpochWrite(found, self._is_committed, first_task + 1, 1)


def test_heartbeats_go_on_between_the_writes_of_an_epoch() -> None:
    """The second job may compute for longer than epoch.timeout.ms before its sink's first task."""
    log: list[str] = []
    beats = FakeBeats(log)
    found = write_topics(
        WRITER, TWO, no_client, write=Writes(log), new_beats=lambda _writer, _connect: beats
    )
    assert log == [
        "begin", "write a from task 0", "joined 12.0", "write b from task 1", "joined 12.0", "end",
    ]  # fmt: skip
    assert [p.task for p in found.participants] == [0, 1]


def test_an_epoch_that_is_lost_between_two_writes_is_not_written_further() -> None:
    log: list[str] = []
    beats = FakeBeats(log, EpochAbortedError("q", 3, "write it again"))
    with pytest.raises(EpochAbortedError):
        write_topics(WRITER, TWO, no_client, write=Writes(log), new_beats=lambda _w, _c: beats)
    assert log == ["begin", "write a from task 0", "joined 12.0", "end"]


def test_a_committed_epoch_is_not_written_further() -> None:
    log: list[str] = []
    found = write_topics(
        WRITER, TWO, no_client, write=Writes(log, is_committed=True),
        new_beats=lambda _w, _c: FakeBeats(log),
    )  # fmt: skip
    assert found.is_committed
    assert log == ["begin", "write a from task 0", "end"]


def micro_batch(run: UUID, epoch: int) -> DataFrame:
    """A micro-batch of query q."""
    properties = {QUERY_ID: "q", RUN_ID: str(run), BATCH_ID: str(epoch)}
    session = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=properties.get))
    return cast(DataFrame, SimpleNamespace(sparkSession=session))


class TableWith:
    """A table whose history shows an epoch."""

    def __init__(self, last_epoch: int) -> None:
        self._last_epoch = last_epoch

    def exists(self) -> bool:
        return True

    def last_epoch(self) -> int:
        return self._last_epoch


def test_two_functions_of_a_micro_batch_must_not_share_a_sink() -> None:
    """The second one would find the epoch written, and its rows would be lost, in every run."""
    earlier, run, finished = UUID(int=1), UUID(int=2), FinishedBatches()
    table = TableWith(3)

    def function() -> ExactlyOnceBatch:
        new_table = cast(Any, lambda *_: table)
        return ExactlyOnceBatch(
            _must_not_run, "h:1", "silver", None, {}, _Client, finished, new_table
        )

    _Client.known = description(run=earlier, ticket=5, last_epoch=3)
    first, second = function(), function()
    first(micro_batch(run, 3), 3)  # an earlier run has written it
    with pytest.raises(UsageError, match=r"epoch 3 of sink 'q' .* sink_id of its own"):
        second(micro_batch(run, 3), 3)
    _Client.known = description(run=run, ticket=6, last_epoch=4)
    table = TableWith(4)
    function()(micro_batch(run, 4), 4)
    function()(micro_batch(UUID(int=9), 4), 4)  # the next run repeats it


def test_rows_are_not_appended_to_a_new_table_when_theirs_has_gone() -> None:
    """While the topics were written."""
    is_there = iter([True, False, False])
    catalog = SimpleNamespace(tableExists=lambda _name: next(is_there))
    session = cast(Any, SimpleNamespace(catalog=catalog))
    table = DeltaDecisionTable(session, "silver", "q")
    assert table.exists()
    said = "silver of sink 'q' was there when this micro-batch began"
    with pytest.raises(DisagreementError, match=said):
        table.has(TableCommit(1, "epoch 2"))
    with pytest.raises(DisagreementError, match=said):
        table.write(Append(cast(Any, None), (), {}), WRITER)


class _Client(FakeEpochClient):
    """An EpochClient that knows one sink."""

    known: Any = None

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(description=_Client.known)

    def __enter__(self) -> EpochClient:
        return self.as_client()

    def __exit__(self, *_: object) -> None:
        self.close()


def _must_not_run(_rows: DataFrame, _epoch: int, _writes: EpochWrites) -> None:
    raise AssertionError("the epoch is written already")


class _Gone(FakeEpochClient):
    """A client whose brokers go before PrepareEpoch."""

    limits: list[tuple[float, float]]
    """(of a request, of all its repetitions) of each client, in seconds."""

    def __init__(
        self, *_: object, request_timeout_s: float, retry_timeout_s: float, **__: object
    ) -> None:
        super().__init__(error=KafkaTimeoutError("no broker answers"))
        _Gone.limits.append((request_timeout_s, retry_timeout_s))

    def __enter__(self) -> EpochClient:
        return self.as_client()

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, _writer: EpochWriter, _participants: object) -> None:
        raise KafkaTimeoutError("PrepareEpoch did not succeed")


def test_brokers_that_go_before_the_prepare_are_not_waited_for_twice() -> None:
    """The abort that follows has a short time limit of its own."""
    _Gone.limits = []
    options = {"headwater.retry.timeout.ms": "60000", "kafka.request.timeout.ms": "30000"}
    function = ExactlyOnceBatch(
        _nothing, "h:1", "silver", None, options, _Gone, FinishedBatches(),
        cast(Any, lambda *_: TableWith(-1)),
    )  # fmt: skip
    with pytest.raises(KafkaTimeoutError, match="PrepareEpoch"):
        function(micro_batch(UUID(int=1), 0), 0)
    assert _Gone.limits == [(30.0, 60.0), (ABORT_TIMEOUT_S, ABORT_TIMEOUT_S)]


def _nothing(_rows: DataFrame, _epoch: int, _writes: EpochWrites) -> None:
    """Writes nothing."""


def test_the_last_epoch_in_the_table_is_that_of_the_newest_commit() -> None:
    def commit(epoch: int | None, ticket: int) -> CommitMetadata:
        return CommitMetadata("q", epoch, ticket)

    taken_over = [commit(None, 50), commit(44, 49), commit(43, 48), commit(45, 12)]
    assert last_epoch(taken_over) == 44
    assert last_epoch([commit(None, 1)]) is None
