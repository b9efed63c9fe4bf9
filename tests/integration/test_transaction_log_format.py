"""Kafka's own tool reads `__transaction_state` as the coordinator writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.records.builder import BatchBuilder
from headwater_broker.coordinator.transaction.records import transaction_record
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Transaction
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


def _payload(line: str) -> Any:
    text = line.split("payload: ", 1)[1]
    return json.loads(text)["data"]
