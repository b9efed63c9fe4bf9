"""What holds a partition's last stable offset: leader's and coordinator's answers, joined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater import TopicPartition
from headwater.client.admin.open_transactions import (
    OpenTransaction,
    ReadableEnds,
    blocker,
    first_open,
    times_out_in_ms,
)
from headwater.client.admin.transactions import NO_TIMEOUT_MS, TransactionFilter, described
from headwater.client.transaction_values import MarkerFailure
from headwater.client.values import ProducerDescription
from headwater.errors import KafkaError
from headwater.wire.apis.k65_describe_transactions import TopicData
from headwater.wire.described_transactions import DescribedTransaction, MarkerError

NOW_MS = 1_700_000_000_000
HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
ENDS = ReadableEnds(5, 40)
ROW = DescribedTransaction(
    transactional_id="pay",
    transaction_state="Ongoing",
    transaction_timeout_ms=60_000,
    transaction_start_time_ms=NOW_MS - 20_000,
    producer_id=7,
    producer_epoch=3,
    topics=(TopicData(topic="t", partitions=(0,)),),
    principal="User:app",
    client_id="app-1",
    client_host="10.0.0.9",
    last_update_ms=NOW_MS - 10_000,
    marker_errors=(
        MarkerError(topic="t", partition=1, error_code=6, attempts=1),
        MarkerError(
            topic="t", partition=0, error_code=19, error_message="1 of 2", failed_ms=9, attempts=4
        ),
    ),
)
PAY = described(ROW, 2)


def opened(tp: TopicPartition, first_offset: int, producer_id: int = 7) -> OpenTransaction:
    producer = ProducerDescription(producer_id, 3, 0, NOW_MS - 1_000, -1, first_offset)
    return OpenTransaction(tp, producer, first_offset)


def test_of_each_partition_the_transaction_that_began_first_holds_it() -> None:
    rows = [opened(THERE, 9), opened(HERE, 8, 1), opened(HERE, 5, 2), opened(HERE, 30, 3)]
    found = [(row.partition, row.first_offset) for row in first_open(rows)]
    assert found == [(HERE, 5), (THERE, 9)]


def test_a_blocker_names_transaction_client_and_what_fails() -> None:
    found = blocker(opened(HERE, 5), PAY, ENDS, NOW_MS)
    assert (found.transactional_id, found.state, found.coordinator) == ("pay", "Ongoing", 2)
    assert (found.age_ms, found.times_out_in_ms, found.is_hanging) == (20_000, 40_000, False)
    assert (found.principal, found.client_id, found.client_host) == (
        "User:app", "app-1", "10.0.0.9",
    )  # fmt: skip
    assert (found.last_stable_offset, found.high_watermark, found.first_offset) == (5, 40, 5)
    assert found.marker_failure == MarkerFailure(HERE, "NOT_ENOUGH_REPLICAS", "1 of 2", 9, 4)


def test_a_partition_outside_of_the_open_transaction_hangs() -> None:
    """The coordinator has ended the transaction that this partition still has open (KIP-664)."""
    found = blocker(opened(THERE, 5), PAY, ENDS, NOW_MS)
    assert found.is_hanging and found.transactional_id == "pay"
    assert found.age_ms == 1_000, "since the last batch: the other transaction is not this one"
    assert found.times_out_in_ms is None


def test_a_producer_id_without_transactional_id_hangs() -> None:
    found = blocker(opened(HERE, 5), None, ENDS, NOW_MS)
    assert found.is_hanging and found.age_ms == 1_000
    named = (found.transactional_id, found.state, found.coordinator, found.timeout_ms)
    assert named == (None,) * 4 and found.marker_failure is None


@pytest.mark.parametrize(
    ("changes", "left_ms"),
    [
        ({}, 40_000),
        ({"transaction_timeout_ms": 5_000}, -15_000),
        ({"transaction_timeout_ms": NO_TIMEOUT_MS}, None),
        ({"transaction_state": "PrepareCommit"}, None),
        ({"transaction_state": "Empty", "transaction_start_time_ms": -1}, None),
    ],
)
def test_only_an_undecided_transaction_times_out(
    changes: dict[str, Any], left_ms: int | None
) -> None:
    assert times_out_in_ms(described(replace(ROW, **changes), 2), NOW_MS) == left_ms


def test_brokers_of_kafka_do_not_name_the_client() -> None:
    plain = DescribedTransaction(
        transactional_id="pay", transaction_state="Empty", transaction_start_time_ms=-1
    )
    found = described(plain, 1)
    assert (found.start_ms, found.last_update_ms, found.partitions) == (None, None, ())
    assert (found.principal, found.client_id, found.client_host) == (None,) * 3
    with pytest.raises(KafkaError, match="'gone'"):
        described(DescribedTransaction(error_code=105, transactional_id="gone"), 1)


def test_the_filter_asks_for_the_version_that_has_it() -> None:
    assert TransactionFilter().version == 0
    assert TransactionFilter(older_than_ms=5).version == 1
    assert TransactionFilter(older_than_ms=5, transactional_id_pattern="a.*").version == 2
    aged = TransactionFilter(older_than_ms=5).request()
    assert aged.state_filters == ("Ongoing", "PrepareCommit", "PrepareAbort")
    both = TransactionFilter(states=["Empty"], older_than_ms=5).request()
    assert (both.state_filters, both.duration_filter) == (("Empty",), 5)
    assert TransactionFilter(producer_ids=[7]).request().duration_filter == -1


def test_a_participant_of_an_epoch_has_no_timeout_of_its_own() -> None:
    found = replace(ROW, transactional_id="__hw.alerts.3")
    assert times_out_in_ms(described(found, 2), NOW_MS + 10**9) is None
