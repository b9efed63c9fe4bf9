"""`Admin`'s calls about sinks and `EpochClient`, against one broker of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater import Admin, KafkaError
from headwater.client.blocking.epoch_client import (
    EpochClient,
    EpochPreparedError,
    SinkFencedError,
    SinkOwnedError,
)
from headwater.client.blocking.record_client import LATEST, READ_COMMITTED, RecordClient
from headwater.errors import ErrorCode
from headwater.wire.epoch_values import EpochStatus
from unit.client.served_broker import ServedBroker, wait_until
from unit.client.sink_broker import RUN, TOPIC, client, served, writer_of, written

__all__ = ["client", "served"]


@pytest.fixture
def admin(served: ServedBroker) -> Iterator[Admin]:
    with Admin(served.bootstrap) as found:
        yield found


def stable_offset(served: ServedBroker) -> int:
    with RecordClient(served.bootstrap) as records:
        found = records.list_offsets({(TOPIC, 0): LATEST}, READ_COMMITTED)
    return found[TOPIC, 0].offset


def test_an_epoch_of_two_tasks_is_committed_and_described(
    served: ServedBroker, client: EpochClient, admin: Admin
) -> None:
    writer = writer_of(client, 0)
    assert client.describe("alerts") is None
    participants = written(served, client, writer)
    assert stable_offset(served) == 0
    (sink,) = admin.list_sinks()
    assert (sink.sink, sink.owner, sink.kind, sink.run) == ("alerts", "query", "query", RUN)
    assert (sink.last_epoch, sink.coordinator) == (None, 1)
    (epoch,) = sink.epochs
    assert (epoch.epoch, epoch.state, epoch.ticket) == (0, "Open", writer.ticket)
    assert epoch.deadline_ms is not None and epoch.deadline_ms > epoch.start_ms
    assert [(p.task, p.partitions) for p in epoch.participants] == [
        (0, ((TOPIC, 0),)), (1, ((TOPIC, 1),)),
    ]  # fmt: skip
    assert client.heartbeat(writer) == EpochStatus.OPEN
    assert client.commit(writer, participants)
    assert stable_offset(served) == 2
    assert client.commit(writer, participants), "once more"
    assert client.join(writer, task=0, attempt=9) is None
    assert client.abort(writer) == EpochStatus.COMMITTED
    assert admin.describe_sinks(["alerts"])["alerts"].last_epoch == 0


def test_a_newer_run_fences_the_older(served: ServedBroker, client: EpochClient) -> None:
    old, new = writer_of(client, 0), writer_of(client, 0)
    participants = written(served, client, old)
    assert client.join(new, task=0, attempt=5) is not None
    with pytest.raises(SinkFencedError):
        client.commit(old, participants)
    assert client.heartbeat(old) == EpochStatus.FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_an_operator_decides_a_prepared_epoch(
    served: ServedBroker, client: EpochClient, admin: Admin, commit: bool
) -> None:
    writer = writer_of(client, 0)
    client.prepare(writer, written(served, client, writer))
    with pytest.raises(EpochPreparedError, match="headwater sinks commit alerts N"):
        client.join(writer_of(client, 1), task=0, attempt=1)
    for take in (admin.take_over_sink, lambda s, owner: admin.delete_sinks([s])):
        with pytest.raises(KafkaError, match="headwater sinks commit") as refused:
            take("alerts", owner="other")
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    end = admin.commit_prepared_epoch if commit else admin.abort_prepared_epoch
    with pytest.raises(KafkaError, match="epoch 7 of sink alerts is not prepared"):
        end("alerts", 7)
    end("alerts", 0)
    wait_until(lambda: not admin.describe_sinks(["alerts"])["alerts"].epochs)
    assert admin.describe_sinks(["alerts"])["alerts"].last_epoch == (0 if commit else None)
    if commit:
        end("alerts", 0)  # once more
    assert stable_offset(served) == 2
    admin.delete_sinks(["alerts"])
    assert admin.list_sinks() == []
    with pytest.raises(KafkaError, match="alerts") as gone:
        admin.describe_sinks(["alerts"])
    assert gone.value.code is ErrorCode.RESOURCE_NOT_FOUND


def test_a_takeover_changes_owner_and_last_epoch(
    served: ServedBroker, client: EpochClient, admin: Admin
) -> None:
    writer = writer_of(client, 4)
    assert client.commit(writer, written(served, client, writer))
    copied = writer_of(client, 5)
    foreign = type(copied)("alerts", "other", copied.run, copied.ticket, 5)
    with pytest.raises(SinkOwnedError, match="takeover alerts --owner other --last-epoch 4"):
        client.join(foreign, task=0, attempt=0)
    before = admin.take_over_sink("alerts", last_epoch=2)
    assert (before.previous_owner, before.previous_last_epoch) == ("query", 4)
    sink = admin.describe_sinks(["alerts"])["alerts"]
    assert (sink.owner, sink.last_epoch) == ("query", 2)
    admin.take_over_sink("alerts", owner="other")
    newest = client.allocate_ticket()
    foreign = type(copied)("alerts", "other", RUN, newest, 3)
    with pytest.raises(SinkFencedError):
        client.join(foreign, task=0, attempt=0)  # the run that a takeover has retired
