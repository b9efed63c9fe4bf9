"""Kafka's own tool reads `__transaction_state` as the coordinator writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.records.builder import BatchBuilder
from headwater.wire.epoch_values import EpochState, SinkKind
from headwater_broker.coordinator.transaction.epoch_records import (
    decision_record,
    decision_tombstone,
    sink_record,
    sink_tombstone,
    tickets_record,
)
from headwater_broker.coordinator.transaction.epoch_values import EpochDecision, EpochKey, Sink
from headwater_broker.coordinator.transaction.records import transaction_record
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Membership, Transaction
from integration.jvm_tools import kafka_tool

pytestmark = pytest.mark.integration


def test_dump_log_segments_decodes_transactions(tmp_path: Path) -> None:
    builder = BatchBuilder()
    for state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.DEAD):
        record = transaction_record(
            Transaction(
                transactional_id=f"job-{state.label}",
                producer_id=7,
                producer_epoch=5,
                state=state,
                timeout_ms=60_000,
                previous_producer_id=3,
                next_producer_id=9,
                last_producer_epoch=4,
                client_version=2,
                start_ms=1_000,
                last_update_ms=2_000,
                partitions={("flights", 1): UUID(int=1), ("weather", 0): UUID(int=2)},
            )
        )
        builder.append(2_000, record.key, record.value)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(builder.build())
    shown = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(log)
    )
    ongoing, prepared, expired = (line for line in shown.splitlines() if "job-" in line)
    stored = _payload(ongoing)
    assert stored["producerId"] == 7 and stored["producerEpoch"] == 5
    assert stored["previousProducerId"] == 3 and stored["nextProducerId"] == 9
    assert stored["transactionStatus"] == 1 and stored["clientTransactionVersion"] == 2
    assert [(t["topic"], t["partitionIds"]) for t in stored["transactionPartitions"]] == [
        ("flights", [1]),
        ("weather", [0]),
    ]
    assert _payload(prepared)["transactionStatus"] == 2
    assert expired.endswith("payload: <DELETE>")


def test_dump_log_segments_skips_the_kinds_of_epoch_transactions(tmp_path: Path) -> None:
    """Participants are ordinary rows; Headwater's own kinds of keys do not stop the tool."""
    participant = Transaction(
        transactional_id="__hw.alerts.0",
        producer_id=7,
        producer_epoch=5,
        state=TransactionState.ONGOING,
        timeout_ms=3_600_000,
        start_ms=1_000,
        last_update_ms=2_000,
        partitions={("flights", 1): UUID(int=1)},
        membership=Membership(epoch=3, ticket=17, task=0, attempt=4),
    )
    sink = Sink("alerts", "query", SinkKind.QUERY, UUID(int=1), 17, retired=(UUID(int=2),))
    key = EpochKey(3, 17)
    decision = EpochDecision(EpochState.COMMITTING, UUID(int=1), {0: 5}, 1_000, 2_000)
    builder = BatchBuilder()
    for record in (
        tickets_record(1_000),
        sink_record(sink),
        transaction_record(participant),
        decision_record("alerts", key, decision),
        sink_record(sink._replace(last_epoch=3)),
        transaction_record(participant._replace(state=TransactionState.COMPLETE_COMMIT)),
        decision_tombstone("alerts", key),
        sink_tombstone("alerts"),
    ):
        builder.append(2_000, record.key, record.value)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(builder.build())
    shown = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(log)
    )
    rows = [_payload(line) for line in shown.splitlines() if "__hw.alerts.0" in line]
    assert [row["transactionStatus"] for row in rows] == [1, 4]
    assert rows[0]["transactionTimeoutMs"] == 3_600_000
    assert sum("offset:" in line for line in shown.splitlines()) >= 8, shown


def _payload(line: str) -> Any:
    text = line.split("payload: ", 1)[1]
    return json.loads(text)["data"]
