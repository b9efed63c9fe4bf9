"""`Admin`'s calls about transactions, against one broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, KafkaError, ProducerIdAndEpoch, TopicPartition
from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.topic_names import TRANSACTION_TOPIC
from headwater_broker.log.results import AppendOrigin
from solo_broker import SoloBroker
from unit.api.test_transactions import add, init
from unit.client.served_broker import ServedBroker, wait_until
from unit.log.harness import batch

HERE, THERE = TopicPartition("flights", 0), TopicPartition("flights", 1)
LOST = ProducerIdAndEpoch(987_654, 3)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path, transaction_state_log_num_partitions="2") as broker:
        broker.do(lambda b: b.create_topic(TRANSACTION_TOPIC, 2))
        broker.do(lambda b: b.create_topic("flights", 2))
        yield broker


@pytest.fixture
def admin(served: ServedBroker) -> Iterator[Admin]:
    with Admin(served.bootstrap) as found:
        yield found


def append(served: ServedBroker, producer: ProducerIdAndEpoch, index: int = 0) -> None:
    """One record of a transaction, which its leader appends without a question."""
    data = batch(
        producer_id=producer.producer_id,
        epoch=producer.producer_epoch,
        sequence=0,
        transactional=True,
    )

    def work(broker: SoloBroker) -> None:
        partition = broker.replicas.lookup("flights", index)
        partition.append(data, 1, 1_000, AppendOrigin.COORDINATOR)

    served.do(work)


def opened(served: ServedBroker, name: str, *indexes: int) -> ProducerIdAndEpoch:
    """An open transaction with a record in each of these partitions."""

    async def begin() -> ProducerIdAndEpoch:
        c: Connection = await open_connection("127.0.0.1", served.broker.port)
        reply = await init(c, name)
        producer = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
        partitions = [("flights", index) for index in indexes]
        codes = await add(c, producer, *partitions, transactional_id=name)
        assert set(codes) == {ErrorCode.NONE}
        c.close()
        return producer

    producer = asyncio.run(begin())
    for index in indexes:
        append(served, producer, index)
    return producer


def test_each_filter_leaves_transactions_out(served: ServedBroker, admin: Admin) -> None:
    first = opened(served, "pay-1", 0)
    opened(served, "bill-1", 1)
    admin.fence_producers(["idle-1"])
    assert [row.transactional_id for row in admin.list_transactions()] == [
        "bill-1", "idle-1", "pay-1",
    ]  # fmt: skip
    (idle,) = admin.list_transactions(states=["Empty"])
    assert (idle.transactional_id, idle.state, idle.coordinator) == ("idle-1", "Empty", 1)
    (pay,) = admin.list_transactions(producer_ids=[first.producer_id])
    assert (pay.transactional_id, pay.producer_id) == ("pay-1", first.producer_id)
    assert admin.list_transactions(transactional_id_pattern="pay-.*") == [pay]
    with pytest.raises(KafkaError) as error:
        admin.list_transactions(transactional_id_pattern="(")
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert admin.list_transactions(older_than_ms=3_600_000) == []


def test_a_blocker_is_joined_from_leader_and_coordinator(
    served: ServedBroker, admin: Admin
) -> None:
    producer = opened(served, "pay-1", 0, 1)
    append(served, LOST)  # it begins later in the partition
    here, there = admin.transaction_blockers()
    assert (here.topic, here.partition, there.partition) == ("flights", 0, 1)
    assert (here.transactional_id, here.state, here.is_hanging) == ("pay-1", "Ongoing", False)
    assert (here.producer_id, here.producer_epoch) == producer
    assert (here.principal, here.client_host) == ("User:ANONYMOUS", "127.0.0.1")
    assert (here.last_stable_offset, here.high_watermark) == (0, 2)
    assert here.coordinator == 1 and 0 < (here.times_out_in_ms or 0) <= 60_000
    admin.end_transaction("pay-1", producer, commit=True)
    wait_until(lambda: admin.describe_transactions(["pay-1"])["pay-1"].state == "CompleteCommit")
    (left,) = admin.transaction_blockers(["flights"])
    assert (left.producer_id, left.is_hanging, left.transactional_id) == (
        LOST.producer_id, True, None,
    )  # fmt: skip
    admin.end_transaction("pay-1", producer, commit=True)
    with pytest.raises(KafkaError) as error:
        admin.end_transaction("pay-1", producer, commit=False)
    assert error.value.code is ErrorCode.INVALID_TXN_STATE


def test_what_hangs_is_found_and_aborted(served: ServedBroker, admin: Admin) -> None:
    producer = opened(served, "pay-1", 0)
    append(served, LOST, 0)
    append(served, producer, 1)  # the coordinator does not know of this partition
    found = admin.find_hanging_transactions()
    assert [(row.partition, row.producer_id, row.transactional_id) for row in found] == [
        (0, LOST.producer_id, None), (1, producer.producer_id, "pay-1"),
    ]  # fmt: skip
    assert admin.find_hanging_transactions(broker=1) == found
    assert admin.find_hanging_transactions(broker=2) == []
    place = [("flights", row.partition) for row in found]
    assert admin.find_hanging_transactions(partitions=place, broker=1) == found
    assert admin.find_hanging_transactions(partitions=place, broker=2) == []
    assert admin.find_hanging_transactions(partitions=[THERE]) == [found[1]]
    admin.abort_transaction(HERE, first_offset=found[0].first_offset)
    assert admin.find_hanging_transactions(["flights"]) == [found[1]]
    with pytest.raises(KafkaError, match="its open transactions begin at 0"):
        admin.abort_transaction(HERE, first_offset=77)
    (row,) = [r for r in admin.describe_producers([THERE])[THERE] if r.producer_id != LOST[0]]
    who = ProducerIdAndEpoch(row.producer_id, row.producer_epoch + 1)
    admin.abort_transaction(THERE, producer=who, coordinator_epoch=row.coordinator_epoch)
    assert admin.find_hanging_transactions() == []
    assert [row.transactional_id for row in admin.transaction_blockers()] == ["pay-1"]


def test_a_live_transaction_is_not_torn_by_an_operator(served: ServedBroker, admin: Admin) -> None:
    """The coordinator may commit its other partitions."""
    producer = opened(served, "pay-1", 0, 1)
    with pytest.raises(KafkaError) as error:
        admin.abort_transaction(HERE, first_offset=0)
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert len(admin.transaction_blockers()) == 2
    admin.end_transaction("pay-1", producer, commit=False)
    wait_until(lambda: not admin.transaction_blockers())


def test_a_fenced_producer_has_nothing_open(served: ServedBroker, admin: Admin) -> None:
    before = opened(served, "pay-1", 0, 1)
    after = admin.fence_producers(["pay-1", "new-1"])
    assert after["pay-1"].producer_id == before.producer_id
    assert after["pay-1"].producer_epoch > before.producer_epoch
    assert after["new-1"].producer_epoch == 0
    assert admin.transaction_blockers() == []
    with pytest.raises(KafkaError) as error:
        admin.end_transaction("pay-1", before, commit=True)
    assert error.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(KafkaError) as unknown:
        admin.describe_transactions(["never-made"])
    assert unknown.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
