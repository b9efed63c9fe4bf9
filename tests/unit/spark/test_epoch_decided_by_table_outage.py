"""An epoch that its table has decided, while the brokers cannot be reached: real coordinator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import pytest

from headwater.client.blocking.epoch_client import EpochClient, EpochWriter, Participant
from headwater.testing.clocks import ManualClock
from headwater.wire.epoch_values import EpochState
from headwater_spark.sink.epoch_decided_by_table import DecidedEpoch, PendingCommitError, TopicRows
from unit.client.served_broker import ServedBroker
from unit.client.sink_broker import client, served, written
from unit.spark.decided_epochs import FakeTable

__all__ = ["client", "served"]

SINK, QUERY = "alerts", "query"
LIMIT_S = 5.0


class CutOffClient(EpochClient):
    """Loses the brokers just before it commits; its pauses pass at once."""

    def __init__(self, served: ServedBroker) -> None:
        self.clock = ManualClock()
        super().__init__(
            served.bootstrap, retry_timeout_s=LIMIT_S, clock=self.clock, sleep=self._pause
        )
        self._served = served

    def _pause(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000) + 1)

    def commit(
        self, writer: EpochWriter, participants: Sequence[Participant], *, is_prepared: bool = False
    ) -> bool:
        self._served.close_port()
        return super().commit(writer, participants, is_prepared=is_prepared)


def attempt(calls: EpochClient, table: FakeTable, served: ServedBroker, run: int) -> bool:
    """One attempt at epoch 0; whether it wrote anything."""
    one = DecidedEpoch(calls, table, EpochWriter(SINK, QUERY, UUID(int=run), 0, 0))
    if one.settle_earlier():
        return False
    one.run(
        lambda writer: TopicRows(tuple(written(served, calls, writer)), is_committed=False),
        table.write,
    )
    return True


def test_the_query_ends_in_time_and_its_next_run_commits(
    served: ServedBroker, client: EpochClient
) -> None:
    table = FakeTable()
    address = re.escape(served.bootstrap)
    with CutOffClient(served) as cut_off:
        said = rf"epoch 0 of sink 'alerts' is decided.*5 s: .*{address}.*start the query again"
        with pytest.raises(PendingCommitError, match=said):
            attempt(cut_off, table, served, 1)
    assert [epoch for epoch, _ in table.rows] == [0]
    served.open_port()
    held = client.describe(SINK)
    assert held is not None and [e.state for e in held.epochs] == [EpochState.PREPARED.label]
    assert attempt(client, table, served, 2) is False
    settled = client.describe(SINK)
    assert settled is not None and settled.last_epoch == 0
    assert [epoch for epoch, _ in table.rows] == [0]
