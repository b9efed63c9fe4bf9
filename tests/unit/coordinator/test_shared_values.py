"""Equal parts of transactions are one object; the transactions stay equal."""

from __future__ import annotations

from uuid import UUID

from headwater_broker.coordinator.transaction.shared_values import SHARED_MAX, SharedValues
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import ClientIdentity, Transaction


def transaction(number: int, topic: str = "flights") -> Transaction:
    return Transaction(
        transactional_id=f"t{number}",
        producer_id=number,
        producer_epoch=0,
        state=TransactionState.ONGOING,
        timeout_ms=1,
        last_update_ms=1,
        client=ClientIdentity("User:a", "c", "h"),
        partitions={(topic, 0): UUID(int=1)},
    )


def test_equal_parts_are_shared() -> None:
    shared = SharedValues()
    one, other = (shared.apply(transaction(number)) for number in (1, 2))
    assert one == transaction(1) and other == transaction(2)
    assert one.client is other.client
    ((partition, topic_id),) = one.partitions.items()
    ((same_partition, same_id),) = other.partitions.items()
    assert partition is same_partition and topic_id is same_id


def test_what_is_remembered_is_bounded() -> None:
    shared = SharedValues()
    first = shared.apply(transaction(0, "first"))
    for number in range(SHARED_MAX):
        shared.apply(transaction(number, f"topic-{number}"))
    again = shared.apply(transaction(0, "first"))
    assert again == first
    ((partition, _),) = first.partitions.items()
    ((forgotten, _),) = again.partitions.items()
    assert partition is not forgotten
