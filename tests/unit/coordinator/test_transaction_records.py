"""`__transaction_state` in Kafka's bytes: known records, round trips, newer versions."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.schema import SchemaError, decoder, encoder
from headwater_broker.coordinator.transaction.records import (
    VALUE_VERSION,
    NewerTransactionRecordError,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    read_transaction,
    read_transactional_id,
    transaction_key,
    transaction_record,
)
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    EndedBy,
    Membership,
    Transaction,
)

STATES = [s for s in TransactionState if s is not TransactionState.DEAD]
EPOCHS = st.integers(-1, 32767)
IDS = st.integers(-1, 2**63 - 1)

LONGS = st.integers(-(2**63), 2**63 - 1)

transactions = st.builds(
    Transaction,
    transactional_id=st.text(min_size=1, max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 32767),
    state=st.sampled_from(STATES),
    timeout_ms=st.integers(1, 2**31 - 1),
    previous_producer_id=IDS,
    next_producer_id=IDS,
    last_producer_epoch=EPOCHS,
    next_producer_epoch=EPOCHS,
    client=st.builds(ClientIdentity, *(st.text(max_size=200) for _ in range(3))),
    ended_by=st.sampled_from(EndedBy),
    client_version=st.integers(0, 2),
    start_ms=st.integers(-1, 2**62),
    last_update_ms=st.integers(0, 2**62),
    partitions=st.dictionaries(
        st.tuples(st.sampled_from(["flights", "weather", "t" * 249]), st.integers(0, 200)),
        st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=2)]),
        max_size=150,
    ),
    membership=st.none()
    | st.builds(Membership, LONGS, LONGS, st.integers(-(2**31), 2**31 - 1), LONGS),
)


@given(transactions)
def test_a_stored_transaction_reads_as_it_was(made: Transaction) -> None:
    record = transaction_record(made)
    assert record.value is not None
    assert read_transactional_id(record.key) == made.transactional_id
    read = read_transaction(made.transactional_id, record.value)
    if made.state is TransactionState.EMPTY:
        assert not read.partitions, "Kafka stores null for Empty"
        return
    assert read == made


def test_partitions_of_the_same_names_and_another_topic_are_others() -> None:
    known = Transaction("t", 1, 0, TransactionState.ONGOING, 60_000, 1)
    for number in (1, 2, 1):
        topics = {("flights", index): UUID(int=number) for index in range(3)}
        made = known._replace(partitions=topics)
        value = transaction_record(made).value
        assert value is not None and read_transaction("t", value) == made
        assert transaction_record(made._replace(partitions=dict(topics))).value == value


@given(transactions)
def test_the_bytes_are_those_of_the_schema(made: Transaction) -> None:
    record = transaction_record(made)
    assert record.value is not None
    body = encoder(TransactionLogKey, 0)(TransactionLogKey(transactional_id=made.transactional_id))
    assert record.key == b"\x00\x00" + body
    assert record.value == b"\x00\x01" + encoder(TransactionLogValue, VALUE_VERSION)(
        schema_of(made)
    )


@given(transactions, st.data())
def test_damaged_bytes_are_read_as_the_schema_reads_them(
    made: Transaction, data: st.DataObject
) -> None:
    value = bytearray(transaction_record(made).value or b"")
    at = data.draw(st.integers(2, len(value) - 1))
    value[at] = data.draw(st.integers(0, 255))
    del value[data.draw(st.integers(at, len(value))) :]
    try:
        read = read_transaction(made.transactional_id, bytes(value))
    except (SchemaError, NewerTransactionRecordError):
        return
    found, _ = decoder(TransactionLogValue, VALUE_VERSION)(bytes(value), 2)
    assert (read.producer_id, read.producer_epoch) == (found.producer_id, found.producer_epoch)
    assert read.client.client_id == found.client_id
    assert read.next_producer_id == found.next_producer_id
    assert set(read.partitions) == {
        (row.topic, index)
        for row in found.transaction_partitions or ()
        for index in row.partition_ids
    }


def schema_of(made: Transaction) -> TransactionLogValue:
    topics: dict[tuple[str, UUID], list[int]] = {}
    for (topic, index), topic_id in sorted(made.partitions.items()):
        topics.setdefault((topic, topic_id), []).append(index)
    rows = tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(indexes), topic_id=topic_id)
        for (topic, topic_id), indexes in topics.items()
    )
    return TransactionLogValue(
        producer_id=made.producer_id,
        previous_producer_id=made.previous_producer_id,
        next_producer_id=made.next_producer_id,
        producer_epoch=made.producer_epoch,
        transaction_timeout_ms=made.timeout_ms,
        transaction_status=int(made.state),
        transaction_partitions=None if made.state is TransactionState.EMPTY else rows,
        transaction_last_update_timestamp_ms=made.last_update_ms,
        transaction_start_timestamp_ms=made.start_ms,
        client_transaction_version=made.client_version,
        next_producer_epoch=made.next_producer_epoch,
        last_producer_epoch=made.last_producer_epoch,
        client_principal=made.client.principal,
        client_id=made.client.client_id,
        client_host=made.client.host,
        ended_by=int(made.ended_by),
        membership=b"" if made.membership is None else struct.pack(">qqiq", *made.membership),
    )


def test_the_key_is_kafkas() -> None:
    assert transaction_key("t-1") == b"\x00\x00" + b"\x00\x03t-1"


def test_version_0_of_older_kafkas_is_read() -> None:
    value = (
        b"\x00\x00"  # version
        + (7).to_bytes(8)
        + (5).to_bytes(2)
        + (60_000).to_bytes(4)
        + b"\x01"  # Ongoing
        + (1).to_bytes(4)
        + b"\x00\x07flights"
        + (2).to_bytes(4)
        + (0).to_bytes(4)
        + (3).to_bytes(4)
        + (2_000).to_bytes(8)
        + (1_000).to_bytes(8)
    )
    read = read_transaction("t", value)
    assert (read.producer_id, read.producer_epoch, read.timeout_ms) == (7, 5, 60_000)
    assert read.state is TransactionState.ONGOING
    assert set(read.partitions) == {("flights", 0), ("flights", 3)}
    assert (read.last_update_ms, read.start_ms) == (2_000, 1_000)
    assert (read.previous_producer_id, read.next_producer_id, read.client_version) == (-1, -1, 0)


def test_a_tombstone_forgets_the_transactional_id() -> None:
    made = Transaction(
        transactional_id="t",
        producer_id=1,
        producer_epoch=0,
        state=TransactionState.DEAD,
        timeout_ms=1,
        last_update_ms=0,
    )
    assert transaction_record(made).value is None


def test_other_keys_are_skipped_and_broken_ones_are_errors() -> None:
    assert read_transactional_id(b"\x48\x01rest") is None
    with pytest.raises(SchemaError):
        read_transactional_id(b"\x00")


def test_newer_values_and_unknown_states_fail_the_load() -> None:
    with pytest.raises(NewerTransactionRecordError, match="version 2"):
        read_transaction("t", b"\x00\x02")
    made = Transaction(
        transactional_id="t",
        producer_id=1,
        producer_epoch=0,
        state=TransactionState.EMPTY,
        timeout_ms=1,
        last_update_ms=0,
    )
    value = transaction_record(made).value
    assert value is not None
    at_status = 2 + 8 + 2 + 4
    broken = value[:at_status] + b"\x09" + value[at_status + 1 :]
    with pytest.raises(NewerTransactionRecordError, match="unknown state 9"):
        read_transaction("t", broken)
