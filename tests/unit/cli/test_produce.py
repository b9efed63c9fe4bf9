"""`headwater produce` knows which records wait for an acknowledgement."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headwater.cli.produce import Delivery
from headwater.client.futures import SendFuture
from headwater.errors import ErrorCode, KafkaError


class Record:
    """The future of a record that a test acknowledges or fails."""

    def __init__(self) -> None:
        self.outcome: Any = None

    def done(self) -> bool:
        return self.outcome is not None

    def result(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def sent(delivery: Delivery, count: int) -> list[Record]:
    records = [Record() for _ in range(count)]
    for record in records:
        delivery.add(cast(SendFuture, record))
    return records


@pytest.fixture
def delivery() -> Delivery:
    made = Delivery("h:1")
    made.is_connected = True
    return made


def test_until_the_brokers_answer_they_are_waited_for() -> None:
    wait = Delivery("h:1,h:2").current_wait()
    assert wait is not None and wait.text == "no answer from h:1,h:2"


def test_nothing_is_waited_for_before_a_record_and_after_the_last(delivery: Delivery) -> None:
    assert delivery.current_wait() is None
    [record] = sent(delivery, 1)
    record.outcome = "at 7"
    assert delivery.current_wait() is None
    assert delivery.last() == "at 7"


def test_the_same_wait_goes_on_while_the_oldest_record_waits(delivery: Delivery) -> None:
    """One partition may be stuck while the others go on."""
    records = sent(delivery, 3)
    first = delivery.current_wait()
    assert first is not None and first.text == "no acknowledgement for 3 of 3 records"
    records[2].outcome = "at 2"
    second = delivery.current_wait()
    assert second is not None and second.key == first.key
    assert second.text == "no acknowledgement for 2 of 3 records"
    records[0].outcome = "at 0"
    [later] = sent(delivery, 1)
    third = delivery.current_wait()
    assert third is not None and third.key != first.key
    records[1].outcome = later.outcome = "at 3"
    assert delivery.last() == "at 3" and delivery.count == 4


def test_the_error_of_a_record_is_raised_with_a_later_one(delivery: Delivery) -> None:
    [record] = sent(delivery, 1)
    record.outcome = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    with pytest.raises(KafkaError, match="the disk is full"):
        sent(delivery, 1)
