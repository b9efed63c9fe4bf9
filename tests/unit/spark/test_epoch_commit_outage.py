"""The commit of a query's epoch that nobody answers: real coordinator, and the query's next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headwater.client.blocking.epoch_client import (
    EpochClient,
    EpochOutcomeUnknownError,
    WriteOutcomeUnknownError,
)
from headwater.client.epoch_errors import SinkFencedError
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater.wire.epoch_values import EpochStatus
from headwater_spark.sink.epoch_commit import abort_epoch, commit_epoch
from headwater_spark.sink.epoch_identity import single_epoch
from headwater_spark.sink.epoch_task import EpochTaskResult
from headwater_spark.sink.write_task import Written
from unit.client.served_broker import ServedBroker
from unit.client.sink_broker import client, served, writer_of, written

__all__ = ["client", "served"]

LIMIT_S = 5.0


def impatient(served: ServedBroker) -> EpochClient:
    """Its pauses pass at once."""
    clock = ManualClock()
    return EpochClient(
        served.bootstrap,
        retry_timeout_s=LIMIT_S,
        clock=clock,
        sleep=lambda seconds: clock.advance(int(seconds * 1000) + 1),
    )


@pytest.mark.parametrize("is_served", [True, False])
def test_the_query_ends_in_time_and_its_next_run_learns_the_outcome(
    served: ServedBroker, client: EpochClient, monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    sinks = served.broker.services.sinks
    commit = sinks.commit_epoch

    async def unanswered(*arguments: Any, **options: Any) -> Any:
        if is_served:
            await commit(*arguments, **options)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the reply is lost")

    first = writer_of(client, 0)
    results = [
        EpochTaskResult(first, participant.task, Written(1, ()), participant)
        for participant in written(served, client, first)
    ]
    monkeypatch.setattr(sinks, "commit_epoch", unanswered)
    with impatient(served) as ended:
        with pytest.raises(EpochOutcomeUnknownError, match=r"5 s.*the reply is lost"):
            commit_epoch(ended, results, batch_id=0)
        abort_epoch(ended, results)  # as Spark does after a commit that failed
    monkeypatch.undo()

    second = replace(first, run=UUID(int=0xB), ticket=client.allocate_ticket())
    joined = client.join(second, task=0, attempt=7)
    assert (joined is None) is is_served
    if joined is not None:
        with pytest.raises(SinkFencedError):
            client.commit(first, [r.participant for r in results if r.participant is not None])
        assert client.abort(second) == EpochStatus.ABORTED


def test_a_batch_write_whose_outcome_is_forgotten_meanwhile_is_not_called_aborted(
    served: ServedBroker, client: EpochClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed, its reply is lost, and no coordinator knows it when its driver is back."""
    sinks = served.broker.services.sinks
    commit = sinks.commit_epoch

    async def forgotten(of: Any, *arguments: Any, **options: Any) -> Any:
        await commit(of, *arguments, **options)
        await sinks.delete(of.sink)
        monkeypatch.undo()
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the reply is lost")

    writer = single_epoch(UUID(int=0xC), client.allocate_ticket())
    results = [
        EpochTaskResult(writer, participant.task, Written(1, ()), participant)
        for participant in written(served, client, writer)
    ]
    monkeypatch.setattr(sinks, "commit_epoch", forgotten)
    with impatient(served) as driver:
        with pytest.raises(WriteOutcomeUnknownError, match=r"could double them.*is not known"):
            commit_epoch(driver, results)
        abort_epoch(driver, results, writer)  # as Spark does after a commit that failed
    assert client.describe(writer.sink) is None, "it would be shown as never committed"
