"""The sink and epoch that a task writes, from the local properties of its job."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from headwater.errors import UsageError
from headwater.wire.epoch_values import SinkKind
from headwater_spark.sink.epoch_identity import TaskIdentity, batch_epoch, query_epoch

RUN = UUID(int=7)
TASK = TaskIdentity(task=2, attempt=40, query_id="q-1", run_id=str(RUN), batch_id="12")
WRITE_ID = UUID(int=8)


def test_a_micro_batch_is_an_epoch_of_its_query() -> None:
    writer = query_epoch(TASK, None, ticket=5)
    assert (writer.sink, writer.owner, writer.run) == ("q-1", "q-1", RUN)
    assert (writer.ticket, writer.epoch, writer.kind) == (5, 12, SinkKind.QUERY)


def test_an_explicit_sink_id_keeps_the_query_as_its_owner() -> None:
    writer = query_epoch(TASK, "alerts", ticket=5)
    assert (writer.sink, writer.owner) == ("alerts", "q-1")


@pytest.mark.parametrize(
    ("lost", "name"),
    [
        ({"query_id": None}, "sql.streaming.queryId"),
        ({"run_id": None}, "spark.jobGroup.id"),
        ({"batch_id": None}, "streaming.sql.batchId"),
    ],
)
def test_a_stream_without_spark_s_properties_is_refused_with_the_remedy(
    lost: dict[str, None], name: str
) -> None:
    task = replace(TASK, **lost)
    with pytest.raises(UsageError, match="to at-least-once") as refusal:
        query_epoch(task, None, ticket=5)
    assert name in str(refusal.value)


def test_a_job_group_of_the_user_in_foreach_batch_is_refused() -> None:
    with pytest.raises(UsageError, match="set no job group inside foreachBatch"):
        query_epoch(replace(TASK, run_id="my group"), "alerts", ticket=5)


def test_a_batch_write_is_the_only_epoch_of_its_own_sink() -> None:
    writer = batch_epoch(WRITE_ID, TASK, None, ticket=5)
    assert writer.kind == SinkKind.BATCH and writer.epoch == 0 and writer.run == WRITE_ID
    assert writer.sink == f"batch-{WRITE_ID}"
    assert batch_epoch(UUID(int=9), TASK, None, ticket=6).sink != writer.sink


def test_a_batch_write_with_a_sink_id_is_an_epoch_of_the_query_around_it() -> None:
    assert batch_epoch(WRITE_ID, TASK, "alerts", ticket=5) == query_epoch(TASK, "alerts", ticket=5)


def test_a_sink_id_outside_of_a_query_is_refused() -> None:
    with pytest.raises(UsageError, match="outside of one: leave it out"):
        batch_epoch(WRITE_ID, TaskIdentity(0, 1), "alerts", ticket=5)
