"""Our own tagged fields of DescribeTransactions: Kafka's clients skip them."""

from __future__ import annotations

from headwater.wire.apis.k65_describe_transactions import DescribeTransactionsResponse, TopicData
from headwater.wire.apis.k65_describe_transactions import TransactionState as PlainState
from headwater.wire.described_transactions import (
    DescribedTransaction,
    DescribedTransactionsResponse,
    MarkerError,
)
from headwater.wire.schema import decode, encode

TOPICS = (TopicData(topic="t", partitions=(0, 2)),)
STATE = DescribedTransaction(
    transactional_id="pay",
    transaction_state="PrepareCommit",
    transaction_timeout_ms=60_000,
    transaction_start_time_ms=5,
    producer_id=7,
    producer_epoch=3,
    topics=TOPICS,
    principal="User:app",
    client_id="app-1",
    client_host="10.0.0.9",
    last_update_ms=9,
    marker_errors=(MarkerError(topic="t", partition=2, error_code=19, failed_ms=11, attempts=4),),
)
PLAIN = PlainState(
    transactional_id="pay",
    transaction_state="PrepareCommit",
    transaction_timeout_ms=60_000,
    transaction_start_time_ms=5,
    producer_id=7,
    producer_epoch=3,
    topics=TOPICS,
)


def test_kafka_clients_skip_our_fields() -> None:
    ours = encode(DescribedTransactionsResponse(transaction_states=(STATE,)), 0)
    assert decode(DescribeTransactionsResponse, 0, ours).transaction_states == (PLAIN,)


def test_a_response_of_kafka_has_none_of_them() -> None:
    theirs = encode(DescribeTransactionsResponse(transaction_states=(PLAIN,)), 0)
    (found,) = decode(DescribedTransactionsResponse, 0, theirs).transaction_states
    assert (found.transactional_id, found.producer_id, found.topics) == ("pay", 7, TOPICS)
    assert (found.principal, found.client_id, found.client_host) == ("", "", "")
    assert (found.last_update_ms, found.marker_errors) == (-1, ())


def test_our_own_client_reads_them() -> None:
    ours = encode(DescribedTransactionsResponse(transaction_states=(STATE,)), 0)
    assert decode(DescribedTransactionsResponse, 0, ours).transaction_states == (STATE,)
