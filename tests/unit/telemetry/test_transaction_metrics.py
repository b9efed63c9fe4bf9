"""What /metrics and the status document say of transactions, and of the readers that they block."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.topic_names import TRANSACTION_TOPIC
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import NO_TIMEOUT_MS, Transaction
from headwater_broker.coordinator.transaction.transaction_counts import TransactionCounts
from headwater_broker.log.results import AppendOrigin
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.status_document import StatusDocument
from headwater_broker.telemetry.transaction_metrics import (
    LATE_AFTER_S,
    LATE_IN_PARTITION_AFTER_MS,
    coordinator_metrics,
    has_late_transaction,
)
from solo_broker import SoloBroker
from unit.api.test_transactions import add, described, end, producer_of
from unit.log.harness import batch
from unit.network.test_data_plane import serve
from unit.telemetry.test_metrics import Values, scrape, values

S = TransactionState
TIMEOUT_MS = 60_000
NOW_MS = 1_700_000_000_000
ONGOING = Transaction(
    transactional_id="t",
    producer_id=1,
    producer_epoch=0,
    state=S.ONGOING,
    timeout_ms=TIMEOUT_MS,
    start_ms=NOW_MS - 5_000,
    last_update_ms=NOW_MS - 5_000,
    partitions={("t", 0): UUID(int=1), ("t", 1): UUID(int=1)},
)
GAUGES = (
    "headwater_late_transactions",
    "headwater_transaction_markers_due",
    "headwater_oldest_transaction_marker_seconds",
)


def measured(*transactions: Transaction) -> Values:
    """Metrics of these transactions, in two shards."""
    shards = [TransactionCounts(), TransactionCounts()]
    for at, transaction in enumerate(transactions):
        named = transaction._replace(transactional_id=f"t{at}")
        shards[at % 2].replace(None, named)
    return values(coordinator_metrics(shards, NOW_MS))


def test_no_transaction_is_no_age() -> None:
    found = measured()
    assert {name: found[name, ()] for name in GAUGES} == dict.fromkeys(GAUGES, 0)
    for two_phase in ("true", "false"):
        assert found["headwater_oldest_open_transaction_seconds", (two_phase,)] == 0
    assert found["headwater_transactional_ids", ("Ongoing",)] == 0


def test_ids_are_counted_by_state_over_all_shards() -> None:
    idle = ONGOING._replace(state=S.COMPLETE_COMMIT)
    found = measured(ONGOING, idle, ONGOING, idle, ONGOING._replace(state=S.EMPTY))
    named = {labels[0]: n for (name, labels), n in found.items() if name.endswith("_ids")}
    assert {state: n for state, n in named.items() if n} == {
        "Ongoing": 2, "CompleteCommit": 2, "Empty": 1,
    }  # fmt: skip
    assert "Dead" not in named


def test_the_oldest_open_transaction_counts_and_a_two_phase_one_apart() -> None:
    older = ONGOING._replace(start_ms=NOW_MS - 30_000)
    prepared = ONGOING._replace(timeout_ms=NO_TIMEOUT_MS, start_ms=NOW_MS - 7_200_000)
    ended = ONGOING._replace(state=S.COMPLETE_ABORT, start_ms=NOW_MS - 90_000)
    found = measured(ONGOING, older, prepared, ended)
    assert found["headwater_oldest_open_transaction_seconds", ("false",)] == 30
    assert found["headwater_oldest_open_transaction_seconds", ("true",)] == 7_200
    assert found["headwater_late_transactions", ()] == 0, "a two-phase commit is never late"


def test_the_abort_of_an_empty_transaction_is_as_old_as_its_decision() -> None:
    """It has no start: its age was that of the epoch, 54 years."""
    empty = replace(ONGOING, state=S.PREPARE_ABORT, start_ms=-1, partitions={})
    found = measured(empty)
    assert found["headwater_oldest_open_transaction_seconds", ("false",)] == 5
    assert found["headwater_late_transactions", ()] == 0


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_transaction_is_late_when_it_outlived_its_timeout(state: TransactionState) -> None:
    at_limit = NOW_MS - TIMEOUT_MS - LATE_AFTER_S * 1000
    for start_ms, late in ((at_limit, 0), (at_limit - 1, 1)):
        found = measured(ONGOING._replace(state=state, start_ms=start_ms))
        assert found["headwater_late_transactions", ()] == late


def test_markers_are_due_once_the_outcome_is_decided() -> None:
    due = ONGOING._replace(state=S.PREPARE_COMMIT, last_update_ms=NOW_MS - 2_000)
    newer = due._replace(
        state=S.PREPARE_ABORT, partitions={("u", 0): UUID(int=2)}, last_update_ms=NOW_MS
    )
    found = measured(ONGOING, due, newer)
    assert found["headwater_transaction_markers_due", ()] == 3
    assert found["headwater_oldest_transaction_marker_seconds", ()] == 2


def begin(broker: SoloBroker, pid: int, index: int = 0, timestamp: int = 0, epoch: int = 3) -> None:
    """One record of a transaction, as its leader appends it."""
    data = batch(
        producer_id=pid, epoch=epoch, sequence=0, transactional=True, timestamp=timestamp or NOW_MS
    )
    partition = broker.replicas.lookup("flights", index)
    partition.append(data, 1, broker.services.clock.now_ms(), AppendOrigin.COORDINATOR)


async def status(broker: SoloBroker) -> Any:
    lag = LagProbe(asyncio.get_running_loop())
    clock = broker.services.clock
    return json.loads(
        await StatusDocument(broker.services, clock, lag, lambda: True, lambda: 7).text()
    )


def test_a_blocked_partition_names_the_producer_that_blocks_it(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("flights", 3)
        found = await scrape(broker)
        assert found["headwater_open_transactions", ()] == 0
        assert (await status(broker))["blocked"] == []
        begin(broker, 11)
        begin(broker, 12)
        begin(broker, 11, index=2)
        found = await scrape(broker)
        assert found["headwater_open_transactions", ()] == 3
        lags = {k[1]: v for k, v in found.items() if k[0] == "headwater_last_stable_offset_lag"}
        assert lags == {("flights", "0"): 2, ("flights", "2"): 1}
        first, second = (await status(broker))["blocked"]
        assert (first["partition"], second["partition"]) == (0, 2)
        assert (first["producer_id"], first["producer_epoch"], first["first_offset"]) == (11, 3, 0)
        assert (first["last_stable_offset"], first["high_watermark"]) == (0, 2)
        assert first["last_timestamp_ms"] == NOW_MS

    serve(tmp_path, story)


def test_a_transaction_without_a_batch_for_long_is_late_in_its_partition(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("flights")
        partition = broker.replicas.lookup("flights", 0)
        assert not has_late_transaction(partition, TIMEOUT_MS, NOW_MS * 2), "none is open"
        begin(broker, 11)
        limit_ms = NOW_MS + TIMEOUT_MS + LATE_IN_PARTITION_AFTER_MS
        assert not has_late_transaction(partition, TIMEOUT_MS, limit_ms)
        assert has_late_transaction(partition, TIMEOUT_MS, limit_ms + 1)
        # The clock of the machine is far behind NOW_MS, or far ahead of it: the oldest decides.
        begin(broker, 12, timestamp=1)
        assert not has_late_transaction(partition, TIMEOUT_MS, limit_ms)

    serve(tmp_path, story)


def test_a_coordinator_names_the_clients_of_open_transactions(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        producer = await producer_of(c)
        assert (await status(broker))["transactions"] == [], "it is Empty"
        await add(c, producer, ("flights", 0), ("flights", 1))
        (row,) = (await status(broker))["transactions"]
        assert (row["transactional_id"], row["state"]) == ("t", "Ongoing")
        assert (row["producer_id"], row["producer_epoch"]) == producer
        assert (row["client_host"], row["principal"]) == ("127.0.0.1", "User:ANONYMOUS")
        assert (row["timeout_ms"], row["markers_due"]) == (60_000, 0)
        found = await scrape(broker)
        assert found["headwater_transactional_ids", ("Ongoing",)] == 1
        assert found["headwater_oldest_open_transaction_seconds", ("false",)] >= 0

    serve(tmp_path, story, transaction_state_log_num_partitions="2")


def test_a_marker_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    """A commit waits for a partition below min.insync.replicas."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        short: Any = {"configs": {"min.insync.replicas": "2"}}
        broker.create_topic("flights", replicas=(1, 2), isr=(1,), **short)
        producer = await producer_of(c)
        await add(c, producer)
        begin(broker, producer[0], epoch=producer[1])
        assert (await end(c, producer)).error_code == ErrorCode.NONE
        while not (errors := (await described(c, "t"))[0].marker_errors):
            await asyncio.sleep(0)
        (row,) = errors
        assert (row.topic, row.partition, row.error_code) == (
            "flights", 0, ErrorCode.NOT_ENOUGH_REPLICAS,
        )  # fmt: skip
        assert row.attempts >= 1 and row.failed_ms > 0 and row.error_message
        found = await scrape(broker)
        assert found["headwater_transaction_markers_due", ()] == 1
        assert found["headwater_transaction_marker_failures_total", ()] >= 1
        assert found["headwater_transaction_markers_written_total", ()] == 0
        (owner,) = (await status(broker))["transactions"]
        assert (owner["producer_id"], owner["state"]) == (producer[0], "PrepareCommit")
        assert owner["markers_due"] == 1

    serve(tmp_path, story, transaction_state_log_num_partitions="2")
